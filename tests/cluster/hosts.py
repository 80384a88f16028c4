"""Hosts with a real corosync each, in network namespaces of their own, so that they disturb neither this machine
nor one another. Everything ends with the process that made it.

A namespace lives as long as a process in it: each host is held by a `cat` whose input is a pipe of ours.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heliograph.bus.corosync_settings import KEY_BYTES, render
from heliograph.bus.corosync_settings import Host as Node

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 20.0


def require_corosync() -> None:
    """Skip with a sentence where it cannot be had; install it where we may."""
    if os.geteuid() != 0:
        pytest.skip("a corosync of our own needs the superuser")
    for tool in ("unshare", "nsenter", "setpriv", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no `{tool}` here (Debian: apt install util-linux iproute2)")
    if shutil.which("corosync") is None:
        _install()
    if subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel or container gives us no namespaces")


def _install() -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("corosync is not installed, and there is no apt-get to install it with")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "corosync", "libcpg4"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=50)
    if done.returncode or shutil.which("corosync") is None:
        pytest.skip("corosync is not installed and could not be: apt-get install corosync libcpg4 failed")


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"in {patience} s this did not come true: {what}"
        select.select([], [], [], 0.02)


class Host:
    """A network namespace, with a corosync in it when started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        script = "mount -t tmpfs tmpfs /run && ip link set lo up && echo ready && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"
        self.corosync: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._holder.pid

    def inside(self, *command: str) -> list[str]:
        """The command, to be run on this host; it ends when we do."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "setpriv", "--pdeathsig", "KILL"]
        return [*enter, *command]

    def run(self, *command: str) -> None:
        subprocess.run(self.inside(*command), check=True, capture_output=True)

    def start(self, nodes: list[Node], *, key: bytes = b"", token_ms: int = 400) -> None:
        key_file = self.folder / "key"
        if key:
            key_file.write_bytes(key)
            key_file.chmod(0o400)
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        text = render(
            nodes,
            cluster="tests",
            key_file=str(key_file) if key else "",
            token_ms=token_ms,
            log_file=str(self.folder / "log"),
            state_directory=str(state),
            realtime=False,
        )
        (self.folder / "corosync.conf").write_text(text)
        self.start_again()

    def start_again(self) -> None:
        command = self.inside("corosync", "-f", "-c", str(self.folder / "corosync.conf"))
        with (self.folder / "out").open("ab") as out:
            self.corosync = subprocess.Popen(command, stdout=out, stderr=out)

    def kill_corosync(self) -> None:
        assert self.corosync is not None
        self.corosync.kill()
        self.corosync.wait()

    def stop(self) -> None:
        if self.corosync is not None and self.corosync.poll() is None:
            self.kill_corosync()
        self._holder.kill()
        self._holder.wait()


class Network:
    """Hosts on one switch, whose cables can be pulled."""

    def __init__(self, folder: Path, count: int) -> None:
        self._switch = Host(folder / "switch")
        self.hosts = [Host(folder / f"host{number}") for number in range(1, count + 1)]
        self.nodes = [Node(f"host{number}", (f"10.77.0.{number}",)) for number in range(1, count + 1)]
        self._switch.run("ip", "link", "add", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        for number, host in enumerate(self.hosts, 1):
            host.run(
                "ip", "link", "add", "cable", "type", "veth", "peer", "name", f"port{number}",
                "netns", str(self._switch.pid),
            )  # fmt: skip
            host.run("ip", "address", "add", f"10.77.0.{number}/24", "dev", "cable")
            host.run("ip", "link", "set", "cable", "up")
            self.plug(number)

    def plug(self, number: int) -> None:
        self._switch.run("ip", "link", "set", f"port{number}", "master", "switch", "up")

    def pull(self, number: int) -> None:
        """The host's own end stays up: it is the network that fails, not the host."""
        self._switch.run("ip", "link", "set", f"port{number}", "nomaster")

    def start(self, *, key: bytes = b"k" * KEY_BYTES, token_ms: int = 400) -> None:
        for host in self.hosts:
            host.start(self.nodes, key=key, token_ms=token_ms)

    def stop(self) -> None:
        for host in (*self.hosts, self._switch):
            host.stop()


class MemberProcess:
    """`member.py` on a host."""

    program = "tests.cluster.member"

    def __init__(self, host: Host, channel: str, who: int, *, greets: bool = False) -> None:
        self.who = who
        self.place: tuple[int, int] = (0, 0)
        self.events: list[tuple[Any, ...]] = []
        self.said = self.refused = 0
        command = host.inside(
            sys.executable, "-m", self.program, channel, str(who), *(["greets"] if greets else [])
        )
        # nsenter's mount namespace would change the working folder: only the network's is needed here.
        command.remove("--mount")
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the member ended"
        return dict(json.loads(line))

    def enter(self, patience: float = PATIENCE) -> None:
        """As soon as there is a corosync to enter."""
        deadline = time.monotonic() + patience
        while "place" not in (answer := self.ask("enter")):
            assert answer["error"] == "bus-unavailable", answer
            assert time.monotonic() < deadline, f"no corosync in {patience} s: {answer['sentence']}"
            select.select([], [], [], 0.05)
        self.place = tuple(answer["place"])
        self.events = []

    def hear(self) -> list[tuple[Any, ...]]:
        """Everything that it heard since it entered."""
        while True:
            told = self.ask("tell", start=len(self.events))
            self.events += [_frozen(event) for event in told["events"]]
            self.said, self.refused = told["said"], told["refused"]
            if len(told["events"]) < 20_000:
                return self.events

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class Trio:
    """A member on each host."""

    def __init__(self, network: Network, *, greets: bool = False) -> None:
        self.network = network
        self.members = [
            MemberProcess(host, "trio", number, greets=greets) for number, host in enumerate(network.hosts, 1)
        ]
        for member in self.members:
            member.enter()

    def together(self, *numbers: int, patience: float = PATIENCE) -> None:
        """These see one another and nobody else."""
        chosen = [self.members[number - 1] for number in numbers]
        places = sorted(member.place for member in chosen)
        for member in chosen:
            until(
                lambda member=member: bool(member.hear()) and sorted(_members_of(member.hear())) == places,  # type: ignore[misc]
                f"{member.who} sees {numbers}",
                patience,
            )

    def say(self, count: int, size: int) -> None:
        for member in self.members:
            member.ask("say", count=count, size=size)

    def hears(self, number: int, who: int, count: int) -> None:
        member = self.members[number - 1]
        until(lambda: _words_of(member.hear(), who) >= count, f"{number} hears {count} of {who}")

    def hears_number(self, number: int, who: int, last: int) -> None:
        """Some before it may have been said in another part of the network."""
        member = self.members[number - 1]
        until(lambda: any(event[:3] == ("said", who, last) for event in member.hear()), f"{number} hears it")

    def stop(self) -> None:
        for member in self.members:
            member.kill()


def _members_of(diary: list[tuple[Any, ...]]) -> list[Any]:
    return [event for event in diary if event[0] == "configuration"][-1][1]  # type: ignore[no-any-return]


def _words_of(diary: list[tuple[Any, ...]], who: int) -> int:
    return sum(1 for event in diary if event[0] == "said" and event[1] == who)


@contextmanager
def one_host(folder: Path) -> Iterator[Host]:
    """A ring of one, as several processes on one machine use it."""
    host = Host(folder / "host1")
    try:
        host.start([Node("host1", ("127.0.0.1",))])
        yield host
    finally:
        host.stop()

"""Members of a channel on hosts with a real corosync each, and what they need of this machine."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heliograph.bus.corosync_settings import Host as RingHost
from heliograph.cli.dev_hosts import Host, Network
from tests.missing import leave_out

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 20.0
# Shorter than what `helio cluster init` writes, so that the stories are.
TOKEN_MS = 400


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
        leave_out("corosync is not installed, and there is no apt-get to install it with")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "corosync", "libcpg4"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=50)
    if done.returncode or shutil.which("corosync") is None:
        leave_out("corosync is not installed and could not be: apt-get install corosync libcpg4 failed")


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"in {patience} s this did not come true: {what}"
        select.select([], [], [], 0.02)


class MemberProcess:
    """`member.py` on a host."""

    program = "tests.cluster.member"

    def __init__(
        self, host: Host, channel: str, who: int, *, greets: bool = False, words: Sequence[str] = ()
    ) -> None:
        """`words`: what else the program is told."""
        self.who = who
        self.place: tuple[int, int] = (0, 0)
        self.events: list[tuple[Any, ...]] = []
        self.said = self.refused = 0
        command = host.inside(
            sys.executable,
            "-m",
            self.program,
            channel,
            str(who),
            *(["greets"] if greets else words),
            folder=ROOT,
        )
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
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
def one_host(folder: Path, *, own_memory: bool = True) -> Iterator[Host]:
    """A ring of one, as several processes on one machine use it."""
    host = Host(folder / "host1", own_memory=own_memory)
    try:
        host.start([RingHost("host1", ("127.0.0.1",))], token_ms=TOKEN_MS)
        yield host
    finally:
        host.stop()

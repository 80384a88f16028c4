"""Hosts with a corosync each, on one machine: namespaces of their own, so that they disturb neither the machine nor
one another. Everything in them ends with the process that made them, and leaves nothing behind.

A namespace lives as long as a process in it: each host is held by a `cat` whose input is a pipe of ours. It has its
own /run, for corosync's lock, and its own /dev/shm, where corosync and its clients share buffers. Without the
superuser a host is in a user namespace, and has the machine's network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from heliograph.bus.corosync_settings import DEFAULT_TOKEN_MS, KEY_BYTES, render
from heliograph.bus.corosync_settings import Host as RingHost
from heliograph.model.errors import Unavailable

_TOOLS = ("corosync", "unshare", "nsenter", "setpriv")
_PACKAGES = {"corosync": "corosync", "ip": "iproute2"}
_CHAIN = "table bridge cuts {{\nchain forward {{\ntype filter hook forward priority 0\n{rules}}}\n}}\n"
_HOLD = "mount -t tmpfs tmpfs /run {more} && echo ready && exec cat"
_OWN_MEMORY = "&& mount -t tmpfs tmpfs /dev/shm "


def check_tools(*, networks: bool) -> None:
    """Raises Unavailable `tool-missing`."""
    for tool in (*_TOOLS, *(("ip",) if networks else ())):
        if shutil.which(tool) is None:
            package = _PACKAGES.get(tool, "util-linux")
            raise Unavailable(
                f"there is no `{tool}` on this machine (Debian: apt install {package})", code="tool-missing"
            )


class Host:
    """A host with its own mounts and, if it is to have one, its own network; with a corosync in it when started."""

    def __init__(self, folder: Path, *, own_network: bool = True, own_memory: bool = True) -> None:
        """`own_memory`: only processes on this host can talk to its corosync. Raises Unavailable
        `namespaces-unavailable`."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._user = () if os.geteuid() == 0 else ("--user",)
        self._network = ("--net",) if own_network else ()
        self._own_memory = own_memory
        self._hold()
        self.corosync: subprocess.Popen[bytes] | None = None
        self._log_began = 0

    def _hold(self) -> None:
        more = _OWN_MEMORY if self._own_memory else ""
        script = _HOLD.format(more=more + ("&& ip link set lo up" if self._network else ""))
        as_root = ("--map-root-user",) if self._user else ()
        self._holder = subprocess.Popen(
            ["unshare", *self._user, *as_root, *self._network, "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            assert self._holder.stderr is not None
            why = self._holder.stderr.read().decode(errors="replace").strip()
            self._holder.wait()
            raise Unavailable(
                f"this kernel or container gives us no namespaces ({why})", code="namespaces-unavailable"
            )

    @property
    def pid(self) -> int:
        return self._holder.pid

    def inside(self, *command: str, folder: Path | None = None) -> list[str]:
        """The command, to be run on this host, in this folder; it ends when we do."""
        spaces = [*self._user, *(("--preserve-credentials",) if self._user else ()), *self._network]
        enter = ["nsenter", f"--target={self.pid}", *spaces, "--mount", "setpriv", "--pdeathsig", "KILL"]
        return [*enter, "env", f"--chdir={folder or Path.cwd()}", *command]

    def run(self, *command: str) -> None:
        """Raises Unavailable `namespaces-unavailable`."""
        done = subprocess.run(self.inside(*command), check=False, capture_output=True)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()
            raise Unavailable(f"`{' '.join(command)}` failed: {why}", code="namespaces-unavailable")

    def start(
        self,
        hosts: Sequence[RingHost],
        *,
        cluster: str = "tests",
        key: bytes = b"",
        token_ms: int = DEFAULT_TOKEN_MS,
    ) -> None:
        """Start its corosync, as one of these hosts."""
        key_file = self.folder / "key"
        if key:
            key_file.unlink(missing_ok=True)
            key_file.write_bytes(key)
            key_file.chmod(0o400)
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        text = render(
            hosts,
            cluster=cluster,
            key_file=str(key_file) if key else "",
            token_ms=token_ms,
            log_file=str(self.log),
            state_directory=str(state),
            realtime=False,
        )
        (self.folder / "corosync.conf").write_text(text)
        self.start_again()

    @property
    def log(self) -> Path:
        return self.folder / "corosync.log"

    def start_again(self) -> None:
        self._log_began = self.log.stat().st_size if self.log.exists() else 0
        command = self.inside("corosync", "-f", "-c", str(self.folder / "corosync.conf"))
        with (self.folder / "corosync.out").open("ab") as out:
            self.corosync = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    @property
    def answers(self) -> bool:
        """Whether its corosync takes clients: it says so in its log. Raises Unavailable `corosync-failed`."""
        assert self.corosync is not None, "its corosync was not started"
        said = self.log.read_bytes()[self._log_began :] if self.log.exists() else b""
        if self.corosync.poll() is not None:
            lines = [
                line for line in said.decode(errors="replace").splitlines() if "exiting with" not in line
            ]
            last = lines[-1].rpartition("]")[2].strip() if lines else "it said nothing"
            raise Unavailable(f"corosync did not stay: {last}", code="corosync-failed")
        return b"ready to provide service" in said

    def kill_corosync(self) -> None:
        assert self.corosync is not None
        self.corosync.kill()
        self.corosync.wait()

    def stop(self) -> None:
        if self.corosync is not None and self.corosync.poll() is None:
            self.kill_corosync()
        self._holder.kill()
        self._holder.wait()
        for stream in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            if stream is not None:
                stream.close()


class Network:
    """Hosts on one switch, whose cables can be pulled."""

    def __init__(self, folder: Path, count: int, *, subnet: str = "10.77.0") -> None:
        """Raises Unavailable `namespaces-unavailable`, and has then left nothing behind."""
        self._subnet = subnet
        self.hosts: list[Host] = []
        self.ring = [RingHost(f"host{number}", (self.address(number),)) for number in range(1, count + 1)]
        self._switch = Host(folder / "switch")
        try:
            self._connect(folder, count)
        except BaseException:
            self.stop()
            raise

    def _connect(self, folder: Path, count: int) -> None:
        self._switch.run("ip", "link", "add", "switch", "type", "bridge")
        self._switch.run("ip", "link", "set", "switch", "up")
        for number in range(1, count + 1):
            host = Host(folder / f"host{number}")
            self.hosts.append(host)
            host.run(
                "ip", "link", "add", "cable", "type", "veth", "peer", "name", f"port{number}",
                "netns", str(self._switch.pid),
            )  # fmt: skip
            host.run("ip", "address", "add", f"{self.address(number)}/24", "dev", "cable")
            host.run("ip", "link", "set", "cable", "up")
            self.plug(number)

    def address(self, number: int) -> str:
        return f"{self._subnet}.{number}"

    def plug(self, number: int) -> None:
        self._switch.run("ip", "link", "set", f"port{number}", "master", "switch", "up")

    def pull(self, number: int) -> None:
        """The host's own end stays up: it is the network that fails, not the host."""
        self._switch.run("ip", "link", "set", f"port{number}", "nomaster")

    def set_port(self, number: int, *, up: bool) -> None:
        """The link of a host's cable: it sees that there is none."""
        self._switch.run("ip", "link", "set", f"port{number}", "up" if up else "down")

    def bar(self, ways: Sequence[tuple[int, int]]) -> None:
        """What the first of two hosts says does not reach the second: for these, from now on, and for no others.
        Needs nftables."""
        rules = "".join(f'iifname "port{one}" oifname "port{other}" drop\n' for one, other in ways)
        # The table is made before it is removed, so that it is there to be removed; all of it happens at one instant.
        script = f"table bridge cuts\ndelete table bridge cuts\n{_CHAIN.format(rules=rules)}"
        self._switch.run("nft", script)

    def let_us_in(self) -> None:
        """A cable from the switch to this machine. It goes when the switch does."""
        name, us = f"helio{os.getpid()}", os.getpid()
        switch = self._switch
        switch.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", name, "netns", str(us))
        switch.run("ip", "link", "set", "uplink", "master", "switch", "up")
        for words in (
            ("address", "add", f"{self.address(254)}/24", "dev", name),
            ("link", "set", name, "up"),
        ):
            subprocess.run(["ip", *words], check=True, capture_output=True)

    def start(self, *, key: bytes = b"k" * KEY_BYTES, token_ms: int = DEFAULT_TOKEN_MS) -> None:
        for host in self.hosts:
            host.start(self.ring, key=key, token_ms=token_ms)

    def stop(self) -> None:
        for host in (*self.hosts, self._switch):
            host.stop()

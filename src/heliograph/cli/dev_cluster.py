"""A whole cluster on this machine: a corosync, client managers and message managers, each a process.

Either all processes share one corosync with a ring of one host, or each has a host of its own in a network
namespace. Nothing here prints, and nothing waits for long: the caller looks again.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from heliograph.bus.corosync import CorosyncBus
from heliograph.bus.corosync_settings import KEY_BYTES
from heliograph.bus.corosync_settings import Host as RingHost
from heliograph.cli.dev_hosts import Host, Network, check_tools
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.nodes.configuration import toml_of
from heliograph.nodes.users import UserStore

CLIENT_MANAGER = "client-manager"
MESSAGE_MANAGER = "message-manager"
# Who may log in where others could reach the nodes: in the namespaces, from this machine.
USER = PASSWORD = "dev"
_NO_SECRET = (16, 8, 1)  # of scrypt: many clients that come again at once share the machine with the nodes
_PORT = 7700
_STOP_SECONDS = 15.0
_RING_SECONDS = 20.0
_LOOK_SECONDS = 0.02
# Message managers have numbers from here on, so that more client managers do not change them.
_FIRST_MESSAGE_MANAGER = 101
_SUBNETS = tuple(f"10.77.{number}" for number in range(256))

Settings = Mapping[str, Mapping[str, object]]


class Node:
    """A process of the cluster, which can be killed and started again."""

    def __init__(self, folder: Path, role: str, number: int, host: Host | None) -> None:
        self.role = role
        self.sub_cluster = ""
        self.name = f"{role}-{number}"
        self.host = host
        self.folder = folder / self.name
        self.data = self.folder / "data"
        self.output = self.folder / "output.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._configuration = self.folder / "heliograph.toml"
        self._ready = self.folder / "ready"

    def configure(self, sections: Settings, policies: Sequence[Mapping[str, object]] = ()) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tables = [(f"[{section}]", keys) for section, keys in sections.items()]
        tables += [("[[policies]]", keys) for keys in policies]
        lines = []
        for title, keys in tables:
            lines += [title, *(f"{key} = {toml_of(value)}" for key, value in keys.items())]
        self._configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "heliograph.cli.main", "serve"]
        command += ["--config", str(self._configuration), "--ready-file", str(self._ready)]
        if self.host is not None:
            command = self.host.inside(*command)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None, "the node was not started"
        return self.process.pid

    @property
    def is_ready(self) -> bool:
        return self._ready.exists()

    @property
    def address(self) -> str:
        """HOST:PORT, once it is ready, if clients come here."""
        return self._ready.read_text(encoding="utf-8").strip()

    @property
    def ended(self) -> int | None:
        """With which code it ended, if it has; a signal is negative."""
        return self.process.poll() if self.process is not None else None

    @property
    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").strip().splitlines() if self.output.exists() else []
        return lines[-1] if lines else ""

    def kill(self) -> None:
        """`kill -9`: no farewell, no last write."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Ask it to stop. Its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None, "the node was not started"
        self.process.send_signal(how)
        try:
            return self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def describe(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": self.name, "role": self.role, "pid": self.pid}
        if self.role == CLIENT_MANAGER:
            shown["address"] = self.address
        else:
            shown["sub_cluster"] = self.sub_cluster
        return {**shown, "data": str(self.data), "output": str(self.output)}


class DevCluster:
    """Client managers and message managers in one folder. `start`, look at `missing`, and `stop` whatever happens."""

    def __init__(
        self,
        folder: Path,
        *,
        client_managers: int,
        message_managers: int,
        sub_clusters: int = 1,
        namespaces: bool = False,
        hosts: int = 0,
        port: int = 0,
        settings: Settings | None = None,
        beside: DevCluster | None = None,
        distributed: Sequence[str] = (),
        placement: Sequence[int] = (),
        policies: Sequence[Mapping[str, object]] = (),
    ) -> None:
        """`message_managers`: of each sub-cluster. `hosts`: in namespaces, so many share the nodes; 0: one for each.
        `placement`: the number of each node's host, client managers first; otherwise by turns.
        `port`: of the first client manager, the others follow; 0: free ones. `settings`: of all nodes. `beside`: use
        the ring of this one, which was started before and is stopped behind it. `distributed`: destinations, or
        patterns of them, that are in all sub-clusters. `policies`: more of them."""
        self.folder = folder.absolute()
        # A corosync that was here before may have other clusters: the name belongs to the folder.
        self.name = f"dev-{sha256(str(self.folder).encode()).hexdigest()[:8]}"
        self.namespaces = namespaces
        self.network: Network | None = None
        self.ring: Host | None = None
        self.nodes: list[Node] = []
        self.sub_clusters = (
            [f"s{number}" for number in range(1, sub_clusters + 1)] if sub_clusters > 1 else ["main"]
        )
        self._managers_each = message_managers
        self._counts = client_managers, message_managers * sub_clusters
        count = sum(self._counts)
        self._placement = placement or [place % (hosts or count) + 1 for place in range(count)]
        self._port = port
        self._settings = settings or {}
        self._beside = beside
        everywhere = [{"destinations": pattern, "members": "all"} for pattern in distributed]
        self._policies: list[Mapping[str, object]] = [*everywhere, *policies]

    # ---- life

    def start(self) -> None:
        """Start everything. Raises Unavailable; `stop` all the same."""
        check_tools(networks=self.namespaces)
        CorosyncBus.check_library()
        hosts = self._start_hosts()
        numbers = [(CLIENT_MANAGER, number) for number in range(1, self._counts[0] + 1)]
        numbers += [(MESSAGE_MANAGER, number) for number in range(1, self._counts[1] + 1)]
        for place, (role, number) in enumerate(numbers, 1):
            node = Node(self.folder, role, number, hosts[place - 1])
            if role == MESSAGE_MANAGER:
                node.sub_cluster = self.sub_clusters[(number - 1) // self._managers_each]
            node.configure(self._sections(node, number, place), self._policies)
            self.nodes.append(node)
        for node in self.nodes:
            node.start()

    def stop(self) -> None:
        """Client managers first, then the message managers from the last to the first, so that each has somebody
        to hand over to while there is one."""
        for node in (*self.client_managers, *reversed(self.message_managers)):
            if node.process is not None and node.ended is None:
                node.terminate()
        for part in (self.network, self.ring):
            if part is not None:
                part.stop()

    @property
    def client_managers(self) -> list[Node]:
        return [node for node in self.nodes if node.role == CLIENT_MANAGER]

    @property
    def message_managers(self) -> list[Node]:
        return [node for node in self.nodes if node.role == MESSAGE_MANAGER]

    @property
    def missing(self) -> list[Node]:
        """Who is not there yet. When nobody is missing, every message manager has the log."""
        return [node for node in self.nodes if not node.is_ready]

    def wait(self, seconds: float) -> None:
        """Until nobody is missing. Raises Unavailable `node-failed`."""
        for node in self.nodes:
            _until(lambda node=node: node.is_ready or node.ended is not None, seconds, node.name)  # type: ignore[misc]
            if node.ended is not None:
                raise failed(node)

    @property
    def url(self) -> str:
        """With all client managers."""
        return "helio://" + ",".join(node.address for node in self.client_managers)

    def describe(self) -> dict[str, Any]:
        """For programs."""
        shown = {
            "cluster": self.name,
            "url": self.url,
            "folder": str(self.folder),
            "client_managers": [node.describe() for node in self.client_managers],
            "message_managers": [node.describe() for node in self.message_managers],
            "corosync": [
                {"pid": host.corosync.pid, "log": str(host.log)}
                for host in self._hosts()
                if host.corosync is not None
            ],
        }
        return {**shown, "user": USER, "password": PASSWORD} if self.namespaces else shown

    # ---- hosts

    def _hosts(self) -> list[Host]:
        if self.network is not None:
            return self.network.hosts
        return [self.ring] if self.ring is not None else []

    def _start_hosts(self) -> Sequence[Host | None]:
        count = sum(self._counts)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.namespaces:
            if os.geteuid() != 0:
                raise ClientFault("--namespaces needs the superuser: run it with sudo", code="usage")
            self.network = Network(self.folder / "hosts", max(self._placement), subnet=free_subnet())
            self.network.let_us_in()
            self.network.start(key=secrets.token_bytes(KEY_BYTES))
            for host in self.network.hosts:
                _wait_for_ring(host)
            return [self.network.hosts[number - 1] for number in self._placement]
        if self._beside is not None:
            return [self._beside.ring] * count
        if _answers():
            return [None] * count  # the one that is here will do
        if _is_taken():
            raise Unavailable(
                "a corosync runs on this machine and does not let us in, perhaps that of another `helio cluster"
                " dev`: stop it first, or use --namespaces",
                code="bus-unavailable",
            )
        self.ring = Host(self.folder / "corosync", own_network=False)
        self.ring.start([RingHost("here", ("127.0.0.1",))], cluster=self.name)
        _wait_for_ring(self.ring)
        return [self.ring] * count

    def _sections(self, node: Node, number: int, place: int) -> dict[str, dict[str, object]]:
        is_manager = node.role == MESSAGE_MANAGER
        server: dict[str, object] = {"data": str(node.data), "port": self._port}
        identity: dict[str, object] = {"node": number + (_FIRST_MESSAGE_MANAGER - 1 if is_manager else 0)}
        if self.network is not None:
            host = self._placement[place - 1]
            server["host"] = self.network.address(host)
            server["port"] = _PORT + self._placement[: place - 1].count(host)
            identity["users_file"] = str(self._users())
        elif self._port:
            server["port"] = self._port + number - 1
        cluster: dict[str, object] = {
            "name": self.name,
            "role": node.role,
            "message_managers": self._managers_each,
            "seniority": number,
        }
        if len(self.sub_clusters) > 1:
            cluster["sub_cluster"] = node.sub_cluster or self.sub_clusters[0]
            cluster["sub_clusters"] = ",".join(self.sub_clusters)
        sections = {"server": server, "identity": identity, "cluster": cluster}
        for section, keys in self._settings.items():
            sections[section] = {**sections.get(section, {}), **keys}
        return sections

    def _users(self) -> Path:
        path = self.folder / "users.toml"
        if not path.exists():
            UserStore.load(path).add(USER, PASSWORD, ["admin"], cost=_NO_SECRET)
        return path


def failed(node: Node) -> Unavailable:
    """What it said last; the whole output is gone with the folder, unless that was given."""
    words = node.last_words.removeprefix("helio: ") or "it said nothing"
    return Unavailable(f"{node.name} did not stay: {words}", code="node-failed")


def _answers() -> bool:
    try:
        CorosyncBus.check()
    except Unavailable:
        return False
    return True


def _is_taken() -> bool:
    """Corosync and its clients find each other by the name of an abstract socket."""
    try:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return any(line.rpartition(" ")[2].strip("@") == "cpg" for line in lines)
    except OSError:
        return False


def _wait_for_ring(host: Host) -> None:
    _until(lambda: host.answers, _RING_SECONDS, "corosync")


def free_subnet() -> str:
    """One that this machine is not in. Whoever looks at the same moment hardly takes the same."""
    shown = subprocess.run(["ip", "-o", "-4", "address"], check=False, capture_output=True, text=True).stdout
    free = [subnet for subnet in _SUBNETS if f" {subnet}." not in shown]
    if not free:
        raise Unavailable("this machine is in all networks of 10.77", code="namespaces-unavailable")
    return secrets.choice(free)


def _until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Unavailable(f"{what} is not ready after {seconds:g} s", code="node-failed")
        select.select([], [], [], _LOOK_SECONDS)

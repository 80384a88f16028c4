"""A cluster on real hosts whose network is cut under load, with clients on every side: the cast and the checkers of
the simulation, on real time."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from traceback import format_exception
from typing import Any

from heliograph.cli.dev_cluster import MESSAGE_MANAGER, PASSWORD, USER, DevCluster, Node
from heliograph.client import connect
from heliograph.model.errors import HeliographError
from simulation.checkers import violations
from simulation.clients import Client, Receiving, Scene, Sending, Streaming, Transacting
from simulation.history import History
from simulation.partition_checkers import abridged
from tests.cluster.cuts import Cuts, Parts
from tests.cluster.desks import Desk, RealWorld
from tests.cluster.hosts import until
from tests.servers import play

START_SECONDS = 60.0
# Healed and drained so long after the last heal.
DRAINED_SECONDS = 10.0
# What is not drained in time is waited for, so as to tell what is late from what is lost.
_LATE_SECONDS = 50.0
_AGREE_SECONDS = 30.0
_LEISURE = 6.0
_LOOK_SECONDS = 0.05
_ENOUGH = 20  # messages, to say that a part accepts them
# Clients at every desk send to these.
_EVERYWHERE = ("queue:solo", "topic:news", "queue:many")
# As the runs on virtual time have it: whoever is gone is given up soon enough for a story.
SETTINGS = {
    "limits": {"heartbeat_seconds": 2.0},
    "sessions": {"reconnect_seconds": 2.0, "lease_seconds": 5.0},
}
POLICIES = (
    {"destinations": "queue:*", "redelivery_limit": 0},
    {"destinations": "topic:*", "redelivery_limit": 0},
)


class PartedCluster:
    """One that is cut and healed, again and again."""

    def __init__(
        self,
        folder: Path,
        *,
        client_managers: int,
        message_managers: int,
        sub_clusters: int = 1,
        placement: Sequence[int],
    ) -> None:
        self.dev = DevCluster(
            folder,
            client_managers=client_managers,
            message_managers=message_managers,
            sub_clusters=sub_clusters,
            placement=placement,
            namespaces=True,
            settings=SETTINGS,
            policies=POLICIES,
        )
        self.is_spoilt = False  # somebody found something wrong, and others should not begin here

    def start(self) -> None:
        self.dev.start()
        self.dev.wait(START_SECONDS)
        assert self.dev.network is not None
        self.cuts = Cuts(self.dev.network)

    def stop(self) -> None:
        self.dev.stop()

    def host_of(self, node: Node) -> int:
        assert self.dev.network is not None
        assert node.host is not None
        return self.dev.network.hosts.index(node.host) + 1

    def address(self, host: int) -> str:
        assert self.dev.network is not None
        return self.dev.network.address(host)

    def urls(self) -> tuple[str, ...]:
        """All client managers, each of them first in one."""
        nodes = [node.address for node in self.dev.client_managers]
        return tuple(
            f"helio://{USER}:{PASSWORD}@" + ",".join(nodes[at:] + nodes[:at]) for at in range(len(nodes))
        )

    # ---- what nodes say

    def views(self, node: Node, since: float = 0.0) -> list[dict[str, Any]]:
        return [
            event
            for event in events_of(node)
            if event["event"] == "view-installed" and event["time"] >= since
        ]

    def state(self, node: Node, sub_cluster: str) -> str:
        """What it takes its last view for."""
        states = [view["state"] for view in self.views(node) if view["sub_cluster"] == sub_cluster]
        return states[-1] if states else ""

    def differences(self) -> list[str]:
        """In the end one leads in each sub-cluster, the others follow, and their logs go equally far."""
        facts = play(self._ask_nodes(), 20)
        found = [
            f"{node.name} has ended: {node.last_words}" for node in self.dev.nodes if node.ended is not None
        ]
        if len(facts) != len(self.dev.nodes):
            found.append(f"{len(facts)} of {len(self.dev.nodes)} nodes answer")
        for name in self.dev.sub_clusters:
            managers = [each[MESSAGE_MANAGER] for each in facts if MESSAGE_MANAGER in each]
            managers = [each for each in managers if each["sub_cluster"] == name]
            standings = sorted(str(each["standing"]) for each in managers)
            if standings.count("leads") != 1 or len({each["index"] for each in managers}) != 1:
                found.append(f"{name}: {standings}, {[each['index'] for each in managers]}")
        return found

    async def _ask_nodes(self) -> list[dict[str, Any]]:
        try:
            async with connect(self.urls()[0], reconnect_seconds=5.0) as connection:
                composite = await connection.ask("nodes.ask", command="node")
        except HeliographError as error:
            return [{"error": error.code}]
        return [reply["body"] for reply in composite["replies"] if reply["ok"]]


def events_of(node: Node) -> Iterator[dict[str, Any]]:
    path = node.data / "log" / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return (json.loads(line) for line in lines if line.endswith("}"))  # the last may be under way


class PartedPlay:
    """Clients at work on a cluster while something happens to its network, and the judgement. `name`: of this one, so
    that the destinations and clients of each are its own."""

    def __init__(self, cluster: PartedCluster, name: str, seed: int) -> None:
        self.cluster = cluster
        self.cuts = cluster.cuts
        self.world = RealWorld(seed)
        self.dice = self.world.dice
        self._cutting = Random(seed)  # of its own: clients roll theirs whenever they come to it
        self.history = History(self.world)
        self.scene = Scene(self.world, self.history, cluster.urls(), _LEISURE)
        self._name = name
        self._began = time.time()
        self._last_heal = self.world.now
        self.drained_after = 0.0
        self._desks = self._make_desks()
        self.clients = self._cast()

    # ---- clients

    def _make_desks(self) -> list[Desk]:
        """Beside each host with a client manager, and one from where all of them are reached."""
        network = self.cluster.dev.network
        assert network is not None
        numbers = {self.cluster.address(host): host for host in self.cuts.hosts}
        desks = [Desk(self.world, "desk", None, lambda _address: not self.cuts.is_whole)]
        for host in sorted({self.cluster.host_of(node) for node in self.cluster.dev.client_managers}):
            is_doubtful: Callable[[str], bool] = lambda address, host=host: self.cuts.was_cut(  # type: ignore[misc] # noqa: E731
                host, numbers[address]
            )
            desks.append(Desk(self.world, f"desk{host}", network.hosts[host - 1], is_doubtful))
        return desks

    def _cast(self) -> list[Client]:
        scene, dice = self.scene, self.dice
        news = self._of("topic:news")
        alice, bob = f"{self._name}-alice", f"{self._name}-bob"
        self.history.subscriptions[news] = [f"{news}/{alice}", f"{news}/{bob}"]
        modes = ("individual", "client", "auto")

        def receiving(name: str, destination: str, mode: str = "", durable: str = "") -> Receiving:
            mode = mode or dice.choice(modes)
            full_name, where = f"{self._name}-{name}", self._of(destination)
            return Receiving(scene, dice.choice(self._desks), full_name, where, mode=mode, durable=durable)

        def sending(name: str, destination: str, units: tuple[str, ...] = ()) -> Sending:
            # One of each on every side: whatever the cut, somebody sends in every part.
            return Sending(scene, desk, f"{self._name}-{name}", self._of(destination), units=units)

        cast: list[Client] = [
            receiving("alice", "topic:news", durable="news"),
            receiving("bob", "topic:news", durable="news"),
            receiving("solo", "queue:solo"),
            receiving("one", "queue:many", "individual"),
            receiving("two", "queue:many"),
            receiving("first", "queue:units"),
            receiving("second", "queue:units", "individual"),
            receiving("out", "queue:out"),
            receiving("copies", "queue:copies"),
            receiving("viewer", "queue:large", "individual"),
            self._clerk(),
        ]
        for desk in self._desks:
            cast += [
                sending(f"{who}-{desk.name}", destination)
                for who, destination in zip(("writer", "press", "many"), _EVERYWHERE, strict=True)
            ]
        desk = dice.choice(self._desks)
        cast.append(sending("ordered", "queue:units", ("a", "b", "c")))
        desk = dice.choice(self._desks)
        cast.append(sending("works", "queue:in"))
        cast.append(
            Streaming(scene, dice.choice(self._desks), f"{self._name}-studio", self._of("queue:large"))
        )
        return cast

    def _clerk(self) -> Transacting:
        targets = (self._of("queue:out"), self._of("queue:copies"))
        return Transacting(
            self.scene, self.dice.choice(self._desks), f"{self._name}-clerk", (self._of("queue:in"),), targets
        )

    def _of(self, destination: str) -> str:
        kind, _, name = destination.partition(":")
        return f"{kind}:{self._name}/{name}"

    def begin(self) -> None:
        """Everybody is there and at work."""
        senders = [client for client in self.clients if isinstance(client, Sending | Streaming)]
        for client in self.clients:
            if client not in senders:
                client.start()
        places = {client.place for client in self.clients if isinstance(client, Receiving)}
        until(lambda: len(self.scene.subscribed) == len(places), "all consumers are there", START_SECONDS)
        for client in senders:
            client.start()
        until(lambda: self._has_confirmed(senders), "all producers are at work", START_SECONDS)

    def _has_confirmed(self, senders: Sequence[Client]) -> bool:
        heard = {sent.producer for sent in list(self.history.sent.values()) if sent.confirmed_at}
        return heard.issuperset(client.life for client in senders)

    def accepts(self, hosts: Sequence[int], since: float) -> bool:
        """Whether messages were confirmed to clients beside these hosts."""
        desks = {f"desk{host}" for host in hosts}
        lives = {client.life for client in self.clients if client.machine.name in desks}
        sent = list(self.history.sent.values())
        return sum(each.confirmed_at > since and each.producer in lives for each in sent) > _ENOUGH

    def some_are_in(self, sub_cluster: str) -> bool:
        """Whether that sub-cluster has a destination to which clients at every desk send."""
        everywhere = [self._of(destination) for destination in _EVERYWHERE]
        return any(
            event["event"] == "destination-created" and event["destination"] in everywhere
            for node in self.cluster.dev.message_managers
            if node.sub_cluster == sub_cluster
            for event in events_of(node)
        )

    def go_on(self, seconds: float) -> None:
        """Nothing is waited for: the clients work, and the bus notices what it notices."""
        select.select([], [], [], seconds)

    # ---- what happens to the network

    def storm(self, seconds: float, kinds: Sequence[str]) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            strike: Callable[[], None] = getattr(self, f"_{self._cutting.choice(kinds)}")
            strike()
            self.go_on(min(self._cutting.uniform(0.2, 4.0), max(0.0, end - self.world.now)))

    def heal(self) -> None:
        self.cuts.heal()
        self._last_heal = self.world.now

    def _random_parts(self) -> Parts:
        """Any number of them, two more often than not."""
        hosts = list(self.cuts.hosts)
        count = 2 if self._cutting.random() < 0.7 else self._cutting.randint(2, len(hosts))
        self._cutting.shuffle(hosts)
        parts = [[host] for host in hosts[:count]]
        for host in hosts[count:]:
            self._cutting.choice(parts).append(host)
        return parts

    def _cut(self) -> None:
        self.cuts.cut_into(self._random_parts())

    def _cut_twice(self) -> None:
        """The second before anybody, or everybody, has noticed the first."""
        self._cut()
        self.go_on(self._cutting.uniform(0.0, 1.5))
        self._cut()

    def _cable(self) -> None:
        self.cuts.kill_cable(self._cutting.choice(self.cuts.hosts))

    def _flap(self) -> None:
        for _ in range(self._cutting.randint(2, 5)):
            self._cutting.choice((self._cut, self._cable))()
            self.go_on(self._cutting.uniform(0.05, 0.5))
            self.cuts.heal()
            self.go_on(self._cutting.uniform(0.05, 0.5))

    def _lose(self) -> None:
        self.cuts.lose(*self._cutting.sample(self.cuts.hosts, 2))

    def _heal(self) -> None:
        self.cuts.heal()

    # ---- the end

    def end(self) -> list[str]:
        """The network is whole: let everybody come through, and judge. Returns what is wrong, in sentences."""
        self.heal()
        self.scene.is_sending = False
        began = self.world.now
        try:
            self._until_quiet(DRAINED_SECONDS + _LATE_SECONDS)
            self.drained_after = self.world.now - began
            self.go_on(1.0)  # whatever comes that should not
            found = self._differences()
        finally:
            self.close()
        return abridged([*self._late(), *self._judged(), *found])

    def close(self) -> None:
        for desk in self._desks:
            desk.close()

    def _until_quiet(self, seconds: float) -> None:
        deadline = self.world.now + seconds
        while not self._is_quiet() and self.world.now < deadline:
            self.go_on(_LOOK_SECONDS)

    def _is_quiet(self) -> bool:
        try:
            return not self._unfinished() and next(self.history.waiting(), None) is None
        except RuntimeError:
            return False  # the clients wrote while we read

    def _unfinished(self) -> list[str]:
        senders = (client for client in self.clients if isinstance(client, Sending | Streaming))
        return [client.name for client in senders if not client.is_through]

    def _late(self) -> list[str]:
        in_time = self.drained_after <= DRAINED_SECONDS
        return [] if in_time else [f"drained {self.drained_after:.1f} s after the last heal"]

    def _judged(self) -> list[str]:
        found = [f"{name} is not through with what it sent" for name in self._unfinished()]
        found += violations(self.history)
        found += ["a defect: " + "".join(format_exception(error)) for error in self.world.failures]
        for node in self.cluster.dev.nodes:
            said = node.output.read_text(errors="replace")
            if "Traceback" in said:
                found.append(f"{node.name}: {said[-4000:]}")
        return found

    def _differences(self) -> list[str]:
        deadline = self.world.now + _AGREE_SECONDS
        while (found := self.cluster.differences()) and self.world.now < deadline:
            self.go_on(0.5)
        return found

    def report(self) -> str:
        """What happened, for whoever looks at the output."""
        seen: dict[str, int] = {}
        for node in self.cluster.dev.nodes:
            for view in self.cluster.views(node, self._began):
                step = f"{view['state']} by rule {view['rule']}"
                seen[step] = seen.get(step, 0) + 1
        offset = time.monotonic() - self.world.now
        cuts = [f"{at - offset:7.2f}  {what}" for at, what in self.cuts.story if at >= offset]
        states = ", ".join(f"{step} ({count})" for step, count in sorted(seen.items()))
        counts = ", ".join(f"{name} {count}" for name, count in self.history.counts().items())
        return (
            "\n".join(cuts)
            + f"\nviews: {states}\n{counts}\nerrors: {dict(self.scene.faults)}"
            + f"\ndrained {self.drained_after:.1f} s after the last heal"
        )

"""A stage for plays: a cluster whose network is cut as somebody says, and clients who sit where they are told to.

What is played there stands in `partition_plays.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from simulation.clients import Client, Receiving, Scene
from simulation.holding import replica_of
from simulation.partition_faults import PartitionWeather
from simulation.partition_story import PartedHistory
from simulation.play import PORT
from simulation.supervisor import Supervisor

# As long as it takes until every part has found together and is at work.
SETTLED_SECONDS: Final = 2.0
# How long those take to notice a cut who go on as if nothing had happened, and the others: from, to.
_LATE: Final = (1.4, 1.6)
_SOON: Final = (0.02, 0.05)
# How often somebody looks who lies in wait for a moment, and how long at most.
_LOOK_SECONDS: Final = 0.0005
_PATIENCE_SECONDS: Final = 4.0
_TOPIC: Final = "topic:news"
Acts = Iterator[float]
"""What is done one after the other; each number is a pause in seconds."""


class PartitionStage(PartitionWeather):
    """One play at a time."""

    is_playing = False
    _has_newcomer = False

    def _play(self, acts: Acts) -> bool:
        if self.is_playing:
            return False
        self.is_playing = True
        self._go_on(acts)
        return True

    def _go_on(self, acts: Acts) -> None:
        pause = None if self._is_over else next(acts, None)
        if pause is None:
            self._network.notices.clear()
            self.is_playing = False
        else:
            self.world.after(pause, partial(self._go_on, acts))

    @property
    def _clerks(self) -> list[int]:
        """Client managers, in any order."""
        hosts = [host for host in self.desks if host]
        return self.dice.sample(hosts, len(hosts))

    def _leading(self) -> list[int]:
        return [host for host in self._managers() if _leads(self._at(host))]

    def _managers(self) -> list[int]:
        return [host for host in self._network.hosts if replica_of(self._at(host)) is not None]

    def _at(self, host: int) -> Supervisor:
        return self._supervisors[host - 1]

    def _crew(self) -> tuple[int, list[int], list[int]] | None:
        """Who leads, the other message managers, and the client managers; if it is one."""
        leading = self._leading()
        if len(leading) != 1:
            return None
        others = [host for host in self._managers() if host not in leading]
        return leading[0], self.dice.sample(others, len(others)), self._clerks

    def _named(self, name: str) -> Client:
        return next(client for client in self._clients if client.name == name)

    def _seat(self, name: str, host: int, seconds: float) -> None:
        """Its life ends, and the next begins after so long beside a node; 0: where it reaches all of them."""
        client = self._named(name)
        if client.process is not None and client.process.is_alive:
            client.process.kill()
        client.machine = self.desks[host]
        client.urls = (f"helio://node{host}:{PORT}",) if host else client.scene.urls
        self.world.after(seconds, partial(_come, client))

    def _cut_unnoticed(self, ours: Sequence[int], *others: Sequence[int]) -> None:
        """The first part goes on for a while as if nothing had happened; the others know at once."""
        ring = self._network.hosts[ours[0]].ring
        self._network.notices.clear()
        self._network.notices.update(dict.fromkeys(ours, _LATE))
        self._network.notices.update(dict.fromkeys([host for part in others for host in part], _SOON))
        self.cuts.cut_into([ours, *others])
        if ring.is_broken:
            ring.token_at = ours[0]

    def _until(self, is_time: Callable[[], bool]) -> Acts:
        end = self.world.now + _PATIENCE_SECONDS
        while not is_time() and self.world.now < end:
            yield _LOOK_SECONDS

    def _chase(self, name: str, part: Sequence[int]) -> Acts:
        """Its connection breaks until it has one to a part."""
        client, end = self._named(name), self.world.now + _PATIENCE_SECONDS
        while self._beside(client) not in part and self.world.now < end:
            if (transport := client.transport) is not None and not transport.is_broken:
                transport.reset_here()
            yield 0.05

    def _beside(self, client: Client) -> int:
        """The node that it is connected to; 0: none."""
        transport = client.transport
        if transport is None or transport.is_broken:
            return 0
        return int(str(transport.get_extra_info("peername")[0]).removeprefix("node"))

    def _is_given_unconfirmed(self) -> bool:
        """A message of the present life of `many` is with somebody, and its sender does not know that it is safe."""
        history, life = self._clients[0].history, self._named("many").life
        return any(
            (sent.destination, sent.key) in history.by_place
            for sent in history.sent.values()
            if sent.producer == life and not sent.confirmed_at and not sent.may_be_lost
        )

    def _end(self) -> Acts:
        self._network.notices.clear()
        self.cuts.heal()
        yield SETTLED_SECONDS

    def _seat_newcomer(self, name: str, host: int) -> None:
        """A durable subscriber that there was not before."""
        newcomer = Receiving(self._scene, self.desks[host], name, _TOPIC, mode="individual", durable="news")
        newcomer.urls = (f"helio://node{host}:{PORT}",)
        self._parted.audiences.setdefault(_TOPIC, []).append(newcomer.place)
        self._admit(newcomer)

    def _admit(self, newcomer: Client) -> None:
        self._has_newcomer = True
        self._clients.append(newcomer)
        self._parted.clients[newcomer.name] = newcomer
        newcomer.start()

    @property
    def _scene(self) -> Scene:
        return self._clients[0].scene

    def _is_for(self, name: str) -> bool:
        """Whether it has subscribed: what is sent from now on must come to it."""
        place = f"{_TOPIC}/{name}"
        if place not in self._scene.subscribed:
            return False
        self._parted.since[place] = self.world.now
        self._parted.subscriptions[_TOPIC].append(place)
        return True

    @property
    def _parted(self) -> PartedHistory:
        history = self._clients[0].history
        assert isinstance(history, PartedHistory)
        return history

    def _has_unsettled(self, name: str) -> bool:
        life = self._named(name).life
        found = (each for each in reversed(self._parted.hand_outs) if each.consumer == life)
        last = next(found, None)
        return last is not None and not last.settled_at and not last.was_returned

    def _is_given_since(self, name: str, moment: float) -> bool:
        life = self._named(name).life
        return any(each.consumer == life and each.at > moment for each in reversed(self._parted.hand_outs))

    def _break_for(self, name: str) -> None:
        transport = self._named(name).transport
        if transport is not None and not transport.is_broken:
            transport.reset_here()

    def _mute(self, name: str) -> None:
        """What it says from now on is not heard."""
        transport = self._named(name).transport
        if transport is not None:
            transport.is_silent = True

    def _deafen(self, name: str) -> Acts:
        """What it is given now it never gets."""
        transport = self._named(name).transport
        if transport is not None and transport.peer is not None:
            transport.peer.is_silent = True
            yield self.world.between(0.2, 0.6)
            transport.reset_here()

    def _freeze(self, name: str, action: Callable[[], None], seconds: float) -> Acts:
        """It stops, and is given more than it takes; then something happens, and it goes on."""
        process = self._named(name).process
        if process is None:
            return
        process.loop.stop()
        yield self.world.between(0.1, 0.4)
        action()
        yield seconds
        process.loop.resume()
        yield 0.005

    def _have_met(self, one: int, other: int, since: float) -> bool:
        nodes = (f"node{one}", f"node{other}")
        return any(
            view.since > since and all(node in view.nodes for node in nodes)
            for view in self._watch.views.values()
        )

    def _promising(self) -> list[int]:
        """Who leads where a transaction is prepared that another sub-cluster decides about."""
        return [
            host
            for host in self._leading()
            if (replica := replica_of(self._at(host))) is not None
            and any(
                not each.record.decides for each in replica.manager.catalogue.transactions.prepared.values()
            )
        ]

    def _at_next_commit(self) -> Acts:
        begun: list[Client] = []
        self._scene.at_next_commit.append(begun.append)
        yield from self._until(lambda: bool(begun))

    def _two_parts(self) -> tuple[list[int], list[int]] | None:
        """Who leads, a backup and two client managers; and the third of both, restricted."""
        crew = self._crew()
        if crew is None:
            return None
        first, (second, third), (one, two, three) = crew
        ours, theirs = [first, second, one, two], [third, three]
        self.cuts.cut_into([ours, theirs])
        return ours, theirs

    def _seat_consumers(self, here: int, there: int, seconds: float) -> None:
        """One of each queue that has two is seated here, the other there."""
        for name in ("one", "first"):
            self._seat(name, here, seconds)
        for name in ("two", "second"):
            self._seat(name, there, seconds)


def _leads(supervisor: Supervisor) -> bool:
    replica = replica_of(supervisor)
    return replica is not None and replica.is_leading


def _come(client: Client) -> None:
    if client.process is None or not client.process.is_alive:
        client.start()

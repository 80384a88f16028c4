"""Cuts that chance alone would bring about too rarely: each is a short play, of a few things that go wrong one after
the other, in a cluster that is whole and at work before. A play happens only if its name is asked for.

Clients are seated beside nodes for it. While nobody consumes from a queue its messages wait; who comes back to it in
a part that must not hand them out, and is given one, has what another part gave to somebody else.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from heliograph.client.producer import Producer
from simulation.clients import Client, Transacting
from simulation.history import Transaction
from simulation.partition_stage import SETTLED_SECONDS, Acts, PartitionStage

# The layout that each play needs.
LAYOUT_OF: Final = {
    "shrink": "five",
    "bring": "apart",
    "resend": "apart",
    "hold": "apart",
    "subscribe": "apart",
    "subscribe_there": "apart",
    "tear": "apart",
    "recommit": "apart",
    "forget": "apart",
    "skip": "apart",
    "roam": "apart",
    "blink": "apart",
    "stall": "apart",
    "bury": "apart",
    "grab": "apart",
    "carry": "apart",
    "smuggle": "apart",
    "greet": "apart",
    "orphan": "two sub-clusters",
}
_TARGETS: Final = ("queue:out", "queue:copies")
# Queues of several sub-clusters, whoever has which.
_ALL_OVER: Final = ("queue:out", "queue:copies", "queue:solo", "queue:many")


class PartitionPlays(PartitionStage):
    """All of them."""

    def _shrink(self) -> bool:
        """Five client managers become three, and these are cut: who leads has two of them and does not notice, the
        others have the third and the two who were away."""
        return self._play(self._shrinking())

    def _shrinking(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, others, (one, two, three, *away) = crew
        self.cuts.cut_into([[first, *others, one, two, three], away])
        yield SETTLED_SECONDS
        self._seat_consumers(one, three, 1.0)
        self._seat("many", two, 0.1)
        self._seat("ordered", two, 0.1)
        yield self.world.between(0.8, 1.0)
        self._cut_unnoticed([first, one, two], [*others, three, *away])
        yield 3.0
        yield from self._end()

    def _bring(self) -> bool:
        """A restricted part of two message managers is cut. One of them goes on in its view, and does not notice; the
        other brings what it accepted to the unrestricted part."""
        return self._play(self._bringing())

    def _bringing(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, others, (one, two, three) = crew
        self._seat_consumers(three, one, 3.3)
        self.cuts.cut_into([[first, one, two], [*others, three]])
        self._seat("many", three, 1.0)
        yield 3.2
        leading = [host for host in self._leading() if host != first]
        if leading:
            (second,) = leading
            (third,) = (host for host in others if host != second)
            self._cut_unnoticed([second, three], [first, one, two, third])
            yield 3.0
        yield from self._end()

    def _resend(self) -> bool:
        """Somebody loses its client manager before it hears that a message is safe, which is with a consumer
        already; and sends it again to another part."""
        return self._play(self._resending())

    def _resending(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, (second, third), (one, two, three) = crew
        ours, theirs = [first, second, one, two], [third, three]
        self._seat_consumers(one, three, 0.1)
        self._seat("many", 0, 0.1)
        yield 1.0
        yield from self._chase("many", ours)
        yield 1.0
        transport = self._named("many").transport
        if transport is not None and transport.peer is not None:
            transport.peer.is_silent = True  # it hears nothing any more, and is heard
            self.cuts.cut_into([ours, theirs])
            yield from self._until(self._is_given_unconfirmed)
            yield 0.7
            transport.reset_here()
            yield from self._chase("many", theirs)
            yield 1.5
        yield from self._end()

    def _hold(self) -> bool:
        """Who holds messages is cut off with its client manager, and settles them there."""
        return self._play(self._holding(lives=True))

    def _bury(self) -> bool:
        """And then it dies, and nobody else knows what it was through with."""
        return self._play(self._holding(lives=False))

    def _holding(self, *, lives: bool) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, (second, third), (one, two, three) = crew
        self._seat_consumers(three, one, 0.1)
        self._seat("many", two, 0.1)
        yield 1.5
        holder = self._named("one").process
        if holder is not None:
            holder.loop.stop()
            yield 0.4
            self.cuts.cut_into([[first, second, one, two], [third, three]])
            yield 0.5
            holder.loop.resume()
            yield 6.5 if lives else 1.5
            if not lives:
                self._seat("one", three, 9.0)
        yield from self._end()

    def _subscribe(self) -> bool:
        """Somebody subscribes in the unrestricted part to what the other publishes and all there are through with."""
        return self._play(self._subscribing(is_there=False))

    def _subscribe_there(self) -> bool:
        """The other way round."""
        return self._play(self._subscribing(is_there=True))

    def _subscribing(self, *, is_there: bool) -> Acts:
        parts = None if self._has_newcomer else self._two_parts()
        if parts is None:
            return
        (_, _, one, _), (_, three) = parts
        here, there = (three, one) if is_there else (one, three)
        for name in ("alice", "bob", "press"):
            self._seat(name, there, 0.1)
        yield SETTLED_SECONDS
        self._seat_newcomer("carol", here)
        yield from self._until(lambda: self._is_for("carol"))
        yield 4.0
        yield from self._end()

    def _tear(self) -> bool:
        """A unit of order waits for its consumer in one part, and goes on in the other."""
        return self._play(self._tearing())

    def _tearing(self) -> Acts:
        self._seat("ordered", 0, 0.1)
        self._seat("first", 0, 60.0)
        self._seat("second", 0, 60.0)
        yield 1.5
        parts = self._two_parts()
        if parts is not None:
            (_, _, one, _), (_, three) = parts
            self._seat("second", three, 0.5)
            self._seat("ordered", three, 1.0)
            self._seat("first", one, 3.0)
            yield 5.0
        else:
            self._seat("first", 0, 0.0)
            self._seat("second", 0, 0.0)
        yield from self._end()

    def _recommit(self) -> bool:
        """The parts part as somebody asks for a commit. The restricted one hears it, and its answer is lost; then
        the other is asked."""
        return self._play(self._recommitting())

    def _recommitting(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, (second, third), (one, two, three) = crew
        ours, theirs = [first, second, one, two], [third, three]
        if not self._has_newcomer:
            self._admit(Deliberate(self._scene, self.desks[0], "broker", ("queue:in",), _TARGETS))
        self._seat("clerk", two, 9.0)
        self._seat("out", two, 0.1)
        self._seat("copies", two, 0.1)
        yield 1.0
        yield from self._chase("broker", theirs)
        struck: list[Client] = []
        self._scene.at_next_commit.append(partial(self._cut_in_commit, [ours, theirs], struck))
        yield from self._until(lambda: bool(struck))
        yield 0.9
        transport = self._named("broker").transport
        if transport is not None:
            transport.reset_here()
        yield from self._chase("broker", ours)
        yield 2.0
        yield from self._end()

    def _cut_in_commit(self, parts: list[list[int]], struck: list[Client], client: Client) -> None:
        """What it is answered it does not hear."""
        transport = client.transport
        if client.name != "broker" or transport is None or transport.peer is None:
            self._scene.at_next_commit.append(partial(self._cut_in_commit, parts, struck))
            return
        struck.append(client)
        self.cuts.cut_into(parts)
        transport.peer.is_silent = True

    def _forget(self) -> bool:
        """A restricted part commits what began there, and its client asks the other part what became of it."""
        return self._play(self._forgetting())

    def _forgetting(self) -> Acts:
        parts = self._two_parts()
        if parts is None:
            return
        ours, theirs = parts
        self._seat("works", theirs[1], 1.5)
        self._seat("clerk", 0, 1.0)
        yield SETTLED_SECONDS
        yield from self._chase("clerk", theirs)
        for _ in range(5):
            yield from self._at_next_commit()
            yield self.world.between(0.001, 0.01)
            yield from self._chase("clerk", ours)
            yield 0.3
            yield from self._chase("clerk", theirs)
        yield from self._end()

    def _skip(self) -> bool:
        """Who publishes goes from one part to the other and back, and leaves behind what is confirmed there."""
        return self._play(self._skipping())

    def _skipping(self) -> Acts:
        parts = self._two_parts()
        if parts is None:
            return
        ours, theirs = parts
        self._seat("alice", ours[2], 0.1)
        self._seat("bob", theirs[1], 0.1)
        self._seat("press", 0, 0.1)
        yield SETTLED_SECONDS
        for part in (theirs, ours, theirs, ours):
            yield from self._chase("press", part)
            yield 1.0
        yield from self._end()

    def _roam(self) -> bool:
        """Consumers go from one part to the other and back, with what they have."""
        return self._play(self._roaming())

    def _roaming(self) -> Acts:
        roamers = ("alice", "one", "first", "solo")
        for name in roamers:
            self._seat(name, 0, 1.5)
        yield 1.2
        parts = self._two_parts()
        if parts is None:
            return
        ours, theirs = parts
        self._seat("many", theirs[1], 1.0)
        yield 1.0
        for part in (theirs, ours, theirs, ours):
            for name in roamers:
                yield from self._chase(name, part)
            yield self.world.between(0.3, 1.0)
        yield from self._end()

    def _grab(self) -> bool:
        """Who has something in a restricted part dies, and the parts meet."""
        return self._play(self._grabbing())

    def _grabbing(self) -> Acts:
        parts = self._two_parts()
        if parts is None:
            return
        ours, theirs = parts
        self._seat_consumers(theirs[1], ours[2], 0.1)
        self._seat("many", theirs[1], 1.0)
        yield 1.0
        yield from self._until(lambda: self._has_unsettled("one"))
        self._seat("one", theirs[1], 9.0)
        yield from self._end()

    def _carry(self) -> bool:
        """Who was given something in one part is through with it in another."""
        return self._play(self._carrying())

    def _carrying(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, (second, third), (one, two, three) = crew
        ours, theirs = [first, second, one, two], [third, three]
        yield from self._come_along(theirs, beside=two)
        yield from self._freeze("one", lambda: self.cuts.cut_into([ours, theirs]), 0.8)
        for part in (theirs, ours, theirs, ours):
            yield from self._chase("many", theirs)
            yield from self._chase("one", part)
            yield self.world.between(0.1, 0.8)
            yield from (self._deafen("one") if self.world.chance(0.5) else self._freeze("one", _nothing, 0.0))
        yield from self._end()

    def _smuggle(self) -> bool:
        """What somebody is through with in a restricted part is never heard there, and it asks the other part
        whether it is stored. Then it is gone, and whoever else consumes there gets what nobody has heard of."""
        return self._play(self._smuggling())

    def _smuggling(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, (second, third), (one, two, three) = crew
        ours, theirs = [first, second, one, two], [third, three]
        yield from self._come_along(theirs, beside=two)
        self._seat("many", three, 0.1)
        self.cuts.cut_into([ours, theirs])
        yield 1.0
        since = self.world.now
        yield from self._until(lambda: self._is_given_since("one", since))
        yield from self._freeze("one", partial(self._mute, "one"), 0.0)
        yield 0.1
        self._break_for("one")
        yield from self._chase("one", ours)
        yield 0.5
        self._seat("one", three, 9.0)
        yield from self._end()

    def _come_along(self, theirs: list[int], *, beside: int) -> Acts:
        """Who consumes from a queue is with those who will be cut off, and the other who does is not."""
        self._seat("one", 0, 0.1)
        self._seat("two", beside, 0.1)
        self._seat("many", 0, 0.1)
        yield 1.0
        yield from self._chase("one", theirs)
        yield 0.5

    def _greet(self) -> bool:
        """A subscriber begins a new life as the parts meet, in the other part than the last one."""
        return self._play(self._greeting())

    def _greeting(self) -> Acts:
        self._seat("alice", 0, 60.0)
        yield 1.0
        parts = self._two_parts()
        if parts is None:
            self._seat("alice", 0, 0.0)
            return
        (first, _, one, _), (third, three) = parts
        self._seat("alice", three, 0.5)
        self._seat("press", one, 0.1)
        yield 2.5
        self._seat("alice", one, 60.0)
        yield 0.1
        since = self.world.now
        self._supervisors[third - 1].machine.disk.is_slow = True
        self.cuts.heal()
        yield from self._until(lambda: self._have_met(first, third, since))
        self._seat("alice", one, 0.0)
        yield 2.0
        self._supervisors[third - 1].machine.disk.is_slow = False

    def _blink(self) -> bool:
        """Two client managers are cut off when they have heard what is handed out, and nobody has heard that they
        have."""
        return self._play(self._blinking())

    def _blinking(self) -> Acts:
        crew = self._crew()
        if crew is None:
            return
        first, others, (one, two, three) = crew
        self._seat_consumers(one, three, 0.1)
        self._seat("many", three, 0.2)
        self._seat("ordered", three, 0.2)
        yield 1.0
        for _ in range(5):
            count = len(self._watch.decisions)
            yield from self._until(lambda count=count: len(self._watch.decisions) > count)  # type: ignore[misc]
            yield self.world.between(0.0, 0.003)
            self._cut_unnoticed([one, two], [first, *others, three])
            yield 0.5
            yield from self._end()

    def _stall(self) -> bool:
        """Whoever leads stops until the others go on without it, and says then what it had to say."""
        return self._play(self._stalling())

    def _stalling(self) -> Acts:
        crew = self._crew()
        process = self._at(crew[0]).process if crew is not None else None
        if crew is None or process is None:
            return
        process.loop.slowness = 50.0
        yield self.world.between(0.1, 0.3)
        process.loop.stop()
        yield self.world.between(2.6, 3.2)
        process.loop.resume()
        process.loop.slowness = 1.0
        yield 1.5

    def _orphan(self) -> bool:
        """Sessions are lost while a transaction is prepared and whoever decides about it does not answer."""
        return self._play(self._orphaning())

    def _orphaning(self) -> Acts:
        if not self._has_newcomer:
            self._admit(Transacting(self._scene, self.desks[0], "broker", ("queue:in",), _ALL_OVER))
        yield from self._at_next_commit()
        yield from self._until(lambda: bool(self._promising()))
        promising = self._promising()
        stopped = [
            process
            for host in self._leading()
            if host not in promising and (process := self._at(host).process) is not None
        ]
        for process in stopped:
            process.loop.stop()
        for client in self.dice.sample(self._clients, 4):
            if not isinstance(client, Transacting) and (transport := client.transport) is not None:
                transport.reset_both()
        yield self.world.between(0.02, 0.2)
        for process in stopped:
            process.loop.resume()
        yield 0.5


def _nothing() -> None: ...


class Deliberate(Transacting):
    """Thinks it over before it commits: all that it sends is there before."""

    async def _send(self, transaction: Transaction, producers: list[Producer]) -> None:
        await super()._send(transaction, producers)
        await self.pause(0.3)

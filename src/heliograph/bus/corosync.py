"""The bus between hosts: one closed process group of Corosync per channel, driven by the event loop.

A membership goes through three states and never back: *entering* (commands are taken and wait), *in*, and *over*.
It is over after `leave`, when corosync ends, and when the order of deliveries has a gap, or something in it that
cannot be read; whoever wants to go on enters again and is somebody new.

Commands of one turn of the loop share a frame. When the library says "try again", what waits is tried again after the
next delivery or a moment later; nothing spins.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from heliograph.bus.assembling import GAP, Assembler
from heliograph.bus.commands import Command
from heliograph.bus.cpg import Address, CpgHandle, GroupCallbacks
from heliograph.bus.frames import FrameWriter
from heliograph.bus.interface import (
    INCARNATION_BYTES,
    Change,
    Configuration,
    Damage,
    Incarnation,
    Listener,
    Place,
    Reason,
    Ring,
    Stamp,
)
from heliograph.bus.namespaces import inside
from heliograph.bus.outgoing import Outgoing
from heliograph.model.errors import ProtocolFault, Unavailable
from heliograph.model.limits import (
    BUS_DELIVERIES_PER_TURN,
    BUS_RETRY_SECONDS,
    BUS_SENDS_PER_TURN,
    MAX_CHANNEL_BYTES,
)

_REASONS: Final = {
    1: Reason.ENTERED,
    2: Reason.LEFT,
    3: Reason.HOST_LOST,
    4: Reason.HOST_FOUND,
    5: Reason.DIED,
}
# Reasons for which the library goes on to say which ring there is now.
_WITH_THE_RING: Final = (3, 4)
_NO_RING: Final = Ring(0, 0)


class Pending(Protocol):
    """Something that a loop was asked to do."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """As much of an event loop as is needed here: asyncio's, or the simulation's."""

    def call_soon(self, callback: Callable[[], Any]) -> Pending: ...

    def call_later(self, delay: float, callback: Callable[[], Any]) -> Pending: ...

    def add_reader(self, fd: int, callback: Callable[[], Any]) -> None: ...

    def remove_reader(self, fd: int) -> Any: ...


class Group(Protocol):
    """A connection to the local corosync, see `cpg.py`; or to a simulated one."""

    @property
    def descriptor(self) -> int: ...

    @property
    def node(self) -> int: ...

    def join(self) -> bool: ...

    def leave(self) -> bool: ...

    def multicast(self, message: bytearray) -> bool: ...

    def dispatch_one(self) -> bool: ...

    def take_failure(self) -> BaseException | None: ...

    def close(self) -> None: ...


class CorosyncBus:
    """The corosync of this host, or the one in a network namespace of it. A process enters a channel once at a time;
    the nodes in it share that membership."""

    def __init__(self, loop: Loop, namespace: str = "") -> None:
        self._loop = loop
        self._namespace = namespace

    @staticmethod
    def check(namespace: str = "") -> None:
        """Raises Unavailable `bus-unavailable`, with a sentence, if no channel can be entered now."""
        with inside(namespace):
            CpgHandle.check()

    @staticmethod
    def check_library() -> None:
        """Raises Unavailable `bus-unavailable`, if this machine lacks what any corosync needs here."""
        CpgHandle.check_library()

    def enter(self, channel: str, listener: Listener) -> CorosyncMembership:
        """Raises Unavailable `bus-unavailable`."""
        assert 0 < len(channel.encode()) <= MAX_CHANNEL_BYTES, f"a channel cannot be called {channel!r}"
        incarnation = Incarnation(secrets.token_bytes(INCARNATION_BYTES))
        connect = partial(CpgHandle, channel)
        with inside(self._namespace):
            return CorosyncMembership(
                self._loop, listener, connect, incarnation=incarnation, process=os.getpid()
            )


class CorosyncMembership:
    """This process in one channel."""

    def __init__(
        self,
        loop: Loop,
        listener: Listener,
        connect: Callable[[GroupCallbacks], Group],
        *,
        incarnation: Incarnation,
        process: int,
    ) -> None:
        self.incarnation = incarnation
        self.heard_bytes = 0
        self._loop = loop
        self._listener = listener
        self._writer = FrameWriter(self.incarnation)
        self._outgoing = Outgoing()
        self._assembler = Assembler()
        self._ring: Ring | None = None
        self._members: tuple[Place, ...] = ()
        self._written_for = _NO_RING
        self._held: Configuration | None = None  # until the library says on which ring it is
        self._has_joined = False  # the library took our wish to be in
        self._is_in = False  # and the group has heard of it
        self._is_leaving = False
        self._has_left = False
        self._is_over = False
        self._flow_told = True
        self._turn: Pending | None = None
        self._retry: Pending | None = None
        self._handle = connect(self)
        self.place = Place(self._handle.node, process)
        self._descriptor = self._handle.descriptor
        loop.add_reader(self._descriptor, self._readable)
        self._ask_turn()

    # ---- what a member does

    @property
    def may_send(self) -> bool:
        return self._outgoing.may_send and not self._is_over and not self._is_leaving

    def multicast(self, command: Command) -> None:
        if self._is_over or self._is_leaving:
            raise Unavailable("this member is no longer in the channel", code="bus-lost")
        self._outgoing.check_room()
        self._outgoing.add(self._writer.add(command))
        self._ask_turn()

    def restamp(self, stamp: Stamp) -> None:
        self._outgoing.add(self._writer.restamp(stamp))

    def leave(self) -> None:
        self._is_leaving = True
        self._ask_turn()

    # ---- sending

    def _ask_turn(self) -> None:
        if self._turn is None and not self._is_over:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """The end of a turn of the loop: what was said in it becomes a frame, and as much as fits is sent."""
        self._turn = None
        if self._is_over:
            return
        try:
            self._outgoing.add(self._writer.seal())
            self._advance()
        except Unavailable as error:
            self._end(error)
        else:
            self._tell_flow()

    def _advance(self) -> None:
        if not self._has_joined:
            self._has_joined = self._handle.join()
            if not self._has_joined:
                self._retry_later()
        elif self._is_in and self._outgoing:
            self._send()
        elif self._is_in and self._is_leaving and not self._has_left:
            self._has_left = self._handle.leave()
            if not self._has_left:
                self._retry_later()

    def _send(self) -> None:
        outgoing = self._outgoing
        for _ in range(BUS_SENDS_PER_TURN):
            if not outgoing:
                break
            if not self._handle.multicast(outgoing.first()):
                self._retry_later()
                return
            outgoing.sent()
        if outgoing or self._is_leaving:
            self._ask_turn()

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(BUS_RETRY_SECONDS, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._ask_turn()

    def _tell_flow(self) -> None:
        """Told at the end of a turn, so that nobody is called from inside their own call."""
        may_send = self._outgoing.may_send
        if may_send is not self._flow_told:
            self._flow_told = may_send
            self._listener.on_flow(may_send)

    # ---- receiving

    def _readable(self) -> None:
        failure, handle = None, self._handle
        try:
            for _ in range(BUS_DELIVERIES_PER_TURN):
                was_there = handle.dispatch_one()
                failure = handle.take_failure()
                if not was_there or failure is not None or self._is_over:
                    break
        except Unavailable as error:
            self._end(error)
        if failure is not None:
            raise failure  # a bug of the listener: the loop reports it
        if self._outgoing or self._is_leaving:  # deliveries make room
            self._ask_turn()

    def delivered(self, node: int, process: int, message: memoryview) -> None:
        if self._held is not None and self._ring is not None:  # not expected; the order is what counts
            self._configured(self._held)
        if self._is_over or not self._is_in:
            return
        self.heard_bytes += len(message)
        place = Place(node, process)
        try:
            frame = self._assembler.receive(place, message)
        except ProtocolFault as fault:
            self._listener.on_damage(Damage(place, fault.code, fault.sentence))
            return
        except Unavailable as gap:
            if gap.code != GAP:  # it was heard, and not understood
                self._listener.on_damage(Damage(place, gap.code, gap.sentence))
            self._end(gap)
            return
        if frame is not None:
            self._listener.on_frame(*frame)

    def group_changed(self, members: list[Address], left: list[Address], joined: list[Address]) -> None:
        """When the ring changes, the library says first who was lost, then who was found, and then, with nothing
        between, which ring it is: that is one configuration. On entering it is the same."""
        if self._is_over:
            return
        places = tuple(sorted(Place(node, process) for node, process, _ in members))
        if self.place not in places:
            if self._is_in:
                self._end(None if self._has_left else Unavailable("the group dropped us", code="bus-lost"))
            return
        changes = _changes(joined), _changes(left)
        if self._held is not None:
            changes = self._held.joined + changes[0], self._held.left + changes[1]
        self._held = Configuration(self._ring or _NO_RING, places, *changes)
        if self._ring is not None and not any(reason in _WITH_THE_RING for *_, reason in (*left, *joined)):
            self._configured(self._held)

    def ring_changed(self, node: int, sequence: int) -> None:
        ring = Ring(node, sequence)
        if self._is_over or (ring == self._ring and self._held is None):
            return
        self._ring = ring
        if self._held is not None:
            self._configured(msgspec.structs.replace(self._held, ring=ring))
        elif self._is_in:
            self._configured(Configuration(ring, self._members))

    def _configured(self, configuration: Configuration) -> None:
        self._held = None
        self._members = configuration.members
        if configuration.ring != self._written_for:
            self._written_for = configuration.ring
            self._outgoing.add(self._writer.change_ring(configuration.ring))
        if not self._is_in:
            self._is_in = True
            self._ask_turn()
        self._assembler.configured(configuration)
        self._listener.on_configuration(configuration)

    # ---- the end

    def _end(self, error: Unavailable | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._loop.remove_reader(self._descriptor)
        for pending in (self._turn, self._retry):
            if pending is not None:
                pending.cancel()
        # The library may be in the middle of a dispatch: it is let go when that has returned.
        self._loop.call_soon(self._handle.close)
        self._listener.on_ended(error)


def _changes(addresses: Iterable[Address]) -> tuple[Change, ...]:
    return tuple(
        Change(Place(node, process), _REASONS.get(reason, Reason.UNKNOWN))
        for node, process, reason in addresses
    )

"""The contract of every bus: totally ordered, atomic, self-delivering multicast among nodes (M2).

Two faces. `Bus` is what the nodes of one process see: commands in one order, nothing else. `ChannelBus` is what a
cluster is built on: named channels, each with its members, where every delivery says who sent it and changes
of the membership stand in the same order as the commands.

What a channel promises, and no more (docs/reference/bus.md):

- Members that go from one configuration to the next together have delivered the same frames in the first, in the
  same order. A sender delivers its own frames in that order too.
- Frames of one sender arrive in the order in which it sent them, without a gap; a gap ends the membership.
- The parts of a cut each get a configuration of their own, and may have delivered different tails of the last one.
- A frame that was accepted and not yet ordered is delivered in the next configuration.
- That a frame was delivered here says nothing about whether it was delivered elsewhere.
- Several configurations may follow one another with no frame between, and one may repeat the members of the last.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Final, NewType, Protocol

import msgspec

from heliograph.bus.commands import Command
from heliograph.model.errors import Unavailable

Receiver = Callable[[Command], None]

Incarnation = NewType("Incarnation", bytes)
"""Who a member is, from one `enter` to its end: 16 bytes, never used again. Node and process numbers are."""

Stamp = NewType("Stamp", bytes)
"""The view that was installed at the sender when it sent: the bus carries it and gives it no meaning."""

INCARNATION_BYTES: Final = 16
STAMP_BYTES: Final = 24
NO_VIEW: Final = Stamp(bytes(STAMP_BYTES))


class Bus(Protocol):
    """Every member receives every command, the sender's own included, in one order that is the same for
    all.

    A member that names the kinds it acts upon is not called for the others.
    """

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None: ...

    def multicast(self, command: Command) -> None: ...


class Reason(enum.StrEnum):
    """Why a member came or went, as far as the bus can know."""

    ENTERED = "entered"
    LEFT = "left"
    DIED = "died"  # its process ended without a goodbye
    HOST_LOST = "host-lost"  # its host stopped, or the network between us did
    HOST_FOUND = "host-found"  # a cut healed
    UNKNOWN = "unknown"


class Place(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True):
    """Where a member runs. Numbers come again after a restart; an incarnation does not."""

    node: int
    process: int


class Change(msgspec.Struct, frozen=True, gc=False):
    """One member that came or went."""

    place: Place
    reason: Reason


class Ring(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True):
    """The ring below the channel. A new one is a new configuration, even of the same members."""

    node: int
    sequence: int


class Configuration(msgspec.Struct, frozen=True):
    """Who is in the channel from here on, in the order of deliveries. Members are sorted."""

    ring: Ring
    members: tuple[Place, ...]
    joined: tuple[Change, ...] = ()
    left: tuple[Change, ...] = ()


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Who sent a frame, its number among that sender's frames, and the view it was sent in."""

    place: Place
    incarnation: Incarnation
    sequence: int
    stamp: Stamp


class Damage(msgspec.Struct, frozen=True, gc=False):
    """Bytes that came on the channel and were not understood. They were ignored, unless a member said them: then the
    membership is over."""

    place: Place
    code: str
    sentence: str


class Listener(Protocol):
    """A member, as the bus sees it. It is called from the event loop only, and never while it is in a call
    from the bus already."""

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        """What a member sent in one go."""

    def on_configuration(self, configuration: Configuration) -> None: ...

    def on_flow(self, may_send: bool) -> None:
        """The bus is behind with what it was given, or no longer is."""

    def on_damage(self, damage: Damage) -> None: ...

    def on_ended(self, error: Unavailable | None) -> None:
        """The membership is over: after `leave`, or because of an error. What was given to the bus and not delivered
        back may have reached the others or not. Whoever wants to go on enters again, as somebody new."""


class Membership(Protocol):
    """A member's hold on a channel."""

    @property
    def place(self) -> Place: ...

    @property
    def incarnation(self) -> Incarnation: ...

    @property
    def may_send(self) -> bool:
        """False while more waits than is good. A member that goes on all the same meets `bus-full`."""

    @property
    def heard_bytes(self) -> int:
        """What was delivered here, of all members, headers included: what the bus carried. 0 where nothing leaves
        the process."""

    def multicast(self, command: Command) -> None:
        """Nothing takes effect now; it does when it is delivered. Raises Unavailable, and has then taken nothing:
        `bus-full`, or `bus-lost` when the membership is over."""

    def restamp(self, stamp: Stamp) -> None:
        """What is sent from now on carries this stamp; what was sent before keeps the one it had."""

    def leave(self) -> None:
        """Send what waits, then go. `on_ended` says when that is done."""


class ChannelBus(Protocol):
    """A bus with channels. The first thing a listener hears is a configuration that it is a member of."""

    def enter(self, channel: str, listener: Listener) -> Membership:
        """Raises Unavailable `bus-unavailable` if there is no bus to enter."""

"""What members of a channel on several buses say to one another, so that it is one channel (docs/decisions/0023).

None of it reaches the listeners: these words are heard by the engines of this room and by nobody else.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from heliograph.bus.commands import Command
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place, Reason

MARK_BYTES: Final = 8
# Reasons after which a member is nowhere else.
ENDINGS: Final = (Reason.LEFT, Reason.DIED)
_encode = msgspec.msgpack.Encoder().encode


def mark_of(configuration: Configuration) -> bytes:
    """Names a configuration of one bus, the same for all who were told of it."""
    told = _encode((configuration.ring, configuration.members))
    return hashlib.blake2b(told, digest_size=MARK_BYTES).digest()


class Outer(msgspec.Struct, frozen=True, array_like=True):
    """An outer member as its relay states it. `last`: the number of its last frame that was relayed."""

    place: Place
    incarnation: Incarnation
    last: int
    is_new: bool


class Related(msgspec.Struct, frozen=True, array_like=True):
    """An outer member as everybody on the home bus knows it."""

    bus: str
    outer: Outer
    relay: Place


class Acquaintance(msgspec.Struct, frozen=True, array_like=True):
    """What a newcomer on the home bus must know: how things stood in the configuration that it came with."""

    outers: tuple[Related, ...]
    centrals: tuple[Place, ...]
    chain: bytes
    mark: bytes
    configuration: Configuration


# ---- on the home bus


class Introduced(Command):
    """I am here, on all buses or on this one. `is_new`: tell me how things stood in this configuration of the bus."""

    configuration: bytes
    is_central: bool
    is_new: bool


class Acquainted(Command):
    """How things stood, for one newcomer. None: it came at a time that nobody here remembers."""

    newcomer: Incarnation
    state: Acquaintance | None


class Relayed(Command):
    """What an outer member said on its bus. It counts in this configuration of the home bus or not at all."""

    configuration: bytes
    origin: Origin
    commands: list[Command]


class OutersStated(Command):
    """Who is on another bus, as the relay there has heard: from here on they are members through it.

    `gone`: those who no longer are, and why. It counts in this configuration of the home bus or not at all.
    """

    configuration: bytes
    bus: str
    outers: tuple[Outer, ...]
    gone: tuple[tuple[Incarnation, Reason], ...]


# ---- on the other buses


class Present(Command):
    """I am on this bus. A central member is on the home bus too, and there at the place `home`.

    Of an outer member: `mark` as in `Followed`, empty if it is not in the channel yet; `owes`: something that it said
    before has no place in the order yet. `leader` is whom it follows.
    """

    is_central: bool
    home: Place | None
    mark: bytes
    owes: bool
    leader: Incarnation


class Lead(Command):
    """I want to be the relay between this bus and the home bus.

    Either in this configuration, where nobody leads yet, or `instead` of somebody who leads and cannot. `chain` says
    up to where the order was echoed; without it, as far as everybody on the bus has heard. `lineage` names all who
    led before; empty: what was echoed before does not count.
    """

    configuration: bytes
    instead: bytes
    chain: bytes
    lineage: bytes
    home: Place


class Follows(Command):
    """I have heard that you lead: I will follow nobody who has not."""

    lead: bytes


class Echoed(Command):
    """The next in the order of the channel: a frame. One that was heard on this bus is echoed by its number alone."""

    chain: bytes
    origin: Origin
    is_heard: bool
    commands: list[Command]


class ConfigurationEchoed(Command):
    """The next in the order: a configuration. `before` is the chain up to here; `admitted`: outer members who came
    with it."""

    before: bytes
    chain: bytes
    mark: bytes
    configuration: Configuration
    admitted: tuple[Incarnation, ...]


class Followed(Command):
    """I have delivered the configuration of this mark: what I said before may be ordered in it."""

    mark: bytes


HomeWord = Introduced | Acquainted | Relayed | OutersStated
OuterWord = Present | Lead | Follows | Echoed | ConfigurationEchoed | Followed
HOME_WORDS: Final = (Introduced, Acquainted, Relayed, OutersStated)
OUTER_WORDS: Final = (Present, Lead, Follows, Echoed, ConfigurationEchoed, Followed)


# ---- the order of the channel, as the engines hand it on


class Frame(msgspec.Struct, frozen=True, gc=False):
    """`chain` names this place in the order and everything before it."""

    chain: bytes
    origin: Origin
    commands: list[Command]


class Configured(msgspec.Struct, frozen=True):
    """`before`: the chain up to here; `mark`: of the last configuration that came from the home bus itself."""

    before: bytes
    chain: bytes
    mark: bytes
    configuration: Configuration
    admitted: tuple[Incarnation, ...] = ()


Event = Frame | Configured


def chained(chain: bytes, origin: Origin) -> bytes:
    content = chain + origin.incarnation + origin.sequence.to_bytes(8, "little")
    return hashlib.blake2b(content, digest_size=MARK_BYTES).digest()


def lineage_after(lineage: bytes, lead: bytes) -> bytes:
    return hashlib.blake2b(lineage + lead, digest_size=MARK_BYTES).digest()


def chained_configuration(chain: bytes, configuration: Configuration) -> bytes:
    content = chain + _encode((configuration.ring, configuration.members))
    return hashlib.blake2b(content, digest_size=MARK_BYTES).digest()


# ---- what the engines want done


class Deliver(msgspec.Struct, frozen=True):
    """To the listener, and to the other buses."""

    event: Event


class SayHome(msgspec.Struct, frozen=True):
    word: Command


class SayOuter(msgspec.Struct, frozen=True):
    word: Command


class End(msgspec.Struct, frozen=True):
    """This member's order is no longer everybody's: it leaves, and comes again as somebody new."""

    code: str
    sentence: str


Effect = Deliver | SayHome | SayOuter | End

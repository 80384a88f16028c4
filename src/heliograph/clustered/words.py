"""What members of a clustered consumer say to each other on the control topic.

A word is a MessagePack array that begins with its kind; fields are appended and never reordered, and a kind
that is not known is passed over, so that members of different versions work together. Words that tell a state
(`Beat`, `View`) are repeated and may be lost. `Done` counts: whoever misses one knows by its number, and
begins again as a new member.
"""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.clustered.hashing import HASH_VERSION
from heliograph.clustered.ranges import Assignment, Slice

MemberKey = tuple[str, int]
"""A member's name and its incarnation: the milliseconds since 1970 when it started."""
Lineage = tuple[int, str, int]
"""Names the view with which a lineage began (`completeness.py`): its epoch, and its leader's name and incarnation."""
NO_LINEAGE: Lineage = (0, "", 0)


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """Somebody is there; everything it has to say about itself."""

    name: str
    incarnation: int
    sent: float
    """On its own clock: when it hears this beat itself, its lease lasts from here."""
    epoch: int = 0
    leader: MemberKey = ("", 0)
    """Epoch and leader name the view that it has adopted; epoch 0: none."""
    has_released: bool = False
    """It acts on nothing, and never will in this view, that the view gives to others."""
    is_ready: bool = False
    """Its copies are subscribed."""
    is_leaving: bool = False
    is_gone: bool = False
    """The last word: it has drained."""
    weight: int = 1
    settled: tuple[str, ...] = ()
    """Said no more: a name says nothing of an incarnation. See `found`."""
    done: int = 0
    """How many words `Done` it has said."""
    hash_version: int = HASH_VERSION
    lineage: Lineage = NO_LINEAGE
    """Of the view that it has adopted; what follows holds in this lineage."""
    is_clean: bool = False
    """Its copies hold nothing that complete members have not."""
    found: tuple[MemberKey, ...] = ()
    """Members who have everything of this one's that is not done."""
    apart: int = 0
    """The last epoch of another cluster, in which it acted and which it gave up for this one: nobody here has heard
    what was done there."""
    terms: str = ""
    fields: str = ""
    mode: str = ""
    """What all members must have been told alike, in words (`agreement.py`)."""

    @property
    def key(self) -> MemberKey:
        return self.name, self.incarnation


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A member as a view has it."""

    name: str
    incarnation: int
    weight: int = 1
    is_complete: bool = False
    """It holds, or will be delivered, all that is not done, but for what members have that are not clean."""

    @property
    def key(self) -> MemberKey:
        return self.name, self.incarnation


class View(msgspec.Struct, frozen=True, array_like=True, tag="view"):
    """Who is in, the oldest first, and who owns what, from a leader that counts itself in."""

    epoch: int
    leader: MemberKey
    members: tuple[Member, ...]
    slices: tuple[Slice, ...]
    departed: tuple[str, ...] = ()
    """Names whose old copies hold nothing that the members have not: who comes back under one begins afresh."""
    is_founding: bool = False
    lineage: Lineage = NO_LINEAGE
    greeted: tuple[MemberKey, ...] = ()
    """Who knocks, as the leader has heard: only they may go by `departed`. Said when all members have adopted the
    view, so that no other leader can think differently of who is gone."""

    @property
    def assignment(self) -> Assignment:
        return Assignment(self.slices)

    def member(self, key: MemberKey) -> Member | None:
        return next((member for member in self.members if member.key == key), None)


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """These messages are processed: everybody may let go of them."""

    name: str
    incarnation: int
    number: int
    ids: list[str]
    results: list[bytes | None] = []
    """What came of them (H3), in the same order; empty if nobody shares results."""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """I have kept these for long: what about them? To their owner."""

    name: str
    to: str
    ids: list[str]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """These are done; these I have never seen: send them."""

    name: str
    to: str
    done: list[str]
    wanted: list[str]


class Copy(msgspec.Struct, frozen=True, array_like=True, tag="copy"):
    """A message that its owner has never seen."""

    name: str
    to: str
    id: str
    value: int
    body: bytes
    fields: dict[str, Any]


class Piece(msgspec.Struct, frozen=True, array_like=True, tag="piece"):
    """A part of an encoded word `Copy` that is too large for some middleware; its parts follow each other."""

    name: str
    to: str
    id: str
    number: int
    count: int
    raw: bytes


Word = Beat | View | Done | Ask | Answer | Copy | Piece
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def encoded(word: Word) -> bytes:
    return _encoder.encode(word)


def decoded(raw: bytes) -> Word | None:
    """None for what is no word of ours, or of a kind that came later."""
    try:
        return _decoder.decode(raw)
    except msgspec.MsgspecError:
        return None

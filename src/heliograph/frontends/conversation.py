"""What all conversations have in common, whatever the protocol: what a peer's bytes amount to, and what the
shell that owns the socket may ask of a conversation.

    bytes ──receive──▶ happenings ──▶ shell ──▶ session ──▶ effects ──tell──▶ bytes, and more happenings

A conversation never touches a socket, and nothing that a peer sends makes an exception leave it. The
happenings that `tell`, `say` and the others return are carried out after all that were returned before, in order. A
command among them may bring something to be told at once; its bytes come behind those that are to be said before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from heliograph.frontends.native import frames
from heliograph.model.errors import HeliographError
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect

Parts = list[bytes | memoryview]


class Happening(msgspec.Struct, gc=False):
    """What a peer's bytes amount to."""


class Greeted(Happening):
    """The peer said who it is; the shell finds out whether that is so, perhaps by `challenge`, and calls `admit` or
    `break_off`."""

    hello: frames.Hello


class Wondered(Happening):
    """The peer wants to know in which ways it may say who it is; the shell calls `offer`."""


class Responded(Happening):
    """The peer answered the challenge."""

    data: bytes


class Commanded(Happening):
    """A command for session `number`."""

    number: int
    command: commands.AnyCommand


class Requested(Happening):
    """Something about the connection itself: sessions opened and closed, questions."""

    message: frames.OpenSession | frames.CloseSession | frames.Ask


class Left(Happening):
    """The peer said goodbye."""

    code: str


class Broken(Happening, gc=True):  # an error may refer to all that was going on
    """The peer broke the protocol. `farewell` is to be sent before the connection is closed."""

    error: HeliographError
    farewell: bytes


class Answered(Happening):
    """The peer is told something at once, without anybody else being asked."""

    data: bytes


class Recognised(Happening):
    """It is known what the peer speaks. `rest` is what it has said so far, for the conversation in that
    protocol."""

    conversation: Conversation
    rest: bytes


class Encrypted(Happening):
    """The peer speaks TLS; `heard` is what it has said so far. Within, everything begins anew."""

    heard: bytes


class Claimed(Happening):
    """The client has a name that only one connection has at a time; whoever has it now has to go. Answered by
    `claimed`. Who has none gets one."""

    name: str


class Named(Happening):
    """The client said what it is called, to which durable subscriptions belong. `sole`: nobody else may be called so
    at the same time, and the newcomer has to go."""

    name: str
    sole: bool


class Keepsake(msgspec.Struct):
    """What a conversation leaves for the next of the same name, for so many seconds; then these durable
    subscriptions end. `is_for_ever`: they never do by themselves."""

    content: Any
    seconds: float
    subscriptions: list[str] = []
    is_for_ever: bool = False


AnyHappening = (
    Greeted
    | Wondered
    | Responded
    | Commanded
    | Requested
    | Left
    | Broken
    | Answered
    | Recognised
    | Encrypted
    | Claimed
    | Named
)
NOTHING: Sequence[AnyHappening] = ()


class Conversation:
    """One connection, in one protocol. What a protocol has nothing to say to stays as it is here."""

    __slots__ = ()

    @property
    def is_open(self) -> bool:
        """The peer was admitted, and everything is ready for it."""
        return False

    @property
    def is_waiting(self) -> bool:
        """It has to be heard by and by: nothing is read from the peer until then."""
        return False

    @property
    def resumes(self) -> bool:
        """Whether its client can come back and go on with its sessions; if not, they end with the connection."""
        return False

    @property
    def is_visit(self) -> bool:
        """Its peer comes for a request or two and leaves: that is not worth an entry in the event log."""
        return False

    @property
    def patience_seconds(self) -> float:
        """A peer that is silent for longer is gone; 0: it may be silent."""
        return 0.0

    @property
    def pulse_seconds(self) -> float:
        """The peer hears something at least this often; 0: it does not care."""
        return 0.0

    @property
    def pulse(self) -> bytes:
        """What is said when there is nothing to say."""
        return b""

    @property
    def linger_seconds(self) -> float:
        """How long it is waited, after the connection was lost, for the client to come back before `departed`."""
        return 0.0

    @property
    def is_busy(self) -> bool:
        """What becomes of something that its client sent is not known yet, and whoever comes after has to know."""
        return False

    @property
    def keepsake(self) -> Keepsake | None:
        """What is to be kept for the client that may come again under the same name; None: nothing."""
        return None

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        """Whatever arrives, in whatever pieces; `now` in microseconds since 1970."""
        raise NotImplementedError

    def offer(self, mechanisms: Sequence[str]) -> bytes:
        """The ways in which the peer may say who it is, the best first. Only where it `Wondered`."""
        raise NotImplementedError

    def challenge(self, data: bytes) -> bytes:
        """The peer has to answer this before it is believed: `Responded` is its answer. Only where `Greeted` named a
        mechanism that has challenges."""
        raise NotImplementedError

    def admit(self, welcome: frames.Welcome) -> bytes:
        """The peer is who it says it is. `welcome.proof`: what its mechanism has for it at the end."""
        raise NotImplementedError

    def begin(self) -> Sequence[AnyHappening]:
        """It was admitted: what is to be done before it is open."""
        return NOTHING

    def claimed(self, name: str, keepsake: Keepsake | None) -> Sequence[AnyHappening]:
        """The name is this connection's, and this is what was kept for it."""
        return NOTHING

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        """Something that session `number` has for its client."""
        raise NotImplementedError

    def say(self, message: frames.Control, into: Parts) -> Sequence[AnyHappening]:
        """Something about the connection itself. Other protocols than ours take the word and not its bytes."""
        return NOTHING

    def written(self) -> Sequence[AnyHappening]:
        """All that was said is with the network, or so little waits that the peer seems to read."""
        return NOTHING

    def time_passed(self, now: int) -> Sequence[AnyHappening]:
        """Called about every second, `now` in microseconds since 1970."""
        return NOTHING

    def lost(self) -> Sequence[AnyHappening]:
        """The connection is gone, however it came to that, and its client is not waited for any longer."""
        return NOTHING

    def break_off(self, error: HeliographError) -> Broken:
        """End the conversation, saying why."""
        raise NotImplementedError

"""What all conversations have in common, whatever the protocol: what a peer's bytes amount to, and what the
shell that owns the socket may ask of a conversation.

    bytes ──receive──▶ happenings ──▶ shell ──▶ session ──▶ effects ──tell──▶ bytes, and more happenings

A conversation never touches a socket, and nothing that a peer sends makes an exception leave it. The
happenings that `tell`, `say` and the others return are carried out after all that were returned before, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from heliograph.frontends.native import frames
from heliograph.model.errors import HeliographError
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect

Parts = list[bytes | memoryview]


class Happening(msgspec.Struct, gc=False):
    """What a peer's bytes amount to."""


class Greeted(Happening):
    """The peer said who it is; the shell finds out whether that is so and calls `admit` or `refuse`."""

    hello: frames.Hello


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


class Broken(Happening):
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


AnyHappening = Greeted | Commanded | Requested | Left | Broken | Answered | Recognised
NOTHING: Sequence[AnyHappening] = ()


class Conversation(Protocol):
    """One connection, in one protocol."""

    @property
    def is_open(self) -> bool:
        """The peer was admitted, and everything is ready for it."""

    @property
    def is_waiting(self) -> bool:
        """It has to be heard by and by: nothing is read from the peer until then."""

    @property
    def resumes(self) -> bool:
        """Whether its client can come back and go on with its sessions; if not, they end with the connection."""

    @property
    def patience_seconds(self) -> float:
        """A peer that is silent for longer is gone; 0: it may be silent."""

    @property
    def pulse_seconds(self) -> float:
        """The peer hears something at least this often; 0: it does not care."""

    @property
    def pulse(self) -> bytes:
        """What is said when there is nothing to say."""

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        """Whatever arrives, in whatever pieces; `now` in microseconds since 1970."""

    def admit(self, welcome: frames.Welcome) -> bytes:
        """The peer is who it says it is."""

    def begin(self) -> Sequence[AnyHappening]:
        """It was admitted: what is to be done before it is open."""

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        """Something that session `number` has for its client."""

    def say(self, message: frames.Control, into: Parts) -> Sequence[AnyHappening]:
        """Something about the connection itself. Other protocols than ours take the word and not its bytes."""

    def written(self) -> Sequence[AnyHappening]:
        """All that was said is with the network, or so little waits that the peer seems to read."""

    def lost(self) -> Sequence[AnyHappening]:
        """The connection is gone, without a word of the peer."""

    def break_off(self, error: HeliographError) -> Broken:
        """End the conversation, saying why."""

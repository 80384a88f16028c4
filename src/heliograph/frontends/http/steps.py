"""What the handler of a request may ask of its connection, one step after the other.

A handler is a generator: it yields a step, is sent what came of it, or is thrown a HeliographError, and returns the
reply. So a handler reads from top to bottom, whatever it has to wait for, and knows no socket.

    def show(call: Call) -> Steps:
        body = yield Question("destination.show", {"destination": call.path["destination"]})
        return Reply(200, body)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from heliograph.frontends.http.replies import Reply
from heliograph.frontends.prepared import Prepared
from heliograph.sessions.commands import AnyCommand


class Step(msgspec.Struct):
    """Something that a handler waits for."""


class Question(Step):
    """Asked of the administration. Comes back: the body of the answer."""

    subject: str
    arguments: dict[str, Any] = {}


class Proof(Step):
    """Is this who they say? Comes back: the token of a log-in."""

    user: str
    password: str


class Leave(Step):
    """The log-in of this token ends. Nothing comes back."""

    token: str


class Order(Step):
    """A command of a session, for the number of its request. Comes back: what it told, or an empty map."""

    command: Callable[[int], AnyCommand]


class Look(Step):
    """At messages that wait in a queue, from the `skip`th on. Comes back: a `Seen`."""

    destination: str
    selector: str = ""
    skip: int = 0
    limit: int = 1
    takes: bool = False  # they are handed out, and have to be settled before the request ends


class Message(msgspec.Struct):
    """A message as it was looked at."""

    id: str
    tag: int
    priority: int
    persistent: bool
    timestamp: int
    expiry: int
    delivery_time: int
    deliveries: int
    kind: int
    body: bytes
    head: Any
    user: str


class Seen(msgspec.Struct):
    """`has_more`: there are others behind them. `consumer`: who has those that were taken."""

    messages: list[Message]
    has_more: bool
    consumer: int = 0


class Deliver(Step):
    """Sent to a destination. Comes back when it is stored: its id."""

    destination: str
    message: Prepared


class Exchange(Step):
    """In one transaction: these are sent, and those that a `Look` took are done with."""

    messages: list[tuple[str, Prepared]]
    consumer: int
    tags: list[int]


class Streaming(Step):
    """The reply is a stream of events, which goes on until the client leaves. Nothing comes back."""

    topics: list[Topic]


class Topic(msgspec.Struct):
    """What a stream tells about: the question, and what of its answer is news; None: nothing."""

    name: str
    question: Question
    news: Callable[[dict[str, Any]], Any]


AnyStep = Question | Proof | Leave | Order | Look | Deliver | Exchange | Streaming
Steps = Generator[AnyStep, Any, Reply]


class Call(msgspec.Struct):
    """A request as its handler sees it."""

    path: dict[str, str]
    query: Any
    body: Any
    user: str
    token: str
    is_secure: bool
    headers: Mapping[str, str]
    now: float  # seconds since 1970


class Found(msgspec.Struct):
    """Who answers a request. `is_public`: whoever asks need not say who they are."""

    handle: Callable[[], Steps]
    is_public: bool = False

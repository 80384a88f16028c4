"""How conversations go for which the proxy plays our library's part, whatever the protocol: AMQP and STOMP.

    greeting ──▶ proving ──▶ (beginning) ──▶ open ──▶ leaving ──all is stored──▶ closed

What comes while it is found out who a peer is waits, up to a bound. What a peer does wrong ends the conversation, and
what it did before counts. Who leaves is let go when all that it sent is stored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from heliograph.frontends.conversation import NOTHING, AnyHappening, Conversation, Left, Parts
from heliograph.frontends.proxy import Proxy
from heliograph.model.errors import ClientFault, ProtocolFault
from heliograph.model.limits import MAX_EARLY_BYTES
from heliograph.sessions.commands import Fail


class State(enum.Enum):
    """How far a conversation is. Beginning: the peer is known, and its protocol has more to say before it is open."""

    GREETING = "greeting"
    PROVING = "proving"
    BEGINNING = "beginning"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


class ProxiedConversation(Conversation):
    """One connection. `receive` is fed whatever arrives, in whatever pieces."""

    def __init__(self) -> None:
        self._state = State.GREETING
        self._proxy = Proxy(on_stored=self._stored, on_refused=self._refused)
        self._early = b""  # what came before it may be looked at

    @property
    def is_open(self) -> bool:
        return self._state in (State.OPEN, State.LEAVING)

    @property
    def is_waiting(self) -> bool:
        return self._is_deaf or self._proxy.is_full

    @property
    def _is_deaf(self) -> bool:
        """What comes has to wait until somebody else has answered."""
        return self._state is State.PROVING

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        self._proxy.now = now
        if self._state is State.CLOSED:
            return NOTHING
        if not self._is_deaf:
            return self._act(lambda: self._feed(data))
        self._early += data
        if len(self._early) <= MAX_EARLY_BYTES:
            return NOTHING
        return [self.break_off(ProtocolFault("wait for the answer before you go on", code="not-greeted"))]

    def _act(self, work: Callable[[], None], into: Parts | None = None) -> Sequence[AnyHappening]:
        """What is to be done after some work; a fault ends the conversation, and what came before it counts."""
        fault: ClientFault | None = None
        try:
            work()
            self._leave_if_done()
        except ClientFault as error:
            fault = error
        happenings = [*self._said(into), *self._proxy.take()]
        if fault is not None and self._state is not State.CLOSED:
            happenings.append(self.break_off(fault))
        return happenings

    def _leave_if_done(self) -> None:
        if self._state is State.LEAVING:
            self._proxy.flush()
            if self._proxy.is_idle:
                self._state = State.CLOSED
                self._part()
                self._proxy.add(Left("closed"))

    def lost(self) -> Sequence[AnyHappening]:
        self._state = State.CLOSED
        return NOTHING

    # ---- what each protocol does in its way

    def _feed(self, data: bytes) -> None:
        """Hear what the peer said. Raises ClientFault."""
        raise NotImplementedError

    def _said(self, into: Parts | None) -> list[AnyHappening]:
        """What is said to the peer before anything else is done: `into` that, if it is there."""
        return []

    def _part(self) -> None:
        """The last that is said to a peer that leaves."""

    def _stored(self, receipts: list[Any]) -> None:
        raise NotImplementedError

    def _refused(self, receipts: list[Any], why: Fail) -> None:
        raise NotImplementedError

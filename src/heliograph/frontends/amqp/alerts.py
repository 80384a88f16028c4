"""Alerts on AMQP's links: a link from a channel is a subscriber. What is sent to a channel publishes, cancels or
acknowledges, which is the same for all protocols (`frontends/alert_desk.py`).

Whom alerts are for is asked for with the link's selector, which any JMS client lets through:

    topics = 'TAG:disk,net;USER:anna' OR acknowledgements = 'TAG:disk'

An alert is the application's when it has settled it, or, where we settle, when the network has it. What waits here
for the link's credit is sent the most urgent first, and what is cancelled meanwhile is not sent. What was sent cannot
be taken back: it counts as taken then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from heliograph.frontends.alert_messages import as_message
from heliograph.frontends.amqp.engine import MODIFIED, RELEASED, TRANSACTIONAL, Engine, Link
from heliograph.frontends.amqp.kept import CORRELATION, ID
from heliograph.frontends.amqp.messages import Encoder
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.alert import AlertView, text_of_alert
from heliograph.model.errors import ClientFault
from heliograph.model.limits import FOREIGN_UNACKNOWLEDGED
from heliograph.model.message import Head, Property
from heliograph.sessions import commands

_WISH: Final = re.compile(r"\s*(topics|acknowledgements)\s*=\s*'((?:[^']|'')*)'\s*(?:(?i:OR)\b|$)")


def wishes_of(selector: str) -> tuple[str, str]:
    """Topics of alerts and of acknowledgements. Raises ClientFault."""
    found = {"topics": "", "acknowledgements": ""}
    position = 0
    while position < len(selector):
        wish = _WISH.match(selector, position)
        if wish is None or found[wish[1]]:
            break
        found[wish[1]] = wish[2].replace("''", "'")
        position = wish.end()
    if position < len(selector) or not any(found.values()):
        raise ClientFault(
            "which alerts are wanted is said with a selector: topics = 'TAG:disk;USER:anna', "
            "OR acknowledgements = 'TAG:disk'",
            code="topic-invalid",
        )
    return found["topics"], found["acknowledgements"]


class AlertOutlet:
    """A link by which a client gets alerts: a consumer, under our number for it."""

    def __init__(self, engine: Engine, proxy: Proxy, link: Link, address: str, *, jms: bool) -> None:
        self._engine = engine
        self._proxy = proxy
        self.link = link
        self.number = proxy.new_consumer()
        self.address = address
        self.name = ""
        self.is_open = False
        self._encoder = Encoder(jms=jms)
        self._waiting: dict[bytes, AlertView] = {}
        self._order: list[tuple[int, int, bytes]] = []
        self._arrived = 0
        self._last_tag = 0
        self._sent: dict[int, AlertView] = {}  # by delivery tag: what the client has not settled
        self._taken: list[bytes] = []
        self._dropped: list[bytes] = []
        self._is_draining = False

    @property
    def _is_alive(self) -> bool:
        return self.is_open and self.link.is_there

    def attach(self, topics: str, acknowledgements: str, on_answer: Callable[[Answer], None]) -> None:
        self._proxy.command(
            commands.AttachAlerts(
                self._proxy.ask(on_answer),
                self.number,
                self.address,
                self.name,
                topics,
                acknowledgements,
                FOREIGN_UNACKNOWLEDGED,
                [],
                [],
            )
        )

    # ---- out

    def hand(self, view: AlertView) -> None:
        if view.id not in self._waiting:
            self._waiting[view.id] = view
            self._arrived += 1
            heappush(self._order, (-view.header.priority, self._arrived, view.id))
        self.balance()

    def withdraw(self, identity: bytes) -> None:
        """It ended. What was sent is the client's."""
        for tag, view in self._sent.items():
            if view.id == identity:
                del self._sent[tag]
                self._taken.append(identity)
                self.flush()
                return
        self._waiting.pop(identity, None)
        self._dropped.append(identity)
        self.flush()

    def balance(self) -> None:
        """What the client allows is sent."""
        if not self._is_alive:
            return
        while self._order and self._engine.credit(self.link) > 0:
            view = self._waiting.pop(heappop(self._order)[2], None)
            if view is not None:
                self._send(view)
        if self._engine.is_draining(self.link) and self._engine.credit(self.link) and not self._is_draining:
            self._is_draining = True
            self._say([], [], lambda _: self._drained())

    def _send(self, view: AlertView) -> None:
        contents = as_message(view, **{ID: text_of_alert(view.id)})
        data = self._encoder.encode(
            contents,
            0,
            destination=self.address,
            earlier=int(view.again),
            user=view.user,
            now=max(self._proxy.now, view.arrived),  # it may be later than what was last heard
        )
        self._last_tag += 1
        self._sent[self._last_tag] = view
        self._engine.send(self.link, self._last_tag, data)

    def _drained(self) -> None:
        """All that the channel had for it has come."""
        self._is_draining = False
        if self._is_alive:
            self.balance()
            if self._engine.is_draining(self.link):
                self._engine.drained(self.link)

    def written(self) -> None:
        """The network has what was sent: what we settle is the client's."""
        if self.link.presettled and self._sent and self._is_alive and not self._engine.has_unsent(self.link):
            self._taken += [view.id for view in self._sent.values()]
            self._sent.clear()
            self.flush()

    # ---- what the client says

    def disposed(self, delivery: Any) -> None:
        """Its word on an alert: it has it, unless it says that it has not."""
        engine = self._engine
        state = engine.state_of(delivery)
        if state == TRANSACTIONAL:
            raise ClientFault("alerts are not received in a transaction", code="alerts-only")
        if not state and not engine.is_settled(delivery):
            return
        view = self._sent.pop(engine.tag_of(delivery), None)
        engine.settle(delivery)
        if view is None:
            return
        is_back = state == RELEASED or (state == MODIFIED and not engine.failing(delivery)[1])
        if is_back:
            view.again = True
            self.hand(view)
        else:
            self._taken.append(view.id)

    def flush(self) -> None:
        """What was taken and dropped is said in one go."""
        if self._taken or self._dropped:
            taken, self._taken = self._taken, []
            dropped, self._dropped = self._dropped, []
            self._say(taken, dropped, lambda _: None)

    def _say(self, taken: list[bytes], dropped: list[bytes], then: Callable[[Answer], None]) -> None:
        self._proxy.command(commands.TakeAlerts(self._proxy.ask(then), self.number, taken, dropped))

    def leave(self, *, closed: bool) -> None:
        """The link is gone; `closed`: so is what was kept under its name."""
        self.flush()
        self.is_open = False
        self._waiting.clear()
        self._sent.clear()
        request = self._proxy.ask(lambda _: None)
        self._proxy.command(commands.DetachAlerts(request, self.number, closed and bool(self.name)))


def correlate(head: Head) -> tuple[str | None, dict[str, Property]]:
    """An answer correlates with the id of its message: a text, or another value as bytes."""
    identity = head.properties.get(ID)
    if isinstance(identity, bytes):
        return None, {CORRELATION: identity}
    return (identity if isinstance(identity, str) else None), {}

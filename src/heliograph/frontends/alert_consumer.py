"""A consumer of alerts for a client of STOMP or MQTT: what it is handed is sent at once, since such a client says
beforehand how much it takes, and is its own when it says so. What ends after it was sent cannot be taken back: it
counts as taken.

    hand ──▶ sent under a tag ──acknowledged──▶ TakeAlerts(taken)
                    └── given back ──▶ sent again, marked, under another tag
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.alert import AlertView
from heliograph.model.errors import ClientFault
from heliograph.sessions import commands

_NOBODY: Final = (
    "which alerts are wanted is said with topics: TAG:disk,net;USER:anna, with acknowledgements, or both"
)


def _unheard(_answer: Answer) -> None:
    """Nobody waits for it."""


def check_wishes(topics: str, acknowledgements: str) -> None:
    """What they are, the session checks. Raises ClientFault where there are none."""
    if not topics and not acknowledgements:
        raise ClientFault(_NOBODY, code="topic-invalid")


class AlertConsumer:
    """One of a connection's, under its number."""

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        address: str,
        *,
        name: str,
        send: Callable[[int, AlertView], None],
        forget: Callable[[int, AlertView], bool],
    ) -> None:
        """`name`: of a subscriber that outlives the connection. `send`: to the client, under a tag. `forget`: what
        has that tag ended; whether it had been sent."""
        self._proxy = proxy
        self._number = number
        self._address = address
        self._name = name
        self._send = send
        self._forget = forget
        self._last_tag = 0
        self._sent: dict[int, AlertView] = {}
        self._tags: dict[bytes, int] = {}

    def attach(
        self, topics: str, acknowledgements: str, credit: int, on_answer: Callable[[Answer], None]
    ) -> None:
        request = self._proxy.ask(on_answer)
        self._proxy.command(
            commands.AttachAlerts(
                request, self._number, self._address, self._name, topics, acknowledgements, credit, [], []
            )
        )

    def hand(self, view: AlertView) -> None:
        if view.id in self._tags:
            return  # the client has it and has not said so yet; who hands it out again cannot know
        self._last_tag += 1
        self._sent[self._last_tag] = view
        self._tags[view.id] = self._last_tag
        self._send(self._last_tag, view)

    def withdraw(self, identity: bytes) -> None:
        """It ended. What was sent is the client's."""
        tag = self._tags.pop(identity, 0)
        was_sent = tag != 0 and self._forget(tag, self._sent.pop(tag))
        self._say([identity] if was_sent else [], [] if was_sent else [identity])

    def flush(self) -> None:
        """Nothing that was taken waits here to be said."""

    def take(self, ranges: Ranges, on_answer: Callable[[Answer], None] = _unheard) -> bool:
        """The client has these. Whether there are any of them, and it is answered that this is stored."""
        taken = [view.id for view in self._remove(ranges)]
        if taken:
            self._say(taken, [], on_answer)
        return bool(taken)

    def give_back(self, ranges: Ranges) -> None:
        """The client does not want these now: they come again."""
        for view in self._remove(ranges):
            view.again = True
            self.hand(view)

    def _remove(self, ranges: Ranges) -> list[AlertView]:
        found = [
            self._sent.pop(tag)
            for first, last in ranges
            for tag in range(first, last + 1)
            if tag in self._sent
        ]
        for view in found:
            del self._tags[view.id]
        return found

    def _say(
        self, taken: list[bytes], dropped: list[bytes], on_answer: Callable[[Answer], None] = _unheard
    ) -> None:
        self._proxy.command(commands.TakeAlerts(self._proxy.ask(on_answer), self._number, taken, dropped))

    def leave(self, on_answer: Callable[[Answer], None], *, ends: bool) -> None:
        """`ends`: so does what is kept under its name."""
        self._sent.clear()
        self._tags.clear()
        request = self._proxy.ask(on_answer)
        self._proxy.command(commands.DetachAlerts(request, self._number, ends and bool(self._name)))

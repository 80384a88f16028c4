"""Who answers which subject. Modules register handlers; a handler answers, and says what is to be done.

Rights are not decided here: whoever passes a question on has checked them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.admin.subjects import Arguments
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.model.errors import ClientFault


class Outcome(msgspec.Struct):
    """What a handler says: the answer, the effects, which belong to a destination or to none, and what goes
    into the event log."""

    body: dict[str, Any]
    effects: list[AnyEffect] = []
    destination: Destination | None = None
    event: tuple[str, dict[str, Any]] | None = None


Handler = Callable[[Arguments], Outcome]


class Administration:
    """The handlers of one node."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def register(self, subject: str, handler: Handler) -> None:
        assert subject not in self._handlers, f"somebody answers to {subject} already"
        self._handlers[subject] = handler

    def answers_to(self, subject: str) -> bool:
        return subject in self._handlers

    def ask(self, subject: str, arguments: Arguments) -> Outcome:
        """Raises HeliographError where the answer is no."""
        handler = self._handlers.get(subject)
        if handler is None:
            raise ClientFault(f"nobody answers to {subject[:60]!r}", code="subject-unknown")
        return handler(arguments)

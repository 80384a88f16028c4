"""What a process in a channel hears of the majority rule (P5), and what its client manager says.

Whoever is in the view keeps what was handed out in it and who has seen it: the client manager, so as to know when
its clients may have it, and message managers, so as to know what no client has when the view ends
(`cluster/handed_out.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.bus.commands import Command, ConsumerAttached, DispatchSeen, Logged
from heliograph.bus.interface import Incarnation
from heliograph.cluster.handed_out import HandedOut
from heliograph.model.errors import Unavailable


class Seen:
    """One channel, from view to view."""

    def __init__(
        self, say: Callable[[Command], None], soon: Callable[[Callable[[], None]], object], *, speaks: bool
    ) -> None:
        """`say` multicasts, and raises Unavailable. `soon`: when what was delivered together has been applied.
        `speaks`: there is a client manager in this process."""
        self._say = say
        self._soon = soon
        self._speaks = speaks
        self._is_asked = False
        self._owed = 0  # a place that the bus had no room for
        self.handed_out = HandedOut(())

    def on_apply(self, sender: Incarnation, commands: list[Command], place: int) -> bool:
        """`place`: how much was delivered in the view, these included. Whether somebody has seen more."""
        handed_out = self.handed_out
        if handed_out.is_waived:
            return False
        is_news = False
        for command in commands:
            if isinstance(command, Logged):
                for decision in command.decisions:
                    handed_out.decided(decision, place)
            elif isinstance(command, DispatchSeen):
                handed_out.seen(sender, command.place)
                is_news = True
            elif isinstance(command, ConsumerAttached) and command.claim is not None:
                handed_out.claimed(command.consumer)
        if self._speaks and not self._is_asked and handed_out.has_word:
            self._is_asked = True
            self._soon(self._speak)
        return is_news

    def installed(self, clients: tuple[Incarnation, ...]) -> None:
        """Another view, with these client managers; none: the rule does not hold here."""
        self.handed_out = HandedOut(clients)
        self._owed = 0

    def _speak(self) -> None:
        self._is_asked = False
        self._owed = self.handed_out.take_word() or self._owed
        self.go_on()

    def go_on(self) -> None:
        """One word covers all that was handed out before it."""
        if self._owed:
            try:
                self._say(DispatchSeen(self._owed))
            except Unavailable:
                return  # `on_flow` says when, or the next view that it is not wanted any more
            self._owed = 0

"""What a process in a channel hears of the majority rule (P5), and what its client manager says.

Whoever is in the view keeps what was handed out in it and who has seen it: the client manager, so as to know when
its clients may have it, and message managers, so as to know what no client has when the view ends
(`cluster/handed_out.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.bus.commands import (
    Answered,
    Command,
    ConsumerAttached,
    Dispatched,
    DispatchSeen,
    Logged,
    Parcelled,
)
from heliograph.bus.interface import Incarnation
from heliograph.cluster.handed_out import HandedOut
from heliograph.model.errors import Unavailable
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import LATE_WORD_SECONDS


class Seen:
    """One channel, from view to view.

    A word costs every member of the view something, so no more client managers speak at once than it takes: the first
    of them that are most, for what is handed out by others. The rest say so a little later, in one word for all that
    came meanwhile; if one of the first is stuck, that is enough.
    """

    def __init__(
        self,
        say: Callable[[Command], None],
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object],
        *,
        is_own: Callable[[ConsumerId], bool] | None,
        has_asked: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`say` multicasts, and raises Unavailable. `soon`: when what was delivered together has been applied.
        `later`: after so many seconds. `is_own`: whether a consumer is with the client manager of this process; None
        if there is none. `has_asked`: whether that one waits for the answer to a request."""
        self._say = say
        self._soon = soon
        self._later = later
        self._is_own = is_own
        self._has_asked = has_asked
        self._is_first = False
        self._is_asked = False
        self._is_asked_later = False
        self._owed = 0  # a place that the bus had no room for
        self.handed_out = HandedOut(())

    def on_apply(self, sender: Incarnation, commands: list[Command], place: int) -> bool:
        """`place`: how much was delivered in the view, these included. Whether somebody has seen more."""
        handed_out = self.handed_out
        if handed_out.is_waived:
            return False
        is_news = concerns_others = False
        for command in commands:
            kind = type(command)  # with every frame: `isinstance` of what it is not costs four times as much
            if kind is Logged:
                assert isinstance(command, Logged)
                for decision in command.decisions:
                    if isinstance(decision, (Dispatched, Parcelled)):
                        handed_out.decided(decision, place)
                        concerns_others = concerns_others or not self._has(decision.consumer)
                    elif isinstance(decision, Answered) and decision.binds:
                        handed_out.answered(place)
                        concerns_others = concerns_others or not self._has_asked(decision.request)
            elif kind is DispatchSeen:
                assert isinstance(command, DispatchSeen)
                handed_out.seen(sender, command.place)
                is_news = True
            elif kind is ConsumerAttached:
                assert isinstance(command, ConsumerAttached)
                if command.claim is not None and not command.again:  # else it has gone on, and was given more
                    handed_out.claimed(command.consumer)
        if self._is_own is not None and handed_out.has_word:
            self._ask(at_once=self._is_first and concerns_others)
        return is_news

    def _has(self, consumer: ConsumerId) -> bool:
        return self._is_own is not None and self._is_own(consumer)

    def _ask(self, *, at_once: bool) -> None:
        if at_once and not self._is_asked:
            self._is_asked = True
            self._soon(self._speak)
        elif not at_once and not self._is_asked_later:
            self._is_asked_later = True
            self._later(LATE_WORD_SECONDS, self._speak_late)

    def installed(self, clients: tuple[Incarnation, ...], me: Incarnation | None = None) -> None:
        """Another view, with these client managers; none: the rule does not hold here."""
        self.handed_out = HandedOut(clients)
        self._is_first = me in clients[: len(clients) // 2 + 1]
        self._owed = 0

    def _speak_late(self) -> None:
        self._is_asked_later = False
        self._take_word()

    def _speak(self) -> None:
        self._is_asked = False
        self._take_word()

    def _take_word(self) -> None:
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

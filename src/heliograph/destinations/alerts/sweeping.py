"""A newcomer's way through what is live (A4): from the highest level down, in order of arrival, as far as it has
credit.

A sweep never finds twice what it passed, and what is found is handed out only when every sweep of its subscriber has
passed that place. So the way may be interrupted anywhere: by others who want their turn, for lack of credit, by an
alert that arrives meanwhile and is more urgent than all that is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Final

import re2

from heliograph.destinations.alerts.live import Alert, Chunk, LiveAlerts
from heliograph.destinations.alerts.subscribers import Subscriber, Sweep, Wish
from heliograph.model.alert import HIGHEST_PRIORITY, LOWEST_PRIORITY, AlertType
from heliograph.model.alert_topics import Prefix, Topic
from heliograph.model.limits import SWEEP_CHUNKS_PER_TURN
from heliograph.model.patterns import compile_regex, linear_options

# Expressions that mean something else in a line among others than in a text of its own, or could.
_UNSUITED: Final = ("\\A", "\\z", "\\Q", "\\C", "(?")
# Patterns whose automata are kept; more are compiled again when they are searched for.
_REMEMBERED: Final = 4096
# The end of a sweep that began before anybody knew it.
UNBOUNDED: Final = 1 << 62
NO_MARKS: Final = (0,) * (HIGHEST_PRIORITY + 1)


class Budget:
    """What may be done in one turn."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = SWEEP_CHUNKS_PER_TURN


class Sweeping:
    """The sweeps of all subscribers of a channel."""

    def __init__(self, live: LiveAlerts) -> None:
        self._live = live
        self._lines: dict[str, Any] = {}
        self._single: dict[str, Any] = {}

    # ---- what is ready

    def begin(
        self, subscriber: Subscriber, wishes: Iterable[Wish], until: int, after: Iterable[int] = NO_MARKS
    ) -> None:
        """Look for what is live, up to an arrival, and at each level behind another."""
        marks = list(after)
        for kind in AlertType:
            of_kind = [wish for wish in wishes if wish[0] == kind]
            if of_kind and len(self._live):
                subscriber.sweeps.append(Sweep(of_kind, until, marks, HIGHEST_PRIORITY))

    def begin_later(self, subscriber: Subscriber, after: list[int]) -> None:
        """As `begin`, for all its wishes; how far is known when somebody takes its alerts."""
        for kind in AlertType:
            of_kind = [wish for wish in subscriber.wishes if wish[0] == kind]
            if of_kind:
                subscriber.sweeps.append(Sweep(of_kind, UNBOUNDED, list(after), HIGHEST_PRIORITY))

    def offer(self, subscriber: Subscriber, alert: Alert) -> bool:
        """Put an alert among those that are ready, unless it is known."""
        if subscriber.knows(alert) or not alert.is_visible(subscriber.clearance):
            return False
        heappush(subscriber.ready, alert.rank)
        subscriber.waiting[alert.index] = None
        return True

    def next_of(self, subscriber: Subscriber, budget: Budget) -> Alert | None:
        """What comes first, which is still ready; None: nothing, or nothing in this turn (then `budget` is used
        up)."""
        while True:
            first = self._first(subscriber)
            sweep = next((each for each in subscriber.sweeps if not _has_passed(each, first)), None)
            if sweep is None:
                return first
            if not budget.left:
                return None
            self._step(subscriber, sweep, budget)

    def _first(self, subscriber: Subscriber) -> Alert | None:
        ready, waiting = subscriber.ready, subscriber.waiting
        while ready:
            index = ready[0][1]
            alert = self._live.get(index) if index in waiting else None
            if alert is not None and alert.is_visible(subscriber.clearance):
                return alert
            waiting.pop(index, None)
            heappop(ready)
        return None

    def marks_of(self, subscriber: Subscriber) -> list[int]:
        """For each level the arrival up to which it is through: it has taken what it wants of it (A7)."""
        marks = [0, *(self._last(priority) for priority in range(1, HIGHEST_PRIORITY + 1))]
        for index in (*subscriber.waiting, *subscriber.handed):
            alert = self._live.get(index)
            if alert is not None:
                priority = alert.header.priority
                marks[priority] = min(marks[priority], index - 1)
        for sweep in subscriber.sweeps:
            for priority in range(1, sweep.priority + 1):
                passed = sweep.passed if priority == sweep.priority else 0
                marks[priority] = min(marks[priority], max(passed, sweep.after[priority]))
        return marks

    def _last(self, priority: int) -> int:
        return max(levels[priority].last for levels in self._live.levels.values())

    # ---- one step

    def _step(self, subscriber: Subscriber, sweep: Sweep, budget: Budget) -> None:
        kind, priority = sweep.wishes[0][0], sweep.priority
        level = self._live.levels[AlertType(kind)][priority]
        after = max(sweep.passed, sweep.after[priority])
        if not sweep.begun:
            sweep.begun = True
            self._find_named(subscriber, sweep)
        chunk = level.behind(after) if after < min(level.last, sweep.until) else None
        patterns = [topic.text for _, topic in sweep.wishes if topic.prefix is Prefix.TAG]
        if chunk is None or not patterns or chunk.alerts[0].index > sweep.until:
            self._descend(subscriber, sweep)
            return
        budget.left -= 1
        for pattern in patterns:
            for alert in self._matching(chunk, pattern):
                if after < alert.index <= sweep.until:
                    self.offer(subscriber, alert)
        sweep.passed = chunk.last

    def _descend(self, subscriber: Subscriber, sweep: Sweep) -> None:
        sweep.priority -= 1
        sweep.passed, sweep.begun = 0, False
        if sweep.priority < LOWEST_PRIORITY:
            subscriber.sweeps.remove(sweep)

    def _find_named(self, subscriber: Subscriber, sweep: Sweep) -> None:
        """What is addressed to a profile or user is found without looking at anything else."""
        for kind, topic in sweep.wishes:
            if topic.prefix is not Prefix.TAG:
                for index in self._live.to(kind, topic, sweep.priority):
                    alert = self._live.get(index)
                    if alert is not None and sweep.after[sweep.priority] < index <= sweep.until:
                        self.offer(subscriber, alert)

    # ---- searching

    def _matching(self, chunk: Chunk, pattern: str) -> Iterator[Alert]:
        text = chunk.text
        found = self._line_pattern(pattern)
        if found is None:
            single = self._single_pattern(pattern)
            yield from (
                alert for alert in chunk.lines if single.search(alert.topic.text.encode()) is not None
            )
            return
        line = 0
        while line < len(chunk.lines):
            match = found.search(text, chunk.start_of(line))
            if match is None:
                return
            line = chunk.line_at(match.start())
            if line >= len(chunk.lines):
                return
            # What reaches into the next line is no match of this one; another beginning may be.
            within = match.end() < chunk.start_of(line + 1)
            if within or self.matches(Topic(Prefix.TAG, pattern), chunk.lines[line].topic):
                yield chunk.lines[line]
            line += 1

    def matches(self, topic: Topic, destination: Topic) -> bool:
        """Whether a topic means a destination."""
        if topic.prefix is not Prefix.TAG or destination.prefix is not Prefix.TAG:
            return topic == destination
        return self._single_pattern(topic.text).search(destination.text.encode()) is not None

    def _line_pattern(self, pattern: str) -> Any:
        if pattern not in self._lines:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            self._lines[pattern] = _for_lines(pattern)
        return self._lines[pattern]

    def _single_pattern(self, pattern: str) -> Any:
        if pattern not in self._single:
            if len(self._single) >= _REMEMBERED:
                self._single.clear()
            self._single[pattern] = compile_regex(pattern)
        return self._single[pattern]


def _for_lines(pattern: str) -> Any:
    """The pattern for a text of many lines; None if there is no such."""
    if any(piece in pattern for piece in _UNSUITED):
        return None
    options = linear_options()
    options.dot_nl = False
    try:
        return re2.compile(f"(?m:{pattern})", options)
    except re2.error:  # it was just small enough by itself
        return None


def _has_passed(sweep: Sweep, alert: Alert | None) -> bool:
    if alert is None:
        return False
    priority = alert.header.priority
    return priority > sweep.priority or (priority == sweep.priority and alert.index <= sweep.passed)

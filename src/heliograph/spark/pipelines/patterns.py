"""Patterns of composite events (A9): what they say, and where they match in the events of one key.

    seq(a, b, not(c), d)   one after the other; not: no such event in that place, or, at the end, until the
    window closes and(a, b)              both, in whatever order
    or(a, b)               the one that is complete first; the one named first where both are
    times(3, a)            so often, one after the other

A match begins at an event and ends within the rule's window. From each event on, the first events that fit are taken;
after a match the next one begins behind the last event that it took. So there is one answer for a list of events in
order, however they arrived: `find` gives it as far as the events are known, which is up to the watermark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from heliograph.model.errors import ClientFault

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*|\d+|[(),])")
MAX_DEPTH: Final = 16
MAX_TIMES: Final = 1000


class Event(NamedTuple):
    """An event of a key. `kinds`: which of the rule's events it is, by bits. Times in microseconds."""

    time: int
    order: int  # among those of one time
    kinds: int
    id: str


class Found(NamedTuple):
    """Where a part of a pattern ends, and what it took. `end`: the place of the last event it took."""

    end: int
    taken: tuple[int, ...]


class Undecided(Exception):
    """Events that are not known yet may decide it."""


class Horizon(NamedTuple):
    """What is known: events before place `stop`, and, if `is_closed`, no others will come into the window."""

    stop: int
    is_closed: bool


class Pattern:
    """A part of a pattern."""

    def match(self, events: Sequence[Event], start: int, horizon: Horizon) -> Found | None:
        """The first events from place `start` on that fit. None: they will never. Raises Undecided."""
        raise NotImplementedError

    def names(self) -> Iterator[str]:
        raise NotImplementedError

    def words(self) -> str:
        raise NotImplementedError


class Kind(Pattern):
    """One event."""

    def __init__(self, name: str, bit: int) -> None:
        self.name, self._bit = name, bit

    def match(self, events: Sequence[Event], start: int, horizon: Horizon) -> Found | None:
        for place in range(start, horizon.stop):
            if events[place].kinds & self._bit:
                return Found(place, (place,))
        if horizon.is_closed:
            return None
        raise Undecided

    def names(self) -> Iterator[str]:
        yield self.name

    def words(self) -> str:
        return f"an event {self.name}"


class Absent(Pattern):
    """No such event; only seq knows between what."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def names(self) -> Iterator[str]:
        return self.pattern.names()

    def words(self) -> str:
        return f"no event {next(self.names())}"


class Seq(Pattern):
    """One after the other."""

    def __init__(self, parts: list[Pattern]) -> None:
        self._parts = parts

    def match(self, events: Sequence[Event], start: int, horizon: Horizon) -> Found | None:
        taken: tuple[int, ...] = ()
        at = start
        forbidden: list[Pattern] = []
        for part in self._parts:
            if isinstance(part, Absent):
                forbidden.append(part.pattern)
                continue
            found = part.match(events, at, horizon)
            if found is None or _occurs(forbidden, events, at, found.taken[0], horizon):
                return None
            taken, at, forbidden = taken + found.taken, found.end + 1, []
        if forbidden:
            if _occurs(forbidden, events, at, horizon.stop, horizon):
                return None
            if not horizon.is_closed:
                raise Undecided
        return Found(at - 1, taken)

    def names(self) -> Iterator[str]:
        for part in self._parts:
            yield from part.names()

    def words(self) -> str:
        return ", then ".join(part.words() for part in self._parts)


def _occurs(
    forbidden: list[Pattern], events: Sequence[Event], start: int, stop: int, horizon: Horizon
) -> bool:
    closed = Horizon(min(stop, horizon.stop), True)
    return any(pattern.match(events, start, closed) is not None for pattern in forbidden)


class And(Pattern):
    """All of them, in whatever order."""

    def __init__(self, parts: list[Pattern]) -> None:
        self._parts = parts

    def match(self, events: Sequence[Event], start: int, horizon: Horizon) -> Found | None:
        ends, taken, is_open = [], dict[int, None](), False
        for part in self._parts:
            try:
                found = part.match(events, start, horizon)
            except Undecided:
                is_open = True  # another may say that it will never be
                continue
            if found is None:
                return None
            ends.append(found.end)
            taken.update(dict.fromkeys(found.taken))
        if is_open:
            raise Undecided
        return Found(max(ends), tuple(sorted(taken)))

    def names(self) -> Iterator[str]:
        for part in self._parts:
            yield from part.names()

    def words(self) -> str:
        return "both " + " and ".join(part.words() for part in self._parts) + " in whatever order"


class Or(Pattern):
    """The one that is complete first."""

    def __init__(self, parts: list[Pattern]) -> None:
        self._parts = parts

    def match(self, events: Sequence[Event], start: int, horizon: Horizon) -> Found | None:
        best: Found | None = None
        is_open = False
        for part in self._parts:
            try:
                found = part.match(events, start, horizon)
            except Undecided:
                is_open = True  # if it ends, then behind everything that is known
                continue
            if found is not None and (best is None or found.end < best.end):
                best = found
        if best is None and is_open:
            raise Undecided
        return best

    def names(self) -> Iterator[str]:
        for part in self._parts:
            yield from part.names()

    def words(self) -> str:
        return "either " + " or ".join(part.words() for part in self._parts)


class Times(Pattern):
    """The same, so often."""

    def __init__(self, count: int, part: Pattern) -> None:
        self._count, self._part = count, part

    def match(self, events: Sequence[Event], start: int, horizon: Horizon) -> Found | None:
        taken: tuple[int, ...] = ()
        at = start
        for _ in range(self._count):
            found = self._part.match(events, at, horizon)
            if found is None:
                return None
            taken, at = taken + found.taken, found.end + 1
        return Found(at - 1, taken)

    def names(self) -> Iterator[str]:
        return self._part.names()

    def words(self) -> str:
        return f"{self._count} times {self._part.words()}"


# ---- finding


class Match(NamedTuple):
    """The events that a rule took, and when it was complete."""

    taken: tuple[Event, ...]
    completed: int


def find(
    pattern: Pattern, events: Sequence[Event], window: int, watermark: int
) -> tuple[list[Match], list[Event]]:
    """All matches that are certain, and the events that are still needed. `events` are in order; those that are later
    than the watermark are not all known."""
    known = sum(event.time <= watermark for event in events)
    matches: list[Match] = []
    start = 0
    while start < known:
        deadline = events[start].time + window
        count = start
        while count < known and events[count].time <= deadline:
            count += 1
        try:
            found = pattern.match(events, start, Horizon(count, watermark >= deadline))
        except Undecided:
            break
        if found is None or found.taken[0] != start:
            start += 1
            continue
        completed = deadline if ends_with_absence(pattern) else events[found.end].time
        matches.append(Match(tuple(events[place] for place in found.taken), completed))
        start = found.end + 1
    return matches, list(events[start:])


def ends_with_absence(pattern: Pattern) -> bool:
    """Whether it is complete only when its window closes."""
    return isinstance(pattern, Seq) and isinstance(pattern._parts[-1], Absent)


# ---- reading


def parse(text: str, bits: dict[str, int]) -> Pattern:
    """Raises ClientFault `event-rule-invalid`. `bits`: the events that the rule knows."""
    tokens = _tokens(text)
    pattern, rest = _parse(tokens, bits, 0)
    if rest:
        raise _refuse(f"behind the pattern stands {rest[0]!r}")
    if isinstance(pattern, Absent):
        raise _refuse("not(…) alone begins nowhere: write seq(event, not(event))")
    return pattern


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise _refuse(f"{text[at:].strip()[:20]!r} is no part of a pattern")
        tokens.append(found.group(1))
        at = found.end()
    if not tokens:
        raise _refuse("the pattern is empty")
    return tokens


def _parse(tokens: list[str], bits: dict[str, int], depth: int) -> tuple[Pattern, list[str]]:
    if depth > MAX_DEPTH:
        raise _refuse(f"patterns are at most {MAX_DEPTH} deep")
    word, rest = tokens[0], tokens[1:]
    if rest[:1] != ["("]:
        if word not in bits:
            raise _refuse(f"no event is called {word!r}; there are {', '.join(bits)}")
        return Kind(word, bits[word]), rest
    rest = rest[1:]
    count = 0
    if word == "times":
        if not rest or not rest[0].isdigit() or rest[1:2] != [","]:
            raise _refuse("times is written times(3, event)")
        count, rest = int(rest[0]), rest[2:]
        if not 0 < count <= MAX_TIMES:
            raise _refuse(f"times counts from 1 to {MAX_TIMES}")
    parts: list[Pattern] = []
    while True:
        if not rest:
            raise _refuse(f"{word}( is not closed")
        part, rest = _parse(rest, bits, depth + 1)
        parts.append(part)
        if rest[:1] == [")"]:
            return _made(word, parts, count), rest[1:]
        if rest[:1] != [","]:
            raise _refuse(f"in {word}( a comma or ) is missing")
        rest = rest[1:]


def _made(word: str, parts: list[Pattern], count: int) -> Pattern:
    has_absent = any(isinstance(part, Absent) for part in parts)
    if word == "seq":
        if isinstance(parts[0], Absent):
            raise _refuse("a sequence cannot begin with not(…): nothing says since when")
        if any(ends_with_absence(part) for part in parts):
            raise _refuse(
                "a sequence that ends with not(…) is complete when the window closes: it stands alone"
            )
        return Seq(parts)
    if has_absent:
        raise _refuse(f"not(…) stands in seq, and not in {word}")
    if any(ends_with_absence(part) for part in parts):
        raise _refuse(
            f"what ends with not(…) is complete when the window closes, so it cannot stand in {word}"
        )
    if word == "not":
        if len(parts) != 1 or not isinstance(parts[0], Kind):
            raise _refuse("not takes one event")
        return Absent(parts[0])
    if word == "times":
        if len(parts) != 1:
            raise _refuse("times takes one pattern")
        return Times(count, parts[0])
    if word in ("and", "or"):
        return And(parts) if word == "and" else Or(parts)
    raise _refuse(f"{word!r} is no operator; there are seq, and, or, not, times")


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(sentence, code="event-rule-invalid")

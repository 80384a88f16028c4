"""LIKE: `%` stands for any characters, `_` for one; no backtracking.

A pattern is cut at its `%`. The first and the last part have fixed places; each part between is looked for
as far left as it goes, which never loses a match. A part without `_` is found by `str.find`; one with `_` by
a bit per character of the part, all moved on together for each character of the text (Baeza-Yates and
Gonnet's shift-and). The worst text and pattern cost 0.2 µs per character, where an automaton made by RE2
cost 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Segment(NamedTuple):
    """What stands between two `%`: literal pieces at their offsets, and `_` everywhere else."""

    length: int
    pieces: tuple[tuple[int, str], ...]


def parse_like(pattern: str, escape: str | None) -> tuple[Segment, ...]:
    """At least one segment, one more than there are `%`. Raises ValueError on a stray escape character."""
    segments: list[Segment] = []
    letters: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in ("%", "_", escape):
                raise ValueError(f"{escape!r} escapes only %, _ and itself")
            letters.append(following)
        elif character == "%":
            segments.append(_segment(letters))
            letters = []
        else:
            letters.append(None if character == "_" else character)
    segments.append(_segment(letters))
    return tuple(segments)


def _segment(letters: list[str | None]) -> Segment:
    pieces: list[tuple[int, str]] = []
    piece = ""
    for offset, letter in enumerate([*letters, None]):
        if letter is not None:
            piece += letter
        elif piece:
            pieces.append((offset - len(piece), piece))
            piece = ""
    return Segment(len(letters), tuple(pieces))


def compile_like(segments: tuple[Segment, ...]) -> Callable[[str], bool]:
    """Whether a whole text is like the pattern."""
    if len(segments) == 1:
        return _FixedMatcher(segments[0]).matches
    return _Matcher(segments).matches


class _FixedMatcher:
    """A pattern without `%`."""

    def __init__(self, segment: Segment) -> None:
        self._length, self._pieces = segment

    def matches(self, text: str) -> bool:
        return len(text) == self._length and all(text.startswith(piece, at) for at, piece in self._pieces)


class _Matcher:
    """A pattern with `%`."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        first, *middle, last = segments
        self._shortest = sum(segment.length for segment in segments)
        self._first_length, self._first = first
        self._last_length, self._last = last
        self._finders = [_finder(segment) for segment in middle if segment.length]

    def matches(self, text: str) -> bool:
        size = len(text)
        if size < self._shortest:
            return False
        for at, piece in self._first:
            if not text.startswith(piece, at):
                return False
        end = size - self._last_length
        for at, piece in self._last:
            if not text.startswith(piece, end + at):
                return False
        position = self._first_length
        for find in self._finders:
            position = find(text, position, end)
            if position < 0:
                return False
        return True


def _finder(segment: Segment) -> Callable[[str, int, int], int]:
    """Finds a segment in text[start:stop]: where it ends, or -1."""
    length, pieces = segment
    if len(pieces) == 1 and len(pieces[0][1]) == length:
        piece = pieces[0][1]

        def find(text: str, start: int, stop: int) -> int:
            found = text.find(piece, start, stop)
            return found + length if found >= 0 else -1

        return find
    return _ShiftAnd(segment).find


class _ShiftAnd:
    """Bit n of the state: the last n+1 characters are the first n+1 of the segment."""

    def __init__(self, segment: Segment) -> None:
        fixed = {at + n: letter for at, piece in segment.pieces for n, letter in enumerate(piece)}
        self._anything = sum(1 << n for n in range(segment.length) if n not in fixed)
        self._masks: dict[str, int] = {}
        for n, letter in fixed.items():
            self._masks[letter] = self._masks.get(letter, self._anything) | 1 << n
        self._goal = 1 << segment.length - 1

    def find(self, text: str, start: int, stop: int) -> int:
        mask, anything, goal = self._masks.get, self._anything, self._goal
        state = 0
        for position in range(start, stop):
            state = (state << 1 | 1) & mask(text[position], anything)
            if state & goal:
                return position + 1
        return -1

"""From a text to the patterns that match it, without trying them one by one (A2, A4).

What a pattern's text shows without a search is looked up:

    ^literal$    the text itself
    ^literal     a beginning of the text, also written ^literal.*

Everything else is in sets of RE2, which find all matching patterns in one pass. A set cannot be changed, so new
patterns begin a small one, and neighbours of equal size become one, as digits of a binary counter do: a pattern is
compiled a few times however many follow it. What was removed is passed over until half of its set was.

A set that is too large is not made, and one whose automaton has no room answers nothing and says nothing about it. So
the empty pattern, which every text matches, stands in each: if it is missing from the answer, the set has failed, and
its patterns are tried one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import re2

from heliograph.model.limits import MAX_PATTERNS_PER_SET, MAX_SET_BYTES
from heliograph.model.patterns import compile_regex, linear_options

_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")
# Sets smaller than this are compiled anew when one more comes: that is a fraction of a millisecond.
_SMALLEST: Final = 32
_CANARY: Final = ""


class PatternIndex:
    """Patterns, each once."""

    def __init__(self) -> None:
        self._exact: dict[str, str] = {}  # literal → pattern
        self._beginnings: dict[str, list[str]] = {}  # literal → patterns: there are two ways to write one
        self._lengths: dict[int, int] = {}  # of beginnings, and how many there are
        self._where: dict[str, _Set | None] = {}  # pattern → its set; None: it is looked up
        self._sets: list[_Set] = []  # from large to small

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, pattern: str) -> bool:
        return pattern in self._where

    def add(self, pattern: str) -> None:
        assert pattern not in self._where, "each pattern is added once"
        kind, literal = _shape_of(pattern)
        if kind == "exact":
            self._where[pattern] = None
            self._exact[literal] = pattern
        elif kind == "beginning":
            self._where[pattern] = None
            self._beginnings.setdefault(literal, []).append(pattern)
            self._lengths[len(literal)] = self._lengths.get(len(literal), 0) + 1
        else:
            self._add_to_set(pattern)

    def remove(self, pattern: str) -> None:
        found = self._where.pop(pattern)
        if found is not None:
            found.remove(pattern)
            if not found.patterns:
                self._sets.remove(found)
            return
        kind, literal = _shape_of(pattern)
        if kind == "exact":
            del self._exact[literal]
            return
        self._beginnings[literal].remove(pattern)
        if not self._beginnings[literal]:
            del self._beginnings[literal]
        self._lengths[len(literal)] -= 1
        if not self._lengths[len(literal)]:
            del self._lengths[len(literal)]

    def match(self, text: str) -> Iterator[str]:
        """Every pattern that is found in the text, once."""
        whole = self._exact.get(text)
        if whole is not None:
            yield whole
        for length in self._lengths:
            yield from self._beginnings.get(text[:length], ()) if length <= len(text) else ()
        if self._sets:
            encoded = text.encode()
            for each in self._sets:
                yield from each.match(encoded)

    def _add_to_set(self, pattern: str) -> None:
        last = self._sets[-1] if self._sets else None
        if last is None or len(last.patterns) >= _SMALLEST:
            last = _Set()
            self._sets.append(last)
        last.add(pattern)
        self._where[pattern] = last
        if len(last.patterns) >= _SMALLEST:
            self._carry()

    def _carry(self) -> None:
        """Neighbours of about the same size become one."""
        while len(self._sets) > 1:
            one, other = self._sets[-2], self._sets[-1]
            size = len(one.patterns) + len(other.patterns)
            if len(one.patterns) >= 2 * len(other.patterns) or size > MAX_PATTERNS_PER_SET:
                return
            for pattern in other.patterns:
                one.add(pattern)
                self._where[pattern] = one
            self._sets.pop()


class _Set:
    """Patterns that are searched for together."""

    def __init__(self) -> None:
        self.patterns: dict[str, None] = {}
        self._automaton: Any = None  # None: there is no room for one
        self._is_compiled = False
        self._compiled: list[str] = []  # the patterns by their numbers in the automaton
        self._singly: dict[str, Any] = {}  # where the automaton has failed

    def add(self, pattern: str) -> None:
        self.patterns[pattern] = None
        self._is_compiled = False

    def remove(self, pattern: str) -> None:
        del self.patterns[pattern]
        self._singly.pop(pattern, None)
        if 2 * len(self.patterns) < len(self._compiled):
            self._is_compiled = False

    def match(self, text: bytes) -> Iterator[str]:
        if not self._is_compiled:
            self._compile()
        numbers = self._automaton.Match(text) or () if self._automaton is not None else ()
        if 0 not in numbers:
            yield from self._match_singly(text)
            return
        for number in numbers:
            pattern = self._compiled[number]
            if number and pattern in self.patterns:
                yield pattern

    def _compile(self) -> None:
        options = linear_options()
        options.max_mem = MAX_SET_BYTES
        automaton = re2.Set.SearchSet(options)
        self._compiled = [_CANARY, *self.patterns]
        for pattern in self._compiled:
            automaton.Add(pattern)
        self._singly.clear()
        self._is_compiled = True
        try:
            automaton.Compile()
        except re2.error:
            self._automaton = None
        else:
            self._automaton = automaton

    def _match_singly(self, text: bytes) -> Iterator[str]:
        for pattern in self.patterns:
            compiled = self._singly.get(pattern)
            if compiled is None:
                compiled = self._singly[pattern] = compile_regex(pattern)
            if compiled.search(text) is not None:
                yield pattern


def _shape_of(pattern: str) -> tuple[str, str]:
    """What the text of a pattern shows: "exact" or "beginning" and the literal; or nothing."""
    if not pattern.startswith("^"):
        return "", ""
    rest, kind = pattern[1:], "beginning"
    if rest.endswith(".*"):
        rest = rest[:-2]
    elif rest.endswith("$") and not rest.endswith("\\$"):
        rest, kind = rest[:-1], "exact"
    literal = _literal_of(rest)
    return (kind, literal) if literal else ("", "")


def _literal_of(text: str) -> str:
    """The one text that an expression means; empty if it means several."""
    letters: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            following = text[at + 1 : at + 2]
            if not following or following.isalnum() or following == "_" or not following.isascii():
                return ""
            letters.append(following)
            at += 2
            continue
        if letter in _SPECIAL:
            return ""
        letters.append(letter)
        at += 1
    return "".join(letters)

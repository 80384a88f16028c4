"""In which line of a file in TOML each key stands, so that a refusal can say it; `tomllib` only gives the values.

The text was read by `tomllib` before: what is here follows keys, and passes over values. Keys may be bare, quoted or
dotted, tables may be headed or inline, and comments and strings may hold anything.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

Path = tuple[str | int, ...]
"""Keys from the outside in; a number for an element of an array, or of an array of tables."""

_BLANK: Final = re.compile(r"[ \t]*")
_BLANKS: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[Path, int]:
    """The line, counted from 1, of each key and of each element of an array."""
    return _Reader(text).lines


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._seen, self._line = 0, 1
        self._tables: dict[Path, int] = {}  # arrays of tables, and how many there are so far
        self.lines: dict[Path, int] = {}
        table: Path = ()
        self._pass(_BLANKS)
        while self._at < len(text):
            if self._next() == "[":
                table = self._header()
            else:
                self._pair(table)
            self._pass(_BLANKS)

    def _pass(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"tomllib took what stands at {self._at}"
        self._at = found.end()
        return found.group()

    def _next(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def _note(self, path: Path) -> None:
        self._line += self._text.count("\n", self._seen, self._at)
        self._seen = self._at
        self.lines.setdefault(path, self._line)

    def _header(self) -> Path:
        """[table] or [[table]]; behind an array of tables its last one is meant."""
        begins = 2 if self._next(2) == "[[" else 1
        start, self._at = self._at, self._at + begins
        keys = self._keys()
        stop, self._at = self._at + begins, start
        path: Path = ()
        for place, key in enumerate(keys):
            path = (*path, key)
            self._note(path)
            if begins == 2 and place == len(keys) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._note(path)
        self._at = stop
        return path

    def _pair(self, table: Path) -> None:
        """key = value"""
        start = self._at
        keys = self._keys()
        stop, self._at = self._at + 1, start  # behind the sign
        path = table
        for key in keys:
            path = (*path, key)
            self._note(path)
        self._at = stop
        self._value(path)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._pass(_BLANK)
            if self._next() in ("'", '"'):
                keys.append(str(tomllib.loads(f"key = {self._pass(_STRING)}")["key"]))
            else:
                keys.append(self._pass(_BARE))
            self._pass(_BLANK)
            if self._next() != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        self._pass(_BLANK)
        first = self._next()
        if first in ("'", '"'):
            self._pass(_STRING)
        elif first in ("[", "{"):
            self._at += 1
            self._elements(path, "]" if first == "[" else "}")
        else:
            self._pass(_PLAIN)

    def _elements(self, path: Path, end: str) -> None:
        """Of an array or an inline table."""
        number = 0
        while True:
            self._pass(_BLANKS)
            if self._next() == end:
                self._at += 1
                return
            if end == "}":
                self._pair(path)
            else:
                self._note((*path, number))
                self._value((*path, number))
            number += 1
            self._pass(_BLANKS)
            if self._next() == ",":
                self._at += 1

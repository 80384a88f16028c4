"""Which files an archive consists of (D4): numbered entries, each of which takes effect as a whole.

An entry adds files and takes others away; the archive is what all entries together leave. An entry gets its
number by a
rename that fails if the number is taken, so a batch that is done again finds its entry there and does nothing, and a
reader sees a batch, or a compaction, wholly or not at all. Files that no entry mentions are rests of work that
was cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from heliograph.model.errors import ClientFault

FOLDER: Final = "_manifest"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """`key`: what it stands for: a batch of a query, or a compaction."""

    key: str
    adds: list[str]
    removes: list[str] = []
    rows: int = 0


class Manifest:
    """The entries of one archive, in its folder."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self._folder = archive / FOLDER
        self._read: list[Entry] = []  # entries never change: each is read once
        self._keys: dict[str, None] = {}

    def entries(self) -> Iterator[Entry]:
        """In order. Raises ClientFault `archive-damaged`."""
        self._read_on()
        return iter(self._read)

    def _read_on(self) -> None:
        """Those that came since."""
        for number, path in enumerate(sorted(self._folder.glob("*.json")), start=1):
            if number <= len(self._read):
                continue
            if path.name != f"{number:010d}.json":
                raise ClientFault(f"entry {number} of {self._folder} is missing", code="archive-damaged")
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=Entry)
            except msgspec.MsgspecError as fault:
                raise ClientFault(f"{path} cannot be read: {fault}", code="archive-damaged") from None
            self._read.append(entry)
            self._keys[entry.key] = None

    def has(self, key: str) -> bool:
        self._read_on()
        return key in self._keys

    def files(self) -> list[str]:
        """What the archive consists of, in the order in which it was added."""
        found: dict[str, None] = {}
        for entry in self.entries():
            found.update(dict.fromkeys(entry.adds))
            for name in entry.removes:
                found.pop(name, None)
        return list(found)

    def add(self, entry: Entry) -> None:
        """Make it so. The files are there already."""
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(msgspec.to_builtins(entry), indent=1).encode()
        new = self._folder / f".new-{os.getpid()}"
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        while True:
            number = sum(1 for _ in self._folder.glob("*.json")) + 1
            try:
                os.link(new, self._folder / f"{number:010d}.json")
                break
            except FileExistsError:
                continue  # somebody else was quicker
        new.unlink()

    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries())

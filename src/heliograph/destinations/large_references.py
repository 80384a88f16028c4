"""Which messages refer to which files of the large store (docs/decisions/0004).

A large message is an ordinary record of the journal whose body names a file. Several records may name the
same file (a dead message is a copy, a reference can be sent on), and several lists may hold the same
record. So records are counted per file and holders per record: a file that no record refers to any more is
not needed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from heliograph.destinations.pages import Page
from heliograph.model.large import FileId


class _Held(msgspec.Struct, gc=False):
    """A record that refers to a file, and how many lists need it."""

    file: FileId
    holders: int


class LargeReferences:
    """The references of one message manager, by the position of their records."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._records: dict[FileId, int] = {}
        self.kept: dict[FileId, None] = {}  # branches that are set aside refer to them (docs/decisions/0018)
        # Files that lost their last reference since somebody asked, in that order.
        self._unreferenced: dict[FileId, None] = {}

    def __contains__(self, position: int) -> bool:
        return position in self._held

    def is_referenced(self, file: FileId) -> bool:
        return file in self._records or file in self.kept

    def persisted(self, position: int, file: FileId) -> None:
        """A record with a reference was appended, and is held once."""
        self._held[position] = _Held(file, 1)
        self._records[file] = self._records.get(file, 0) + 1
        self._unreferenced.pop(file, None)

    def retain(self, position: int, count: int) -> None:
        """Further lists need the record, if it is one with a reference."""
        held = self._held.get(position)
        if held is not None:
            held.holders += count

    def release(self, position: int, count: int) -> None:
        """Lists need the record no longer, if it is one with a reference."""
        held = self._held.get(position)
        if held is None:
            return
        held.holders -= count
        if held.holders <= 0:
            assert held.holders == 0, "a reference was let go more often than it was held"
            self._drop(position)

    def release_page(self, page: Page) -> None:
        """A list needs none of a page's messages any longer."""
        if self._held:
            for entry in page.entries():
                self.release(entry.position, entry.messages)

    def _drop(self, position: int) -> None:
        file = self._held.pop(position).file
        left = self._records[file] - 1
        if left:
            self._records[file] = left
        else:
            del self._records[file]
            self._unreferenced[file] = None

    def take_unreferenced(self) -> list[FileId]:
        """Files that lost their last reference. They may go once the log that says so is stored."""
        if not self._unreferenced:
            return []
        taken, self._unreferenced = list(self._unreferenced), {}
        return [file for file in taken if file not in self.kept]

    def relocate(self, moves: dict[int, int]) -> None:
        """Records were moved within the journal."""
        for old, new in moves.items():
            held = self._held.pop(old, None)
            if held is not None:
                self._held[new] = held

    # ---- snapshots and recovery

    def pairs(self) -> list[tuple[int, bytes]]:
        """Every record with a reference: (position, file)."""
        return [(position, held.file) for position, held in self._held.items()]

    def position_of(self, file: FileId) -> int | None:
        """Where one of the records is that refer to a file."""
        return next((position for position, held in self._held.items() if held.file == file), None)

    def restore(self, pairs: Iterable[tuple[int, bytes]]) -> None:
        for position, file in pairs:
            self.persisted(position, FileId(file))

    def recount(self, pages: Iterable[Page]) -> None:
        """Recovery knows what is held by anybody: only what is in these pages."""
        former, self._held, self._records = self._held, {}, {}
        for page in pages if former else ():
            for entry in page.entries():
                known = former.get(entry.position)
                if known is None:
                    continue
                held = self._held.get(entry.position)
                if held is None:
                    self.persisted(entry.position, known.file)
                else:
                    held.holders += 1
        self._unreferenced = {}

    def files(self) -> list[FileId]:
        return list(self._records)

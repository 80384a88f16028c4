"""Why messages are done that nobody had: what a record DONE says about it, for those who read the history.

A range of numbers whose last is 0 is none, since numbers begin with 1. At the end of a DONE record stands such a
range where its messages were removed, and its first says why. Who does not know that finds nothing to do in it.
"""

from __future__ import annotations

import enum


class Removal(enum.IntEnum):
    """Why messages were taken away. A number is given once."""

    RETENTION = 1
    EXPIRED = 2
    PURGED = 3
    DELETED = 4

    @property
    def reason(self) -> str:
        """In a word; the dead have the same one."""
        return self.name.lower()

    @property
    def mark(self) -> tuple[int, int]:
        """The range that says so."""
        return self.value, 0


def reason_in(mark: tuple[int, int]) -> str:
    """The word for a range that is none; a later version may have others."""
    number, _ = mark
    return Removal(number).reason if number in Removal._value2member_map_ else f"removal-{number}"

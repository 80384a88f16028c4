"""What all processes of the ordering test share: a file in memory that says how far each unit is and who has it.

A message is handed over in order if every earlier one of its unit is processed, or in the hands of the same
consumer. Each consumer holds each hand-over to that, whatever process the others are in; what it finds wrong
is told at once.
"""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path

MAX_LIVES = 65_536  # consumers, each start counted anew
NOBODY = 0
OUT_OF_ORDER = "out of order: "  # how such a line begins


class Board:
    """Arrays by unit: how many are processed, up to which one was ever handed over, and who has some of it."""

    def __init__(self, path: Path, units: int, *, create: bool = False) -> None:
        sizes = [8, MAX_LIVES, 4 * units, 4 * units, 4 * units, 8 * 4]
        if create:
            path.write_bytes(bytes(sum(sizes)))
        with path.open("r+b") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0))
        starts = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
        parts = [whole[start:stop] for start, stop in pairwise(starts)]
        self._flags = parts[0]
        self.dead = parts[1]
        self.processed = parts[2].cast("I")
        self.handed = parts[3].cast("I")
        self.holder = parts[4].cast("I")

    @property
    def is_over(self) -> bool:
        return self._flags[0] != 0

    def end(self) -> None:
        self._flags[0] = 1


class Hands:
    """What one consumer's application has and has not processed."""

    def __init__(self, board: Board, life: int) -> None:
        self._board = board
        self._life = life
        self._held: dict[int, list[int]] = {}
        self.repeated = 0

    def take(self, unit: int, number: int, *, marked: bool) -> str:
        """A message was handed over. What is wrong with that, if anything."""
        board = self._board
        held = self._held.get(unit)
        holder = board.holder[unit]
        wrong = ""
        if number < board.handed[unit]:
            self.repeated += 1
            if not marked:
                wrong = "came again without a mark"
        if held:
            if number != held[-1] + 1:
                wrong = f"came after {held[-1]}"
            held.append(number)
        else:
            if number > board.processed[unit]:
                wrong = f"came while only {board.processed[unit]} are processed"
            if holder not in (NOBODY, self._life) and not board.dead[holder]:
                wrong = f"came while consumer {holder} has some of the unit"
            self._held[unit] = [number]
        board.holder[unit] = self._life
        board.handed[unit] = max(board.handed[unit], number + 1)
        return f"{OUT_OF_ORDER}unit {unit}, message {number} {wrong}" if wrong else ""

    def done(self, unit: int, number: int) -> None:
        """The first that it has of a unit is processed."""
        board, held = self._board, self._held[unit]
        assert held[0] == number, "an application processes in order"
        board.processed[unit] = max(board.processed[unit], number + 1)
        del held[0]
        if not held:
            self._let_go(unit)

    def drop(self, unit: int) -> None:
        """What it has of a unit goes back."""
        self._let_go(unit)

    def drop_all(self) -> None:
        for unit in list(self._held):
            self._let_go(unit)

    def has(self, unit: int) -> bool:
        return unit in self._held

    def _let_go(self, unit: int) -> None:
        del self._held[unit]
        self._board.holder[unit] = NOBODY

"""A snapshot that moves to another server: what it refers to, and the same with other positions.

A block is told by its destination and the number of its first message: two servers that have the same log have the
same block there, each at a position of its own journal.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.destinations.pages import Entry, Page
from heliograph.destinations.snapshot import (
    CatalogueState,
    CursorState,
    DestinationState,
    LevelState,
    StageState,
)

Place = tuple[int, int]
"""A destination, and the number of a block's first message in it."""


def blocks_of(state: CatalogueState) -> Iterator[tuple[Place, int]]:
    """Every block that the state refers to, with its position. One may come several times."""
    for destination in state.destinations:
        for entry in _entries(destination):
            yield (destination.number, entry.number - entry.start), entry.position
    for stage in _stages(state):
        yield (0, stage.position), stage.position  # it has no number yet


def _stages(state: CatalogueState) -> Iterator[StageState]:
    yield from state.stages
    for prepared in state.prepared:
        yield from prepared.stages


def _entries(destination: DestinationState) -> Iterator[Entry]:
    for page in _pages(destination):
        yield from page.entries()
    for part in _parts(destination):
        yield from part.dispatched
        if isinstance(part, CursorState):
            yield from part.waiting


def _pages(destination: DestinationState) -> Iterator[Page]:
    for level in destination.levels:
        yield from level.pages
    for sequence in destination.sequences:
        yield from sequence.pages


def _parts(destination: DestinationState) -> Iterator[LevelState | CursorState]:
    yield from destination.levels
    for subscription in destination.subscriptions:
        yield from subscription.cursors


def relocate_state(state: CatalogueState, moves: dict[int, int]) -> None:
    """Every position of the state, by where it is now."""
    for destination in state.destinations:
        for page in _pages(destination):
            page.relocate(moves)
        for part in _parts(destination):
            part.dispatched = _moved(part.dispatched, moves)
            if isinstance(part, CursorState):
                part.waiting = _moved(part.waiting, moves)
    for stage in _stages(state):
        stage.position = moves[stage.position]
    state.large = [(moves[position], file) for position, file in state.large if position in moves]


def _moved(entries: list[Entry], moves: dict[int, int]) -> list[Entry]:
    return [entry._replace(position=moves[entry.position]) for entry in entries]

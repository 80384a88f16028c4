"""Messages picked from here and there and put together in one block say what they said before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.model import block
from heliograph.model.block import Contents, Span
from heliograph.model.gathering import gather, parcels
from tests.properties.block_strategies import whole_blocks

pytestmark = pytest.mark.req("U1")
COLUMNS = {
    "timestamps": "timestamp",
    "expiries": "expiry",
    "delivery_times": "delivery_time",
    "priorities": "priority",
}


def messages_of(contents: Contents) -> list[tuple[Any, ...]]:
    """All that each message says, wherever it stands."""

    def said(name: str, shared: str, index: int) -> Any:
        column = getattr(contents, name)
        return getattr(contents, shared) if column is None else column[index]

    return [
        (
            contents.lane if contents.lanes is None else contents.lanes[index],
            contents.first + index if contents.sequences is None else contents.sequences[index],
            contents.bodies[index],
            contents.heads[index] if contents.heads else b"",
            contents.units[index] if contents.units else 0,
            contents.kind,
            contents.persistent,
            *(said(name, shared, index) for name, shared in COLUMNS.items()),
        )
        for index in range(contents.count)
    ]


@st.composite
def picked(draw: st.DrawFn) -> list[tuple[bytes, int, int]]:
    """Runs of messages of several blocks, in any order."""
    buffers = draw(st.lists(whole_blocks(max_messages=8), min_size=1, max_size=4))
    runs = []
    for _ in range(draw(st.integers(1, 6))):
        buffer = draw(st.sampled_from(buffers))
        count = block.parse(buffer).count
        start = draw(st.integers(0, count - 1))
        runs.append((buffer, start, draw(st.integers(start + 1, count))))
    return runs


@given(picked())
@settings(max_examples=500, deadline=None)
def test_what_was_picked_says_what_it_said(runs: list[tuple[bytes, int, int]]) -> None:
    spans = [Span(block.parse(buffer), start, stop) for buffer, start, stop in runs]
    expected = [
        message for buffer, start, stop in runs for message in messages_of(block.unpack(buffer))[start:stop]
    ]
    found = [
        message
        for parcel in parcels(spans)
        for message in messages_of(block.unpack(b"".join(gather(parcel))))
    ]
    assert found == expected

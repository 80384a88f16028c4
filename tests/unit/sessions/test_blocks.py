"""A session tells its client once to wait, and once to go on (M7)."""

import pytest

from heliograph.bus.commands import FlowChanged
from heliograph.model.destination import Address
from heliograph.sessions.commands import TellBlocked
from heliograph.sessions.flow import Blocks

pytestmark = pytest.mark.req("M7")

A, B = Address("queue:a"), Address("queue:b")


def test_only_lanes_are_concerned() -> None:
    blocks = Blocks()
    assert blocks.opened(A, "") == []
    assert blocks.changed(FlowChanged(B, "messages")) == []
    assert blocks.changed(FlowChanged(A, "messages")) == [TellBlocked(A, "messages")]
    assert blocks.changed(FlowChanged(A, "")) == [TellBlocked(A, "")]


def test_a_lane_to_what_is_blocked_is_told_at_once_and_once() -> None:
    blocks = Blocks()
    assert blocks.opened(A, "bytes") == [TellBlocked(A, "bytes")]
    assert blocks.changed(FlowChanged(A, "bytes")) == []


def test_another_reason_is_told() -> None:
    blocks = Blocks()
    blocks.opened(A, "messages")
    assert blocks.changed(FlowChanged(A, "bytes")) == [TellBlocked(A, "bytes")]

"""A session tells its client once to wait, and once to go on, whatever the reasons were (M7)."""

import pytest

from heliograph.bus.commands import FlowChanged
from heliograph.model.destination import Address
from heliograph.sessions.commands import TellBlocked
from heliograph.sessions.flow import Blocks

pytestmark = pytest.mark.req("M7")

A, B = Address("queue:a"), Address("queue:b")
EVERYWHERE = Address("")


def test_only_lanes_are_concerned() -> None:
    blocks = Blocks()
    assert blocks.opened(A, "", "") == []
    assert blocks.changed(FlowChanged(B, "messages")) == []
    assert blocks.changed(FlowChanged(A, "messages")) == [TellBlocked(A, "messages")]
    assert blocks.changed(FlowChanged(A, "")) == [TellBlocked(A, "")]


def test_a_lane_to_what_is_blocked_is_told_at_once() -> None:
    assert Blocks().opened(A, "bytes", "") == [TellBlocked(A, "bytes")]
    assert Blocks().opened(A, "", "disk") == [TellBlocked(A, "disk")]


def test_what_holds_everywhere_and_what_holds_here_are_told_apart() -> None:
    blocks = Blocks()
    blocks.opened(A, "", "")
    blocks.opened(B, "messages", "")
    assert blocks.changed(FlowChanged(EVERYWHERE, "disk")) == [TellBlocked(A, "disk")]
    assert blocks.changed(FlowChanged(A, "bytes")) == []
    assert blocks.changed(FlowChanged(B, "")) == []
    assert blocks.changed(FlowChanged(EVERYWHERE, "")) == [TellBlocked(B, "")]
    assert blocks.changed(FlowChanged(A, "")) == [TellBlocked(A, "")]

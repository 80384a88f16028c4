"""The queue before the bus: asks for patience, then refuses, and keeps the order."""

import pytest

from heliograph.bus.outgoing import Outgoing
from heliograph.model.errors import Unavailable


def test_it_asks_for_patience_between_its_marks_and_refuses_at_its_end() -> None:
    queue = Outgoing(high=100, low=30, end=200)
    queue.add([bytearray(50), bytearray(50)])
    assert queue.may_send
    queue.add([bytearray(50)])
    assert not queue.may_send
    queue.check_room()
    queue.add([bytearray(50)])
    with pytest.raises(Unavailable, match="bus-full"):
        queue.check_room()
    for still in (False, False, False, True):
        queue.sent()
        assert queue.may_send is still
    assert (queue.size, len(queue)) == (0, 0)


def test_it_keeps_the_order() -> None:
    queue = Outgoing()
    queue.add([bytearray(b"a"), bytearray(b"b")])
    queue.add([bytearray(b"c")])
    seen = []
    while queue:
        seen.append(bytes(queue.first()))
        queue.sent()
    assert seen == [b"a", b"b", b"c"]

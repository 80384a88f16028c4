"""What is written down of a consumer that may be in another part stays readable as it is."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import ConsumerAttached, Standing
from heliograph.destinations.doubts import Doubt, Doubts, encode_doubt
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, SessionId

SESSION, CONSUMER = SessionId(bytes(range(16))), ConsumerId(bytes(range(16, 32)))
BEGINS = bytes.fromhex(
    "95c410101112131415161718191a1b1c1d1e1f04dc001100a871756575653a696ec4101011121314"
    "15161718191a1b1c1d1e1fc410000102030405060708090a0b0c0d0e0f0ac3a0a0a0c2c2c2c2c307"
    "c0c298c410101112131415161718191a1b1c1d1e1f000803c2cb400400000000000090909193010506"
)
# Before it was said of a consumer whether it was asked for again.
BEGAN = bytes.fromhex(
    "95c410101112131415161718191a1b1c1d1e1f04dc001000a871756575653a696ec4101011121314"
    "15161718191a1b1c1d1e1fc410000102030405060708090a0b0c0d0e0f0ac3a0a0a0c2c2c2c2c307"
    "c098c410101112131415161718191a1b1c1d1e1f000803c2cb400400000000000090909193010506"
)
IS_OVER = bytes.fromhex("95c410101112131415161718191a1b1c1d1e1f04c0c090")
DOUBT = Doubt(
    CONSUMER,
    4,
    ConsumerAttached(0, Address("queue:in"), CONSUMER, SESSION, 10, number=7),
    Standing(CONSUMER, 0, 8, 3, False, 2.5),
    [(1, 5, 6)],
)


def test_the_record_is_as_it_always_was() -> None:
    assert encode_doubt(DOUBT) == BEGINS
    assert encode_doubt(Doubt(CONSUMER, 4)) == IS_OVER


@pytest.mark.parametrize("begins", [BEGINS, BEGAN])
def test_a_doubt_begins_and_is_over_as_the_journal_says(begins: bytes) -> None:
    doubts = Doubts()
    doubts.replay(begins)
    assert list(doubts) == [DOUBT]
    doubts.replay(IS_OVER)
    assert not doubts

"""What a client remembers of who wants it to wait (M7)."""

import pytest

from heliograph.client.flow import Blocks

pytestmark = pytest.mark.req("M7")


def test_a_callback_hears_of_a_destination_once_however_many_sessions_are_concerned() -> None:
    heard: list[tuple[str, str]] = []
    blocks = Blocks()
    blocks.on_change = lambda destination, reason: heard.append((destination, reason))
    blocks.told(1, "queue:a", "messages")
    blocks.told(2, "queue:a", "messages")
    assert (blocks.reason("queue:a"), blocks.reason("queue:a", 2), blocks.reason("queue:a", 3)) == (
        "messages",
        "messages",
        "",
    )
    blocks.told(1, "queue:a", "")
    assert heard == [("queue:a", "messages")]
    blocks.told(2, "queue:a", "")
    assert heard == [("queue:a", "messages"), ("queue:a", "")]
    blocks.told(2, "queue:a", "")
    assert len(heard) == 2


def test_a_lost_connection_blocks_nobody() -> None:
    heard: list[tuple[str, str]] = []
    blocks = Blocks()
    blocks.told(1, "queue:a", "bytes")
    blocks.on_change = lambda destination, reason: heard.append((destination, reason))
    blocks.forget_all()
    assert blocks.reason("queue:a") == ""
    assert heard == [("queue:a", "")]


def test_a_callback_that_fails_is_its_own_trouble() -> None:
    blocks = Blocks()

    def fail(_destination: str, _reason: str) -> None:
        raise RuntimeError

    blocks.on_change = fail
    blocks.told(1, "queue:a", "bytes")
    assert blocks.reason("queue:a") == "bytes"

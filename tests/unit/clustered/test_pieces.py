"""Copies that are too large for one control word go in pieces, and come together again (H1)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from heliograph.clustered.pieces import Pieces, cut
from heliograph.clustered.words import Copy, Piece, encoded
from heliograph.model import limits

SIZE = limits.CLUSTERED_PIECE_BYTES


def _copy(size: int, *, name: str = "bob", identity: str = "m-1") -> Copy:
    body = bytes(range(256)) * (size // 256) + b"." * (size % 256)
    return Copy(name, "ada", identity, 5, body, {"properties": {"day": datetime(2026, 1, 1, tzinfo=UTC)}})


def _pieces(copy: Copy) -> list[Piece]:
    words = list(cut(copy))
    assert all(isinstance(word, Piece) for word in words)
    return [word for word in words if isinstance(word, Piece)]


def test_a_small_copy_goes_as_it_is() -> None:
    copy = _copy(100_000)
    assert list(cut(copy)) == [copy]


@pytest.mark.req("H1")
@pytest.mark.parametrize("size", [SIZE - 1, SIZE, SIZE + 1, 3 * SIZE, 10_000_000])
def test_a_large_copy_is_put_together_again_and_no_word_is_large(size: int) -> None:
    copy, pieces = _copy(size), Pieces()
    sent = _pieces(copy)
    assert all(len(encoded(word)) < SIZE + 1_000 for word in sent)
    taken = [pieces.take(word) for word in sent]
    assert taken[:-1] == [None] * (len(sent) - 1)
    assert taken[-1] is not None
    assert encoded(taken[-1]) == encoded(copy)
    assert pieces.bytes == 0


def test_copies_of_two_senders_may_come_in_between_each_other() -> None:
    pieces = Pieces()
    bobs, cyds = _pieces(_copy(3 * SIZE)), _pieces(_copy(3 * SIZE, name="cyd", identity="m-2"))
    found = [pieces.take(word) for both in zip(bobs, cyds, strict=True) for word in both]
    assert [copy.id for copy in found if copy is not None] == ["m-1", "m-2"]


@pytest.mark.parametrize("missing", [0, 1])
def test_of_a_copy_with_a_hole_nothing_is_made_and_the_next_one_comes(missing: int) -> None:
    pieces = Pieces()
    broken = _pieces(_copy(3 * SIZE))
    del broken[missing]
    assert [pieces.take(word) for word in broken] == [None] * len(broken)
    assert pieces.bytes == 0
    assert [pieces.take(word) for word in _pieces(_copy(2 * SIZE, identity="m-2"))][-1] is not None


def test_what_is_unfinished_is_bounded_however_many_begin() -> None:
    pieces = Pieces(most_bytes=10 * SIZE)
    for number in range(100):
        for word in _pieces(_copy(3 * SIZE, name=f"member-{number}"))[:-1]:
            assert pieces.take(word) is None
    assert 0 < pieces.bytes <= 10 * SIZE


def test_what_somebody_began_who_is_gone_is_forgotten() -> None:
    pieces = Pieces()
    bobs, cyds = _pieces(_copy(2 * SIZE)), _pieces(_copy(2 * SIZE, name="cyd", identity="m-2"))
    for word in (*bobs[:-1], *cyds[:-1]):
        assert pieces.take(word) is None
    before = pieces.bytes
    pieces.keep_of(["ada", "cyd"])
    assert pieces.bytes == before / 2
    assert pieces.take(bobs[-1]) is None
    assert pieces.take(cyds[-1]) is not None


def test_what_is_larger_than_a_member_may_hold_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLUSTERED_HELD_BYTES", 3 * SIZE)
    assert list(cut(_copy(3 * SIZE))) == []

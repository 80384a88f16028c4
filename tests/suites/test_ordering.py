"""Order under fire: many consumers that fail, lose their connections and are killed (U1, U2)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.suites.ordering import Plan, Result, run
from tests.suites.ordering_board import Board, Hands


def good(result: Result) -> None:
    assert result.out_of_order == []
    assert result.failures == []
    assert result.left_in_queue == 0
    assert result.processed == result.messages


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.req("U1", "U2")
def test_order_is_kept_whatever_becomes_of_the_consumers(tmp_path: Path) -> None:
    result = asyncio.run(run(Plan(messages=40_000, units=1000, kill_seconds=1.0), tmp_path))
    good(result)
    assert result.kills > 0


@pytest.mark.slow
@pytest.mark.req("U1", "U2", "M8")
def test_order_is_kept_by_clients_whose_connections_break_while_messages_go_back(tmp_path: Path) -> None:
    plan = Plan(
        messages=60_000, units=200, consumers=8, processes=2, kill_seconds=3600, returned=0.05, cut=0.05
    )
    good(asyncio.run(run(plan, tmp_path)))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.req("U1", "U2")
def test_a_million_messages_of_ten_thousand_units_are_kept_in_order(tmp_path: Path) -> None:
    good(asyncio.run(run(Plan(), tmp_path)))


# ---- the checker itself


def test_the_board_knows_what_in_order_means(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 10, create=True)
    one, other = Hands(board, 1), Hands(board, 2)
    assert one.take(5, 0, marked=False) == ""
    assert one.take(5, 1, marked=False) == ""
    assert "consumer 1 has some" in other.take(5, 2, marked=False)
    other.drop_all()
    assert one.take(6, 0, marked=False) == ""
    assert "came after 0" in one.take(6, 2, marked=False)
    assert "came while only 0 are processed" in one.take(7, 1, marked=False)
    one.drop_all()
    assert "without a mark" in other.take(5, 0, marked=False)
    other.done(5, 0)
    assert one.take(5, 1, marked=True) == ""


def test_what_a_dead_consumer_had_may_come_again(tmp_path: Path) -> None:
    board = Board(tmp_path / "board", 10, create=True)
    one, other = Hands(board, 1), Hands(board, 2)
    one.take(5, 0, marked=False)
    one.done(5, 0)
    one.take(5, 1, marked=False)
    board.dead[1] = 1
    assert other.take(5, 0, marked=True) == ""
    assert other.take(5, 1, marked=True) == ""

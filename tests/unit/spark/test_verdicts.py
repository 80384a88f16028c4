"""What an audit calls lost, doubled and out of order (D4)."""

from __future__ import annotations

import pytest

from heliograph.spark.pipelines.verdicts import NEVER, judge, overtaking

pytestmark = pytest.mark.req("D4")


def test_a_message_that_was_handed_out_and_done_is_well() -> None:
    verdict = judge([(5, 0, "dispatched", ""), (9, 0, "done", "")], [1])
    assert verdict == ((5, 0), (9, 0), 0, False, False, "")


def test_a_second_hand_out_needs_a_reason() -> None:
    twice = [(5, 0, "dispatched", ""), (7, 0, "dispatched", "")]
    assert judge(twice, [1]).doubled == 1
    assert judge(twice, [1, 6]).doubled == 0, "the server was started again"
    assert judge([twice[0], (6, 0, "returned", ""), twice[1]], [1]).doubled == 0


def test_nothing_is_handed_out_after_it_was_done() -> None:
    history = [(5, 0, "dispatched", ""), (6, 0, "done", ""), (8, 0, "dispatched", "")]
    assert judge(history, [1, 7]).doubled == 1


def test_what_was_done_without_having_been_handed_out_is_removed() -> None:
    assert judge([(6, 0, "done", "")], []).is_removed
    assert not judge([], []).is_removed


def test_what_was_removed_before_it_was_purged_is_not_what_the_purge_took_away() -> None:
    taken = judge([(6, 0, "removed", "purged")], [])
    assert (taken.is_removed, taken.removal) == (True, "purged")
    lost = judge([(4, 0, "done", ""), (6, 0, "removed", "purged")], [])
    assert (lost.is_removed, lost.done, lost.removal) == (True, (4, 0), "")
    assert judge([(6, 0, "removed", "retention"), (8, 0, "dispatched", "")], []).doubled == 1


def test_what_another_part_of_the_cluster_had_is_not_lost_and_comes_no_more() -> None:
    united = judge([(6, 0, "united", "")], [])
    assert united.is_removed
    assert united.is_elsewhere
    assert judge([(6, 0, "united", ""), (8, 0, "dispatched", "")], []).doubled == 1
    acknowledged_later = judge([(5, 0, "seen", ""), (5, 1, "seen", ""), (9, 0, "done", "")], [])
    assert acknowledged_later.is_elsewhere
    assert not judge([(5, 0, "dispatched", ""), (9, 0, "done", "")], []).is_elsewhere


def test_who_was_handed_out_too_early_is_named() -> None:
    assert overtaking([(1, (10, 0)), (2, (10, 1)), (3, (11, 0))]) == []
    assert overtaking([(1, (12, 0)), (2, (11, 0)), (3, (13, 0))]) == [2]
    assert overtaking([(1, NEVER), (2, (11, 0)), (3, NEVER)]) == [2]
    assert overtaking([(1, (11, 0)), (2, (12, 0)), (10, (5, 0))]) == [10]

"""The judge of what real members did is not lenient: what it must find is shown to it here."""

from __future__ import annotations

from pathlib import Path

from tests.clustered.middleware import ALL, UNITS
from tests.clustered.play import Cluster, Effect, Life, judge


def test_a_repeat_is_needed_only_of_what_a_killed_member_had_not_told() -> None:
    effects = [
        Effect(1, 5, False, "ada", was_cut_short=True),
        Effect(1, 6, True, "bob"),
        Effect(2, 5, False, "ada"),
        Effect(2, 6, True, "bob"),
    ]
    verdict = judge(effects, range(1, 4))
    assert verdict.lost == [3]
    assert verdict.repeated == [1, 2]
    assert verdict.repeated_without_need == [2]
    assert not verdict.unmarked


def test_it_is_the_later_one_that_must_be_marked() -> None:
    effects = [Effect(1, 6, False, "ada"), Effect(1, 5, True, "bob")]
    assert judge(effects, range(1, 2)).unmarked == [1]


def test_order_counts_over_members() -> None:
    effects = [Effect(UNITS, 6, False, "ada"), Effect(2 * UNITS, 5, False, "bob")]
    assert judge(effects, range(0)).out_of_order == 1


def test_what_a_life_had_told_excuses_nobody_and_what_another_told_does_not_count(tmp_path: Path) -> None:
    cluster = Cluster(ALL["heliograph"], "", tmp_path)
    (tmp_path / "ada.effects").write_text("m-1 5 0 ada\nm-2 5 0 ada\nm-3 7 0 ada\nm-2 7 1 ada\nm-4 9 0 ada\n")
    (tmp_path / "ada.effects.told").write_text("1\n2\n3\n")
    cluster.lives["ada"] = [Life(2, 1, was_killed=True), Life(4, 3, was_killed=False)]
    assert [effect.was_cut_short for effect in cluster.effects()] == [False, True, False, False, False]

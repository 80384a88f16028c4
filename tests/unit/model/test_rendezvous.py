"""Everybody who knows the same names chooses the same one (U6). These values never change."""

from __future__ import annotations

from collections import Counter

import pytest

from heliograph.model.rendezvous import VERSION, chosen, ranked

pytestmark = pytest.mark.req("U6")
NAMES = ["east", "west", "north"]


def test_the_choices_of_version_1() -> None:
    assert VERSION == 1
    keys = [b"queue:orders-%d" % number for number in range(12)]
    assert "".join(chosen(key, NAMES)[0] for key in keys) == "wwnnweenwwww"
    assert ranked(b"", ["a", "b", "c"]) == ["c", "b", "a"]


def test_the_order_of_the_names_does_not_matter_and_each_gets_its_share() -> None:
    keys = [b"%d" % number for number in range(3000)]
    choices = [chosen(key, NAMES) for key in keys]
    assert choices == [chosen(key, NAMES[::-1]) for key in keys]
    assert all(900 < count < 1100 for count in Counter(choices).values())


def test_only_the_keys_of_a_name_that_goes_move() -> None:
    for key in [b"%d" % number for number in range(500)]:
        before, after = chosen(key, NAMES), chosen(key, NAMES[:2])
        assert after == before or before == NAMES[2]
        assert ranked(key, NAMES)[0] == before

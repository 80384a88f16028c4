"""What a person reads of a distributed destination (U6)."""

from __future__ import annotations

import pytest
from click import unstyle

from heliograph.cli.admin_destination import _members

pytestmark = pytest.mark.req("U6")


def test_each_member_has_a_line_that_says_how_it_is() -> None:
    members = [
        {"sub_cluster": "east", "reachable": True, "leaving": False, "depth": 3, "consumers": 1},
        {"sub_cluster": "north", "reachable": True, "leaving": False},
        {"sub_cluster": "south", "reachable": True, "leaving": True, "depth": 1, "consumers": 0},
        {"sub_cluster": "west", "reachable": False, "leaving": False},
    ]
    lines = _members({"address": "queue:orders", "routing": "path", "members": members})
    assert [unstyle(line) for line in lines] == [
        "  distributed  each unit where it was first",
        "    queue:orders@east: 3 messages, 1 consumer",
        "    queue:orders@north: not used yet",
        "    queue:orders@south: 1 message, 0 consumers, leaving: no unit begins there",
        "    queue:orders@west: cannot be reached: its units are refused",
    ]


def test_of_an_ordinary_destination_nothing_is_said() -> None:
    assert _members({"address": "queue:orders", "depth": 3}) == []

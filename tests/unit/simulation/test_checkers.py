"""Whom the rule on the order of messages takes for a consumer."""

from __future__ import annotations

import pytest

from simulation.checkers import out_of_order
from simulation.history import History
from simulation.world import World


@pytest.mark.parametrize(("others", "is_shown"), [((), True), (("one#2",), True), (("two#1",), False)])
def test_order_is_asked_for_where_nobody_else_can_have_been_given_a_message(
    others: tuple[str, ...], is_shown: bool
) -> None:
    """Partitions 310: the first message was with another, who never saw it, and came behind the second."""
    history = History(World(1))
    for consumer in ("one#1", *others):
        history.asks("queue:many", consumer)
    for key in ("many#1:1", "many#1:2"):
        history.send(key, "queue:many")
    for key in ("many#1:2", "many#1:1"):
        history.handed("queue:many", key, "one#1", is_marked=False)
    assert bool(list(out_of_order(history))) is is_shown

"""The rules that a history is judged by, each shown what it must see, and what it must let pass."""

from __future__ import annotations

import pytest

from simulation.checkers import out_of_order, seen_before_commit
from simulation.history import History, Transaction
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


@pytest.mark.parametrize(("asked_at", "is_shown"), [(2.0, False), (4.0, True), (None, True)])
def test_what_is_sent_in_a_transaction_comes_when_its_commit_was_asked_for(
    asked_at: float | None, is_shown: bool
) -> None:
    world = World(1)
    history = History(world)
    transaction = history.transactions["clerk#1/1"] = Transaction("clerk#1/1", [], ["clerk#1/1:1"])
    history.send("clerk#1/1:1", "queue:out", transaction=transaction.name)
    if asked_at is not None:
        world.now = asked_at
        history.asks_to_commit(transaction)
    world.now = 3.0
    history.handed("queue:out", "clerk#1/1:1", "out#1", is_marked=False)
    assert bool(list(seen_before_commit(history))) is is_shown

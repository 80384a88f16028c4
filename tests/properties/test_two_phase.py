"""A transaction over two sub-clusters has one outcome, whoever dies when (M10, P8; docs/decisions/0013)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.bus.commands import Answered, SessionLost
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.transactions import Transactions
from heliograph.model.ids import SessionId
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.preparing import Preparing
from heliograph.sessions.coordinating import Coordinating
from tests.properties.surroundings import put_managers_here
from tests.properties.two_phase_world import NAMES, World

Steps = list[tuple[str, str]]
Choose = Callable[[Steps], int]
LENGTH = 20  # steps that a transaction takes when nothing happens, and some more


@pytest.fixture(autouse=True)
def managers_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_managers_here(monkeypatch, tmp_path)


def snapshots(world: World) -> None:
    for cluster in world.clusters.values():
        cluster.snapshot()


def death_of(name: str, *, loses: bool, forgets: bool) -> Callable[[World], None]:
    return lambda world: world.sub_cluster_dies(name, loses=loses, forgets=forgets)


FAULTS: dict[str, Callable[[World], None]] = {
    **{
        f"{name} dies{' with what it wrote last' * loses}{', and all it was told' * forgets}": death_of(
            name, loses=loses, forgets=forgets
        )
        for name in NAMES
        for loses in (False, True)
        for forgets in (False, True)
    },
    "the client moves": lambda world: world.client_moves(),
    "the client manager dies": lambda world: world.manager_dies(takes_client=False, loses=False),
    "the client manager dies unheard": lambda world: world.manager_dies(takes_client=False, loses=True),
    "client and client manager die": lambda world: world.manager_dies(takes_client=True, loses=False),
    "client and client manager die unheard": lambda world: world.manager_dies(takes_client=True, loses=True),
    "snapshots": snapshots,
    "time passes": lambda world: world.pass_time(10),
    "much time passes": lambda world: world.pass_time(70),
}
ORDERS: dict[str, Choose] = {
    "east first": lambda _steps: 0,
    "west first": lambda steps: max(range(len(steps)), key=lambda at: (steps[at][1] == "west", -at)),
    "stores last": lambda steps: min(range(len(steps)), key=lambda at: steps[at][0] == "store"),
}


def run(faults: dict[int, str], choose: Choose) -> str:
    """Everything in an order that `choose` gives, with faults before steps of these numbers."""
    world = World()
    number = 0
    while world.steps() or number <= max(faults, default=0):
        if number in faults:
            FAULTS[faults[number]](world)
            world.check()
        number += 1
        steps = world.steps()
        if steps:
            world.take(steps[choose(steps)])
        world.check()
    world.settle()
    world.check()
    return world.judge()


def run_seed(seed: int) -> str:
    dice = random.Random(seed)
    faults = {dice.randrange(LENGTH): dice.choice(list(FAULTS)) for _ in range(dice.choice((0, 1, 2, 3, 5)))}
    return run(faults, lambda steps: dice.randrange(len(steps)))


@pytest.mark.req("M10")
@pytest.mark.parametrize("order", ORDERS)
def test_all_is_well_when_nothing_happens(order: str) -> None:
    assert run({}, ORDERS[order]) == "committed"


@pytest.mark.req("M10", "P8")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_outcome_whatever_fails_before_whichever_step(fault: str, order: str) -> None:
    outcomes = [run({at: fault}, ORDERS[order]) for at in range(LENGTH)]
    assert "committed" in outcomes


@pytest.mark.req("M10", "P8")
@pytest.mark.parametrize("first", FAULTS)
def test_one_outcome_when_two_things_fail_close_to_each_other(first: str) -> None:
    for second in FAULTS:
        for at in range(0, LENGTH, 5):
            run({at: first, at + 2: second}, ORDERS["stores last"])


@pytest.mark.req("M10", "P8")
@pytest.mark.parametrize("begin", range(0, 400, 100))
def test_one_outcome_in_any_order_and_with_any_faults(begin: int) -> None:
    outcomes = {run_seed(seed) for seed in range(begin, begin + 100)}
    assert outcomes == {"committed", "aborted"}


@pytest.mark.nightly
@pytest.mark.req("M10", "P8")
def test_one_outcome_in_very_many_orders() -> None:
    for seed in range(20_000):
        run_seed(seed)


# ---- promises that are broken on purpose


def _aborts_alone(honest: Callable[..., None]) -> Callable[..., None]:
    def session_lost(self: MessageManager, command: SessionLost) -> None:
        for prepared in list(self.catalogue.transactions.prepared.values()):
            self._preparing._abort(prepared)
        honest(self, command)

    return session_lost


def _forgets_with_the_session(honest: Callable[..., None]) -> Callable[..., None]:
    def forget(self: Transactions, session: SessionId) -> None:
        honest(self, session)
        self.finishing.clear()

    return forget


def _holds_nothing(_honest: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    return lambda _self, _record: iter(())


def _forgets_in_snapshots(_honest: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda _self: []


def _answers_at_once(_honest: Callable[..., None]) -> Callable[..., None]:
    def answer(self: Preparing, request: int, body: dict[str, str]) -> None:
        self._manager.multicast(Answered(request, body))

    return answer


def _aborts_in_words_only(_honest: Callable[..., None]) -> Callable[..., None]:
    return lambda _self, _session, _number: None


def _aborts_before_the_decider(_honest: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def refused(self: Coordinating, transaction: Any, _name: str, code: str, sentence: str) -> list[Any]:
        transaction.refusal = (code, sentence)
        return self._learned(transaction, "aborted")

    return refused


PLANTS: dict[str, tuple[type, str, Callable[[Any], Any]]] = {
    "abort alone when the session is lost": (MessageManager, "_session_lost", _aborts_alone),
    "the decider forgets with the session": (Transactions, "forget", _forgets_with_the_session),
    "recovery gives out what is promised": (CatalogueRecovery, "_consumed_in", _holds_nothing),
    "a snapshot forgets promises": (Transactions, "all_prepared", _forgets_in_snapshots),
    "READY before it is stored": (Preparing, "_answer", _answers_at_once),
    "a refusal is not taken to the decider first": (Coordinating, "_refused", _aborts_before_the_decider),
    "the decider does not write that it aborts": (Preparing, "_abort_for_good", _aborts_in_words_only),
}


@pytest.mark.req("M10")
@pytest.mark.parametrize("plant", PLANTS)
def test_a_promise_that_is_broken_shows(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, name, broken = PLANTS[plant]
    monkeypatch.setattr(kind, name, broken(getattr(kind, name)))
    for seed in range(3000):
        try:
            run_seed(seed)
        except (AssertionError, ValueError):
            return
    pytest.fail("nobody noticed")

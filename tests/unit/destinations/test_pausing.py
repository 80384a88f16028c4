"""Who goes on sending while production is paused (U8), and what a snapshot keeps of a pause."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import FlowChanged, Published, Refused
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.pausing import Paused
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.snapshot import snapshot_of
from heliograph.destinations.waiting import Residence
from heliograph.model.destination import Address
from heliograph.model.limits import PRODUCER_WINDOW_MESSAGES
from heliograph.model.policy import Policy
from tests.unit.destinations.stories import LANE, OTHER_LANE, several, told

pytestmark = pytest.mark.req("U8")

NOW = 1_000_000
QUEUE = Address("queue:a")


def paused(catalogue: Catalogue, destination: Destination, state: Paused) -> list[FlowChanged]:
    effects: list[AnyEffect] = []
    catalogue.set_paused(destination, state, effects)
    return told(effects, FlowChanged)


def a_queue() -> tuple[Catalogue, Destination]:
    catalogue = Catalogue(Residence(10**9))
    return catalogue, catalogue.find_or_make(QUEUE, [], create=True)


def test_what_was_under_way_is_taken_and_what_comes_after_that_is_not() -> None:
    catalogue, queue = a_queue()
    assert paused(catalogue, queue, Paused(production=True)) == [FlowChanged(QUEUE, "paused")]
    sent = 0
    refused: list[Refused] = []
    while not refused:
        block = several(sent + 1, 1000, persistent=False)
        refused = told(queue.handle(Published(QUEUE, block), NOW), Refused)
        sent += 1000
    assert sent == PRODUCER_WINDOW_MESSAGES + 1000
    assert (refused[0].lane, refused[0].code) == (LANE, "destination-paused")
    other = several(1, 10, lane=OTHER_LANE, persistent=False)
    assert told(queue.handle(Published(QUEUE, other), NOW), Refused) == [], "everybody has a window"


def test_a_destination_that_is_full_when_it_is_resumed_still_blocks() -> None:
    catalogue, queue = a_queue()
    catalogue.set_policy(QUEUE, Policy(high_water_messages=10), [])
    paused(catalogue, queue, Paused(production=True))
    queue.handle(Published(QUEUE, several(1, 10, persistent=False)), NOW)
    assert paused(catalogue, queue, Paused()) == [FlowChanged(QUEUE, "messages")]
    assert paused(catalogue, queue, Paused(production=True)) == [FlowChanged(QUEUE, "paused")]
    queue.purge([])
    assert paused(catalogue, queue, Paused()) == [FlowChanged(QUEUE, "")]


def test_a_snapshot_keeps_a_pause() -> None:
    catalogue, queue = a_queue()
    paused(catalogue, queue, Paused(production=True, consumption=True))
    again = Catalogue(Residence(10**9))
    CatalogueRecovery(again, 0.0).snapshot(memoryview(snapshot_of(catalogue, b"")))
    assert again.by_address[QUEUE].pause.state == Paused(production=True, consumption=True)
    assert all(messages.paused for messages in again.by_address[QUEUE].lists())

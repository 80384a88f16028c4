"""Queues and topics in a cluster that comes apart, against the rules of what may be handed out (P3, P7, P9).

Everything of `test_destination_engines.py` goes on meanwhile: paging, full disks, compaction, crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import initialize, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from heliograph.cluster.dispatch_rules import Hold, Message, Situation, own_hold
from heliograph.cluster.partition_state import State
from heliograph.destinations import partition_gate, recovery
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.doubts import Doubt, Doubts
from heliograph.destinations.holding_back import HoldingBack
from heliograph.destinations.partition_gate import PartitionGate
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.snapshot import CatalogueState, decode_state
from heliograph.destinations.stamps import Stamps
from heliograph.destinations.views import Views
from heliograph.destinations.waiting import Waiting
from heliograph.nodes import message_manager
from tests.properties import test_destination_engines as engines
from tests.properties.destination_world import ADDRESSES, Client
from tests.properties.gated_world import PartedWorld
from tests.properties.test_destination_engines import CREDIT, Destinations, Shape, machine_settings, packed

everything_is_small = engines.everything_is_small


class PartedDestinations(Destinations):
    """The same, with views that come and go."""

    world: PartedWorld

    @initialize(resident_bytes=st.sampled_from([0, 1500, 4000, 10**9]), credit=CREDIT)
    def start(self, resident_bytes: int, credit: int) -> None:
        self.world = PartedWorld(resident_bytes)
        ann = self.world.open_session("ann", "one")
        self.world.open_session("bob", "two")
        for address in ADDRESSES:
            self.world.attach(ann, address, credit)

    def _client(self, data: st.DataObject) -> Client:
        """One that is not in another part."""
        here = [each for each in self.world.clients.values() if not self.world.is_away(each)]
        if not here:
            here = [self.world.open_session("eve", "three")]
        client = data.draw(st.sampled_from(here), label="client")
        if any(lane.cut_off for lane in self.world.lanes_of(client)):
            self.world.resume_session(client)
        return client

    @rule(data=st.data())
    def lose_a_client_to_another_part(self, data: st.DataObject) -> None:
        self.world.lose_to_another_part(self._client(data))

    @precondition(lambda self: any(map(self.world.is_away, self.world.clients.values())))
    @rule(data=st.data())
    def a_client_comes_back(self, data: st.DataObject) -> None:
        away = [each for each in self.world.clients.values() if self.world.is_away(each)]
        self.world.resume_session(data.draw(st.sampled_from(away), label="client"))

    @precondition(lambda self: self.world.may_give_up)
    @rule()
    def leases_pass(self) -> None:
        self.world.give_up_waiting()

    @rule(state=st.sampled_from(State), in_force=st.booleans())
    def enter_a_view(self, state: State, in_force: bool) -> None:
        self.world.enter(state)
        if in_force and state is not State.D:
            self.world.come_into_force()

    @rule()
    def enter_a_restricted_view(self) -> None:
        self.world.enter(State.D)

    @rule(state=st.sampled_from([State.B, State.C]))
    def enter_an_unrestricted_view(self, state: State) -> None:
        self.world.enter(state)
        self.world.come_into_force()

    @rule()
    def attempt_a_view(self) -> None:
        self.world.enter(State.D, attempt=True)

    @rule(state=st.sampled_from(State))
    def enter_a_view_that_takes_along(self, state: State) -> None:
        self.world.enter(state, takes_along=True)

    @precondition(lambda self: self.world.may_come_into_force)
    @rule()
    def come_into_force(self) -> None:
        self.world.come_into_force()

    @rule()
    def become_whole(self) -> None:
        self.world.enter(State.A)
        self.world.come_into_force()
        self.world.become_whole()


@pytest.mark.req("P1", "P3", "P7", "P9")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_is_handed_out_in_parts_agrees_with_the_rules() -> None:
    run_machine(PartedDestinations, settings=machine_settings(150, 50))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.req("P1", "P3", "P7", "P9")
def test_what_is_handed_out_in_parts_agrees_with_the_rules_all_night() -> None:
    run_machine(PartedDestinations, settings=machine_settings(4000, 80))


@pytest.mark.req("P3")
def test_a_page_that_is_being_read_takes_no_more_though_views_change_meanwhile() -> None:
    parted = PartedDestinations()
    parted.start(resident_bytes=0, credit=100)
    world = parted.world
    parted.become_whole()
    (lane,) = [
        lane for lane in world.lanes_of(next(iter(world.clients.values()))) if lane.address == ADDRESSES[0]
    ]
    for shape in (Shape(True, (4, 4, 4, 9, 4)), Shape(False, (4,))):
        world.publish(lane, packed(lane, lane.next_sequence, shape))
        parted.store_all()
        parted.agrees_with_the_model()
        parted.enter_a_restricted_view()
        parted.attempt_a_view()
        parted.agrees_with_the_model()
    parted.teardown()


def _doubts_over_restarts() -> None:
    """A client in another part has something; all end, once more behind a snapshot, it comes back, and all end."""
    parted = PartedDestinations()
    parted.start(resident_bytes=10**9, credit=100)
    world = parted.world
    parted.become_whole()
    client, others = world.clients.values()
    (lane,) = [lane for lane in world.lanes_of(others) if lane.address == ADDRESSES[0]]
    world.publish(lane, packed(lane, lane.next_sequence, Shape(True, (4, 4, 4))))
    parted.store_all()
    parted.enter_an_unrestricted_view(State.B)
    world.lose_to_another_part(client)
    steps: list[Callable[[], object]] = [
        lambda: None,
        parted.snapshot,
        lambda: world.resume_session(client),
        parted.become_whole,
    ]
    for step in steps:
        step()
        parted.store_all()
        parted.agrees_with_the_model()
        world.crash(world.journal.boundaries[-1], machine=False)
        parted.agrees_with_the_model()
        parted.enter_an_unrestricted_view(State.B)
        world.attach(others, ADDRESSES[0], 100)
        while world.journal.loads:
            world.page_arrives()
        parted.agrees_with_the_model()
        if not world.is_away(client):
            world.lose_to_another_part(others)
    parted.teardown()


@pytest.mark.req("P4", "M8")
def test_what_is_in_doubt_agrees_with_the_model_over_restarts() -> None:
    _doubts_over_restarts()


# ---- planted bugs


def without(hold: Hold) -> Any:
    """A gate that does not know a reason to wait."""

    def forgetful(situation: Situation, message: Message) -> Hold | None:
        found = own_hold(situation, message)
        return None if found is hold else found

    return patch.object(partition_gate, "own_hold", forgetful)


def _cuts_no_page(waiting: Waiting, spans: list[Any], pages: list[Any]) -> None:
    """What returns is put behind all others."""
    for span in spans:
        waiting.append(span)
    waiting.restore(pages)


_note_doubt = message_manager.MessageManager._note_doubt


def _only_begins(manager: message_manager.MessageManager, doubt: Doubt | None) -> None:
    if doubt is not None and doubt.attached is not None:
        _note_doubt(manager, doubt)


def _without_doubts(payload: bytes | memoryview) -> CatalogueState:
    return msgspec.structs.replace(decode_state(payload), doubts=[])


_became_whole = Catalogue.became_whole


def _ends_doubts(catalogue: Catalogue) -> None:
    catalogue.doubts = Doubts()
    _became_whole(catalogue)


OF_DOUBTS: dict[str, Callable[[], Any]] = {
    "what is in doubt is not written down": lambda: patch.object(
        message_manager, "doubt_of", lambda *_: None
    ),
    "doubts end with the process": lambda: patch.object(CatalogueRecovery, "_in_doubt", lambda _: []),
    "doubts are not in the snapshot": lambda: patch.object(recovery, "decode_state", _without_doubts),
    "who came back is in doubt after a restart": lambda: patch.object(
        message_manager.MessageManager, "_note_doubt", _only_begins
    ),
    "a moment in which the cluster is whole ends doubts": lambda: patch.object(
        Catalogue, "became_whole", _ends_doubts
    ),
}

PLANTS: dict[str, Callable[[], Any]] = {
    "an older message goes in D": lambda: without(Hold.OLDER),
    "what a restricted part accepted goes in B": lambda: without(Hold.FROM_RESTRICTED),
    "what was sent again is taken for new": lambda: without(Hold.SENT_AGAIN),
    "a gap is passed over": lambda: without(Hold.GAP),
    "a view decides before it is in force": lambda: patch.object(
        HoldingBack, "is_closed", property(lambda _: False, lambda _, value: None), create=True
    ),
    "a newer message overtakes on its lane": lambda: patch.object(
        PartitionGate, "_is_behind", lambda *_: False
    ),
    "what is on disk makes nobody wait": lambda: patch.object(
        PartitionGate, "_is_in_doubt", lambda *_: False
    ),
    "what waited for a page waits for ever": lambda: patch.object(
        PartitionGate, "take_cleared", lambda _: []
    ),
    "what returns is behind all others": lambda: patch.object(Waiting, "lay_out", _cuts_no_page),
    "the gate is forgotten after recovery": lambda: patch.object(Views, "wait_for_view", lambda _: None),
    "stamps are not in the snapshot": lambda: patch.object(Stamps, "state", None),
    "a view that was entered is not replayed": lambda: patch.object(Views, "_entered", lambda *_: None),
    "what nobody was whole for is forgotten": lambda: patch.object(Stamps, "_restrict", lambda *_: None),
    "nothing returns": lambda: patch.object(HoldingBack, "open_gate", lambda _: None),
}


# These take the longest to show; the others are tried every day.
_AT_NIGHT = (
    "what waited for a page waits for ever",
    "a gap is passed over",
    "what returns is behind all others",
    "what is on disk makes nobody wait",
    "what was sent again is taken for new",
    "stamps are not in the snapshot",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in _AT_NIGHT)) for name in PLANTS]
)
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_planted_bugs_are_found(name: str) -> None:
    hunting = settings(
        machine_settings(3000, 50), phases=[Phase.generate], database=None, report_multiple_bugs=False
    )
    with PLANTS[name](), pytest.raises((AssertionError, KeyError, HypothesisException)):
        run_machine(PartedDestinations, settings=hunting)


@pytest.mark.req("P4")
@pytest.mark.parametrize("name", OF_DOUBTS)
def test_planted_bugs_about_doubts_are_found(name: str) -> None:
    with OF_DOUBTS[name](), pytest.raises((AssertionError, KeyError)):
        _doubts_over_restarts()

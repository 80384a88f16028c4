"""Sessions come, are lost, return and are forgotten; destinations are made on first use (J1, M8)."""

import pytest
from msgspec.structs import replace

from heliograph.bus.commands import (
    Answered,
    DestinationWanted,
    Published,
    Rejected,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    SubscriptionEnded,
)
from heliograph.cluster.partition_state import State
from heliograph.destinations import catalogue as catalogues
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.effects import AnyEffect, Write
from heliograph.destinations.queue import Queue
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.snapshot import snapshot_of
from heliograph.destinations.subscriptions import FOR_OTHER_PARTS
from heliograph.destinations.topic import Topic
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import Record, RecordKind
from heliograph.model.destination import Address
from heliograph.model.errors import HeliographError
from heliograph.model.ids import SessionId, lane_of
from heliograph.model.session_token import TOKEN_BYTES, token_of
from tests.unit.destinations.stories import a_session, asked, lone, told

ORDERS = Address("queue:orders")
PRICES = Address("topic:prices")
NOW = 1_000_000


def opened(catalogue: Catalogue, user: str = "ann", *, kept: bool = False) -> SessionId:
    session = a_session()
    effects = catalogue.session_opened(SessionOpened(1, session, user, b"secret", kept=kept), 100.0)
    assert told(effects, Answered) == [Answered(1, {})]
    return session


def wanted(catalogue: Catalogue, session: SessionId, address: Address, number: int = 1) -> list[AnyEffect]:
    return catalogue.wanted(DestinationWanted(2, address, True, lane_of(session, number)))


def resumed(
    catalogue: Catalogue, session: SessionId, user: str = "ann", token: bytes = b"secret"
) -> Answered | Rejected:
    effects = catalogue.session_resumed(SessionResumed(3, session, user, token))
    answers: list[Answered | Rejected] = [*told(effects, Answered), *told(effects, Rejected)]
    assert len(answers) == len(effects) == 1
    return answers[0]


def new_catalogue() -> Catalogue:
    return Catalogue(Residence(10**9))


@pytest.mark.req("J1")
def test_a_destination_comes_into_being_on_first_use_and_is_written_down_once() -> None:
    catalogue = new_catalogue()
    session = opened(catalogue)
    effects = wanted(catalogue, session, ORDERS)
    assert [write.kind for write in asked(effects, Write)] == [RecordKind.DESTINATION]
    assert [(each.request, each.body["last"]) for each in told(effects, Answered)] == [(2, 0)]
    assert asked(wanted(catalogue, opened(catalogue), ORDERS), Write) == []
    wanted(catalogue, session, PRICES, 2)
    assert isinstance(catalogue.by_address[ORDERS], Queue)
    assert isinstance(catalogue.by_address[PRICES], Topic)
    assert [each.number for each in catalogue.all_destinations()] == [1, 2]


@pytest.mark.req("J1")
def test_where_policy_forbids_it_nothing_is_made() -> None:
    catalogue = new_catalogue()
    effects = catalogue.wanted(DestinationWanted(2, ORDERS, False, lane_of(opened(catalogue), 1)))
    assert [each.code for each in told(effects, Rejected)] == ["destination-unknown"]
    assert not catalogue.by_address


def test_what_is_kept_for_other_parts_is_no_clients_to_see_or_to_end() -> None:
    catalogue = new_catalogue()
    wanted(catalogue, opened(catalogue), PRICES)
    topic = catalogue.by_address[PRICES]
    assert isinstance(topic, Topic)
    topic._make(FOR_OTHER_PARTS, [])
    assert catalogue.subscriptions_of("") == []
    effects = catalogue.end_subscription(SubscriptionEnded(4, "", FOR_OTHER_PARTS.name))
    assert [answer.code for answer in told(effects, Rejected)] == ["subscription-unknown"]
    assert topic.kept_list is not None


def test_destinations_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "MAX_DESTINATIONS", 1)
    catalogue = new_catalogue()
    session = opened(catalogue)
    wanted(catalogue, session, ORDERS)
    effects = wanted(catalogue, session, PRICES)
    assert [each.code for each in told(effects, Rejected)] == ["too-many-destinations"]
    assert told(wanted(catalogue, session, ORDERS), Answered), "the one that is there can be used"


def test_a_client_that_returns_learns_how_far_each_lane_has_come() -> None:
    catalogue = new_catalogue()
    session = opened(catalogue)
    for number, address in ((1, ORDERS), (2, PRICES)):
        wanted(catalogue, session, address, number)
    catalogue.by_address[PRICES].handle(Published(PRICES, lone(1, lane=lane_of(session, 2))), NOW)
    catalogue.session_lost(SessionLost(session), 50.0)
    answer = resumed(catalogue, session)
    assert isinstance(answer, Answered)
    assert answer.body["lanes"] == [(1, ORDERS, 0), (2, PRICES, 1)]
    assert catalogue.forget_lost_before(10**9) == [], "it has a connection again"


def test_a_session_is_resumed_only_by_whom_it_belongs_to() -> None:
    catalogue = new_catalogue()
    session = opened(catalogue)
    refusals = [
        resumed(catalogue, session, token=b"guess"),
        resumed(catalogue, session, user="bob"),
        resumed(catalogue, a_session()),
    ]
    assert [each.code for each in refusals if isinstance(each, Rejected)] == ["session-unknown"] * 3
    assert isinstance(resumed(catalogue, session), Answered)


def test_a_session_that_was_closed_is_forgotten_with_its_lanes() -> None:
    catalogue = new_catalogue()
    session = opened(catalogue)
    wanted(catalogue, session, ORDERS)
    orders = catalogue.by_address[ORDERS]
    orders.handle(Published(ORDERS, lone(1, lane=lane_of(session, 1))), NOW)
    assert orders.intake.marks()
    effects = catalogue.session_closed(SessionClosed(session))
    assert [write.kind for write in asked(effects, Write)] == [RecordKind.SESSION]
    assert not orders.intake.marks()
    assert isinstance(resumed(catalogue, session), Rejected)
    assert catalogue.session_closed(SessionClosed(session)) == []
    assert catalogue.user_of(lane_of(session, 1)) == ""


def test_only_sessions_that_were_lost_long_ago_are_forgotten() -> None:
    catalogue = new_catalogue()
    long_ago, just_now, connected = (opened(catalogue) for _ in range(3))
    catalogue.session_lost(SessionLost(long_ago), 10.0)
    catalogue.session_lost(SessionLost(just_now), 20.0)
    catalogue.session_lost(SessionLost(a_session()), 5.0)
    assert len(catalogue.forget_lost_before(15.0)) == 1
    assert list(catalogue.sessions) == [just_now, connected]


def test_beyond_the_limit_lost_sessions_make_room_and_connected_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogues, "MAX_REMEMBERED_SESSIONS", 3)
    catalogue = new_catalogue()
    older, newer, _connected = (opened(catalogue) for _ in range(3))
    catalogue.session_lost(SessionLost(newer), 20.0)
    catalogue.session_lost(SessionLost(older), 10.0)
    fourth = opened(catalogue)
    assert older not in catalogue.sessions
    assert newer in catalogue.sessions
    catalogue.sessions[newer].lost_at = 0.0
    effects = catalogue.session_opened(SessionOpened(9, a_session(), "eve", b""), 1.0)
    assert [each.code for each in told(effects, Rejected)] == ["too-many-sessions"]
    assert asked(effects, Write) == []
    assert fourth in catalogue.sessions


def test_a_restart_remembers_sessions_and_destinations_as_written() -> None:
    catalogue = new_catalogue()
    effects: list[AnyEffect] = []
    kept, closed = a_session(), a_session()
    for session in (kept, closed):
        effects += catalogue.session_opened(SessionOpened(1, session, "ann", b"secret"), 1.0)
    effects += wanted(catalogue, kept, ORDERS)
    effects += catalogue.session_closed(SessionClosed(closed))
    again = new_catalogue()
    recovery = CatalogueRecovery(again, 70.0)
    for lsn, write in enumerate(asked(effects, Write), start=1):
        recovery.record(Record(write.kind, 0, 0, lsn, lsn * 8, write.payload))
    assert list(again.sessions) == [kept]
    assert again.sessions[kept].lost_at == 70.0, "nobody is connected yet"
    assert again.by_number[1].address == ORDERS
    assert isinstance(resumed(again, kept), Answered)


@pytest.mark.req("M9")
def test_a_record_of_a_later_version_is_not_passed_over() -> None:
    recovery = CatalogueRecovery(new_catalogue(), 70.0)
    for kind in RecordKind:
        assert kind < 200
    with pytest.raises(
        HeliographError, match="a record of kind 200, which this version does not know"
    ) as late:
        recovery.record(Record(200, 0, 0, 1, 8, b"news"))
    assert late.value.code == "journal-version"


# ---- clients that store and forward (U7)


@pytest.mark.req("U7")
def test_a_kept_session_is_remembered_longer_than_others_once_it_has_a_lane() -> None:
    catalogue = new_catalogue()
    ordinary, unused, kept = opened(catalogue), opened(catalogue, kept=True), opened(catalogue, kept=True)
    wanted(catalogue, ordinary, ORDERS)
    wanted(catalogue, kept, ORDERS)
    for session in (ordinary, unused, kept):
        catalogue.session_lost(SessionLost(session), 1000.0)
    catalogue.forget_lost_before(2000.0, 500.0)
    assert list(catalogue.sessions) == [kept]
    assert isinstance(resumed(catalogue, kept), Answered)
    catalogue.session_lost(SessionLost(kept), 1000.0)
    catalogue.forget_lost_before(2000.0, 1500.0)
    assert list(catalogue.sessions) == []


@pytest.mark.req("U7")
def test_a_kept_session_makes_no_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "MAX_REMEMBERED_SESSIONS", 2)
    catalogue = new_catalogue()
    kept, ordinary = opened(catalogue, kept=True), opened(catalogue)
    wanted(catalogue, kept, ORDERS)
    catalogue.session_lost(SessionLost(kept), 1.0)
    catalogue.session_lost(SessionLost(ordinary), 2.0)
    newcomer = opened(catalogue)
    assert list(catalogue.sessions) == [kept, newcomer]


@pytest.mark.req("U7")
def test_there_are_only_so_many_kept_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "MAX_KEPT_SESSIONS", 1)
    catalogue = new_catalogue()
    opened(catalogue, kept=True)
    effects = catalogue.session_opened(SessionOpened(1, a_session(), "ann", b"secret", kept=True), 100.0)
    assert [answer.code for answer in told(effects, Rejected)] == ["too-many-sessions"]
    opened(catalogue)


@pytest.mark.req("U7")
def test_a_restart_knows_which_sessions_are_kept() -> None:
    before = new_catalogue()
    session = a_session()
    effects = before.session_opened(SessionOpened(1, session, "ann", b"secret", kept=True), 100.0)
    wanted(before, session, ORDERS)
    [written] = [effect.payload for effect in effects if isinstance(effect, Write)]
    by_record, by_snapshot = new_catalogue(), new_catalogue()
    by_record.replay_session(written, 50.0)
    CatalogueRecovery(by_snapshot, 50.0).snapshot(memoryview(snapshot_of(before, b"boot")))
    assert by_record.sessions[session].kept
    assert by_snapshot.sessions[session].is_needed


KEY = b"of the cluster"


def came_from_elsewhere(user: str = "ann", key: bytes = KEY) -> SessionResumed:
    session = a_session()
    return SessionResumed(3, session, user, token_of(bytes(range(TOKEN_BYTES)), session, user, key))


@pytest.mark.req("P7")
def test_a_session_that_another_part_opened_is_known_by_its_token_until_the_cluster_is_whole() -> None:
    catalogue = new_catalogue()
    command = came_from_elsewhere()
    assert not catalogue.is_of_another_part(command, KEY), "there are no parts"
    catalogue.views.enter(b"a view", State.C)
    catalogue.views.comes_into_force()
    assert catalogue.is_of_another_part(command, KEY)
    catalogue.views.becomes_whole()
    assert not catalogue.is_of_another_part(command, KEY), "whoever opened it would be here"


@pytest.mark.req("P7", "X2")
def test_a_token_that_the_cluster_did_not_give_for_this_session_and_user_opens_nothing() -> None:
    catalogue = new_catalogue()
    catalogue.views.enter(b"a view", State.D)
    command = came_from_elsewhere()
    for wrong in (
        replace(command, user="bob"),
        replace(command, session=a_session()),
        replace(command, token=command.token[:-1] + b"!"),
        replace(command, token=command.token + b"!"),
        replace(command, token=b""),
        came_from_elsewhere(key=b"of another"),
        came_from_elsewhere(key=b""),
    ):
        assert not catalogue.is_of_another_part(wrong, KEY)
    assert not catalogue.is_of_another_part(came_from_elsewhere(key=b""), b""), "where there is no key"


@pytest.mark.req("P7")
def test_a_session_that_was_closed_here_is_not_taken_for_one_of_another_part() -> None:
    catalogue = new_catalogue()
    catalogue.views.enter(b"a view", State.D)
    command = came_from_elsewhere()
    catalogue.session_opened(SessionOpened(1, command.session, command.user, command.token), 100.0)
    assert not catalogue.is_of_another_part(command, KEY), "it is known"
    for write in asked(catalogue.session_closed(SessionClosed(command.session)), Write):
        catalogue.ledger.add(write.kind, 0, 0, write.payload)
    assert not catalogue.is_of_another_part(command, KEY)

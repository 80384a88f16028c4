"""The path service: where a unit is, who uses it, and when it is forgotten (U6)."""

from __future__ import annotations

import pytest

from heliograph.bus.commands import PathsChecked, PathsUnused, PathWanted
from heliograph.destinations import paths as module
from heliograph.destinations.paths import Paths, encode_path
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import SessionId

pytestmark = pytest.mark.req("U6")
ORDERS = Address("queue:orders")
ANN, BOB = SessionId(b"a" * 16), SessionId(b"b" * 16)
MEMBERS = ["east", "west"]


def want(paths: Paths, unit: int, session: SessionId = ANN, members: list[str] | None = None) -> str:
    member, _ = paths.wanted(PathWanted(1, ORDERS, unit, session, members or MEMBERS))
    return member


def ask(paths: Paths, now: int) -> PathsUnused:
    (news,) = paths.unused(now)
    return news


def answer(
    paths: Paths, news: PathsUnused, oldest: int, following: int, still_open: list[SessionId] | None = None
) -> None:
    checked = PathsChecked(ORDERS, news.member, news.units, news.mark, oldest, following, still_open or [])
    list(paths.checked(checked))


def test_units_are_shared_out_and_whoever_asks_is_told_the_same() -> None:
    paths = Paths()
    places = [want(paths, unit) for unit in range(1, 41)]
    assert places.count("east") == places.count("west") == 20
    assert [want(paths, unit, BOB) for unit in range(1, 41)] == places


def test_a_unit_whose_member_was_removed_gets_another_and_one_that_leaves_keeps_its_units() -> None:
    paths = Paths()
    place = want(paths, 1)
    other = next(name for name in MEMBERS if name != place)
    leaving = PathWanted(1, ORDERS, 1, BOB, [other], [place])
    assert paths.wanted(leaving)[0] == place
    assert want(paths, 1, BOB, [other]) == other
    assert want(paths, 1, ANN) == other


def test_an_empty_member_lets_a_path_go_and_one_with_older_messages_does_not() -> None:
    paths = Paths()
    want(paths, 1)
    assert not list(paths.unused(1))
    paths.session_ended(ANN)
    news = ask(paths, 2)
    assert (news.units, news.sessions) == ([1], [ANN])
    answer(paths, news, 5, 9)
    answer(paths, ask(paths, 3), 8, 12)
    assert len(paths) == 1
    answer(paths, ask(paths, 4), 9, 13)  # all that was there when it was first asked is gone
    assert not len(paths)


def test_nothing_is_forgotten_while_its_last_session_may_still_be_sending() -> None:
    paths = Paths()
    want(paths, 1)
    paths.session_ended(ANN)
    answer(paths, ask(paths, 1), 5, 5, [ANN])
    assert len(paths) == 1
    answer(paths, ask(paths, 2), 5, 5)
    assert not len(paths)


def test_an_answer_is_void_when_the_unit_was_used_since_and_so_is_one_to_an_earlier_question() -> None:
    paths = Paths()
    want(paths, 1)
    paths.session_ended(ANN)
    first = ask(paths, 1)
    want(paths, 1, BOB)
    answer(paths, first, 5, 5)
    assert len(paths) == 1
    paths.session_ended(BOB)
    answer(paths, first, 5, 5)
    assert len(paths) == 1
    second = ask(paths, 2)
    answer(paths, first, 5, 5)
    assert len(paths) == 1
    answer(paths, second, 5, 5)
    assert not len(paths)


def test_what_a_member_cannot_say_changes_nothing() -> None:
    paths = Paths()
    want(paths, 1)
    paths.session_ended(ANN)
    for now in range(1, 4):
        answer(paths, ask(paths, now), 0, 9)
    assert len(paths) == 1


def test_the_journal_and_snapshots_bring_it_back() -> None:
    paths, replayed = Paths(), Paths()
    for unit in range(1, 9):
        for session in (ANN, BOB):
            _, record = paths.wanted(PathWanted(1, ORDERS, unit, session, MEMBERS))
            assert record is not None
            replayed.replay(encode_path(record))
    for each in (paths, replayed):
        each.session_ended(ANN)
    restored = Paths()
    restored.restore(paths.states())
    for each in (replayed, restored):
        assert each.states() == paths.states()
        each.session_ended(BOB)
        assert sorted(unit for news in each.unused(1) for unit in news.units) == list(range(1, 9))


def test_there_is_an_end_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PATHS", 2)
    paths = Paths()
    for unit in (1, 2, 1, 2):
        want(paths, unit)
    with pytest.raises(Unavailable) as refusal:
        want(paths, 3)
    assert refusal.value.code == "too-many-paths"

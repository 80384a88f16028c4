"""What every bus must do, told once. A bus passes when its world, which knows how to make members of it, runs these
stories: `test_bus_local.py` here, `test_bus_corosync.py` in tests/cluster."""

from collections.abc import Callable
from typing import Any, Protocol

import pytest
from crc32c import crc32c

from heliograph.bus.interface import Reason
from heliograph.model.limits import BUS_FRAME_BYTES, MAX_FRAME_BYTES
from tests.suites.bus_diary import Event, content


class Party(Protocol):
    """A member in a story. Its diary is a list of events, see `bus_diary.py`."""

    who: int

    @property
    def place(self) -> tuple[int, int]: ...

    def say(self, count: int, size: int) -> None: ...

    def say_and_leave(self, count: int, size: int) -> None: ...

    def say_much(self) -> int:
        """Say, on hearing something, more than the bus likes at once, and heed it. Returns how much."""

    def flood(self) -> None:
        """Say, on hearing something, more than any bus takes at once; heed nothing."""

    def said_and_refused(self) -> tuple[int, int]: ...

    def utter(self, raw: bytes) -> None:
        """Put bytes on the channel as they are."""

    def diary(self) -> list[Event]: ...

    def leave(self) -> None: ...

    def kill(self) -> None: ...


class World(Protocol):
    """Makes members of one channel, and waits."""

    carries_bytes: bool

    def party(self) -> Party: ...

    def until(self, condition: Callable[[], bool], what: str) -> None: ...


def said(diary: list[Event], who: int | None = None) -> list[Event]:
    return [event for event in diary if event[0] == "said" and who in (None, event[1])]


def in_order(diary: list[Event]) -> list[Event]:
    """What must be the same for all: frames and configurations, not what a member was told about its own queue."""
    return [event for event in diary if event[0] in {"said", "configuration", "ring"}]


def members_of(diary: list[Event]) -> list[Any]:
    """Of the last configuration."""
    return [event for event in diary if event[0] == "configuration"][-1][1]  # type: ignore[no-any-return]


def expected(who: int, count: int, size: int) -> list[Event]:
    return [("said", who, number, size, crc32c(content(who, number, size))) for number in range(count)]


def gather(world: World, count: int) -> list[Party]:
    """Members who all know of one another."""
    parties = [world.party() for _ in range(count)]
    places = sorted(party.place for party in parties)
    for party in parties:
        world.until(
            lambda party=party: bool(party.diary()) and sorted(members_of(party.diary())) == places,  # type: ignore[misc]
            f"member {party.who} sees all {count}",
        )
    return parties


def heard_all(world: World, parties: list[Party], count: int) -> None:
    for party in parties:
        world.until(lambda party=party: len(said(party.diary())) >= count, f"{party.who} hears {count}")  # type: ignore[misc]


class BusBehaviour:
    """The stories."""

    @pytest.mark.req("M2")
    def test_all_hear_everything_in_one_order_the_senders_included(self, world: World) -> None:
        parties = gather(world, 3)
        for party in parties:
            party.say(300, 100)
        heard_all(world, parties, 900)
        orders = [said(party.diary()) for party in parties]
        assert orders[0] == orders[1] == orders[2]
        for party in parties:
            assert said(orders[0], party.who) == expected(party.who, 300, 100)

    @pytest.mark.req("M2")
    def test_who_comes_and_goes_has_one_place_in_the_order_of_all(self, world: World) -> None:
        first, second, third = gather(world, 3)
        for party in (first, second, third):
            party.say(200, 500)
        third.leave()
        newcomer = world.party()
        newcomer.say(50, 10)
        first.say(200, 500)
        for party in (first, second):
            heard_all(world, [party], 850)
        orders = [in_order(party.diary()) for party in (first, second)]
        together = [
            order[order.index(("said", first.who, *expected(first.who, 1, 500)[0][2:])) :] for order in orders
        ]
        assert together[0] == together[1]
        changes = [event for event in together[0] if event[0] == "configuration"]
        left, joined = (third.place[0], third.place[1], Reason.LEFT), (*newcomer.place, Reason.ENTERED)
        assert [change[3] for change in changes if change[3]] == [(left,)]
        assert [change[2] for change in changes if change[2]] == [(joined,)]
        assert said(orders[0], third.who) == expected(
            third.who, 200, 500
        )  # on several buses perhaps before the first

    def test_a_newcomer_hears_what_comes_after_it_and_begins_with_the_members(self, world: World) -> None:
        [first] = gather(world, 1)
        first.say(100, 10)
        heard_all(world, [first], 100)
        newcomer = world.party()
        world.until(lambda: len(newcomer.diary()) > 0, "the newcomer is in")
        first.say(100, 10)
        heard_all(world, [newcomer], 100)
        order = in_order(newcomer.diary())
        assert sorted(order[0][1]) == sorted((first.place, newcomer.place))
        assert order[1:] == expected(first.who, 200, 10)[100:]

    def test_one_who_left_hears_that_it_is_out_and_nothing_more(self, world: World) -> None:
        first, second = gather(world, 2)
        second.say_and_leave(20, 10)
        world.until(lambda: second.diary()[-1] == ("ended", ""), "it is out")
        first.say(20, 10)
        heard_all(world, [first], 40)
        assert said(first.diary(), second.who) == expected(second.who, 20, 10)
        assert second.diary()[-1] == ("ended", "")

    def test_what_is_too_large_for_one_message_of_the_bus_arrives_whole(self, world: World) -> None:
        first, second = gather(world, 2)
        sizes = (
            0,
            1,
            BUS_FRAME_BYTES - 200,
            BUS_FRAME_BYTES,
            BUS_FRAME_BYTES + 1,
            3 * BUS_FRAME_BYTES,
            MAX_FRAME_BYTES,
        )
        for count, size in enumerate(sizes, 1):
            first.say(1, size)
            second.say(1, 100)
            heard_all(world, [first, second], 2 * count)
        assert [event[3] for event in said(second.diary(), first.who)] == list(sizes)
        for number, size in enumerate(sizes):
            checksum = crc32c(content(first.who, number, size))
            assert ("said", first.who, number, size, checksum) in second.diary()
        assert said(first.diary()) == said(second.diary())

    @pytest.mark.req("M7")
    def test_one_that_heeds_the_bus_is_told_to_wait_and_when_to_go_on_and_is_never_refused(
        self, world: World
    ) -> None:
        first, second = gather(world, 2)
        count = first.say_much()
        for told in (False, True):
            world.until(lambda told=told: ("flow", told) in first.diary(), f"it is told {told}")  # type: ignore[misc]
        heard_all(world, [first, second], count)
        assert first.said_and_refused() == (count, 0)
        flows = [event[1] for event in first.diary() if event[0] == "flow"]
        assert flows == [False, True] * (len(flows) // 2)
        assert said(first.diary()) == said(second.diary())

    @pytest.mark.req("M7")
    def test_a_flood_meets_push_back_and_nothing_that_was_taken_is_lost(self, world: World) -> None:
        first, second = gather(world, 2)
        first.flood()
        world.until(lambda: first.said_and_refused()[1] > 0, "the bus refuses")
        taken = first.said_and_refused()[0]
        heard_all(world, [first, second], taken)
        for party in (first, second):
            assert [event[2] for event in said(party.diary())] == list(range(taken))
        assert ("ended", "bus-full") not in first.diary()

    @pytest.mark.req("M2")
    def test_one_that_dies_is_seen_going_at_the_same_place_by_all(self, world: World) -> None:
        first, second, victim = gather(world, 3)
        for party in (first, second, victim):
            party.say(500, 1000)
        victim.kill()
        for party in (first, second):
            world.until(lambda party=party: len(members_of(party.diary())) == 2, "the death is known")  # type: ignore[misc]
            heard_all(world, [party], 1000)
        orders = [in_order(party.diary()) for party in (first, second)]
        begin = ("said", *expected(first.who, 1, 1000)[0][1:])
        together = [order[order.index(begin) :] for order in orders]
        assert together[0] == together[1]
        deaths = [event for event in together[0] if event[0] == "configuration"]
        assert [event[1:4] for event in deaths] == [
            (members_of(orders[0]), (), ((*victim.place, Reason.DIED),))
        ]
        last_words = said(together[0], victim.who)
        assert last_words == expected(victim.who, 500, 1000)[: len(last_words)]

    def test_garbage_is_reported_and_ignored(self, world: World) -> None:
        if not world.carries_bytes:
            pytest.skip("this bus carries no bytes that could be garbage")
        first, second = gather(world, 2)
        first.say(5, 10)
        heard_all(world, [second], 5)
        for raw in (b"", b"x", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(64), b"HF\x01\x00" + bytes(80)):
            second.utter(raw or b"\0")
        first.say(5, 10)
        for party in (first, second):
            heard_all(world, [party], 10)
            world.until(lambda party=party: len(_damages(party)) == 5, "the garbage is reported")  # type: ignore[misc]
            assert _damages(party) == ["bus-frame-foreign"] * 4 + ["bus-frame-damaged"]
            assert said(party.diary()) == expected(first.who, 10, 10)


def _damages(party: Party) -> list[str]:
    return [event[1] for event in party.diary() if event[0] == "damage"]

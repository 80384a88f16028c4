"""The simulated bus is as odd as the real one: each thing that Corosync was seen to do happens on it, for some seed;
and through all of it, whoever moves together has heard the same."""

from collections.abc import Callable

import msgspec
import pytest

from simulation.bus import SimBus, SimProcess
from simulation.network import TAME, Oddities
from simulation.world import World
from tests.cluster.judging import check_that_those_who_moved_together_heard_the_same
from tests.suites.bus_behaviour import members_of, said
from tests.suites.bus_diary import Diary, Event

SEEDS = range(40)


class Hall:
    """Three hosts with a member each, who have met."""

    def __init__(self, seed: int, oddities: Oddities = TAME, *, greets: bool = False) -> None:
        self.world = World(seed)
        self.bus = SimBus(self.world, 3, oddities)
        self.processes: list[SimProcess] = []
        self.diaries: list[Diary] = []
        self._greets = greets
        self.pass_time(2.0)
        for host in (1, 2, 3):
            self.enter(host)
        self.pass_time(1.0)

    def enter(self, host: int, process: int = 1) -> Diary:
        diary = Diary(len(self.diaries) + 1, greets=self._greets)
        self.processes.append(self.bus.process(host, process))
        diary.membership = self.processes[-1].enter("hall", diary)
        self.diaries.append(diary)
        return diary

    def pass_time(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)


def some_seed(story: Callable[[int], bool]) -> bool:
    return any(story(seed) for seed in SEEDS)


def heard(diary: Diary) -> list[Event]:
    return said(diary.events)


def configurations(diary: Diary) -> list[Event]:
    return [event for event in diary.events if event[0] in {"configuration", "ring"}]


def test_the_parts_of_a_cut_hear_different_ends() -> None:
    def story(seed: int) -> bool:
        hall = Hall(seed, msgspec.structs.replace(TAME, token_held=1.0))
        for diary in hall.diaries:
            diary.say(30, 10)
        hall.pass_time(0.0015)
        hall.bus.network.cut([[1], [2, 3]])
        hall.pass_time(2.0)
        one, two, three = (heard(diary) for diary in hall.diaries)
        assert two == three
        return one[: len(two)] != two[: len(one)]

    assert some_seed(story)


def test_what_was_taken_and_not_ordered_is_heard_in_the_next_configuration() -> None:
    hall = Hall(1)
    hall.bus.network.cut([[1], [2, 3]])
    hall.diaries[1].say(5, 10)
    hall.pass_time(2.0)
    for diary in hall.diaries[1:]:
        last = diary.events.index(configurations(diary)[-1])
        assert len(said(diary.events[last:])) == 5
    assert heard(hall.diaries[0]) == []


def test_several_configurations_follow_one_another_with_nothing_between() -> None:
    hall = Hall(1, msgspec.structs.replace(TAME, twice=1.0))
    before = len(hall.diaries[1].events)
    hall.bus.network.cut([[1], [2, 3]])
    hall.pass_time(1.0)
    kinds = [event[0] for event in hall.diaries[1].events[before:]]
    assert len(kinds) >= 2
    assert set(kinds) <= {"configuration", "ring"}


def test_one_that_ended_stays_listed_and_never_speaks() -> None:
    hall = Hall(1, msgspec.structs.replace(TAME, ghost=1.0))
    hall.processes[2].kill()
    hall.pass_time(0.9)
    assert (3, 1) in members_of(hall.diaries[0].events)
    hall.pass_time(200.0)
    assert (3, 1) not in members_of(hall.diaries[0].events)


def test_a_stopped_process_stays_a_member_and_hears_everything_late() -> None:
    hall = Hall(1)
    hall.processes[2].stop()
    hall.diaries[0].say(50, 10)
    hall.pass_time(10.0)
    assert (3, 1) in members_of(hall.diaries[0].events)
    assert heard(hall.diaries[2]) == []
    hall.processes[2].resume()
    hall.pass_time(1.0)
    assert heard(hall.diaries[2]) == heard(hall.diaries[0])


def test_a_newcomer_misses_what_was_under_way_and_older_members_hear() -> None:
    def story(seed: int) -> bool:
        hall = Hall(seed, msgspec.structs.replace(TAME, missed=1.0))
        newcomer = hall.enter(3, 2)
        hall.diaries[0].say(3, 700_000)
        hall.pass_time(1.0)
        assert len(heard(hall.diaries[1])) == 3
        came = hall.diaries[1].events.index(configurations(hall.diaries[1])[-1])
        return len(said(hall.diaries[1].events[came:])) > len(heard(newcomer))

    assert some_seed(story)


def test_an_aborted_synchronisation_hides_that_somebody_was_away() -> None:
    def story(seed: int) -> bool:
        hall = Hall(seed, msgspec.structs.replace(TAME, hidden=0.5))
        before = [len(configurations(diary)) for diary in hall.diaries]
        hall.bus.network.cut([[1], [2, 3]])
        hall.pass_time(0.5)
        hall.bus.network.heal()
        hall.pass_time(3.0)
        told = [configurations(diary)[count:] for diary, count in zip(hall.diaries, before, strict=True)]
        knows = [any(event[0] == "configuration" for event in each) for each in told]
        return knows[0] and not knows[1]

    assert some_seed(story)


def test_those_who_just_met_can_lose_what_one_says_first_and_are_out() -> None:
    def story(seed: int) -> bool:
        hall = Hall(seed, msgspec.structs.replace(TAME, lost_on_merge=0.5))
        hall.bus.network.cut([[1], [2, 3]])
        hall.pass_time(2.0)
        hall.bus.network.heal()
        hall.pass_time(2.0)
        for _ in range(5):
            for diary in hall.diaries:
                if ("ended", "bus-gap") not in diary.events:
                    diary.say(1, 10)
            hall.pass_time(0.1)
        return any(("ended", "bus-gap") in diary.events for diary in hall.diaries)

    assert some_seed(story)


@pytest.mark.parametrize("seed", range(10))
def test_a_loss_in_one_direction_splits_the_ring_until_it_is_healed(seed: int) -> None:
    hall = Hall(seed)
    hall.bus.network.lose(1, 2)
    hall.pass_time(3.0)
    assert any(len(event[1]) < 3 for event in configurations(hall.diaries[0])[-20:])
    hall.bus.network.heal()
    hall.pass_time(3.0)
    assert [len(members_of(diary.events)) for diary in hall.diaries] == [3, 3, 3]


@pytest.mark.req("M2")
def test_whoever_moves_together_has_heard_the_same() -> None:
    """The same judgement as on real hosts whose cables are pulled."""
    odd = Oddities(twice=0.3, token_held=0.7, missed=0.3)
    compared = 0
    for seed in SEEDS:
        hall = Hall(seed, odd, greets=True)
        dice = hall.world.dice
        for _ in range(10):
            for _ in range(10):
                for diary in hall.diaries:
                    diary.say(1, 10)
                hall.pass_time(dice.random() * 0.002)
            hall.bus.network.cut([[each for each in (1, 2, 3) if dice.random() < 0.5]])
            hall.pass_time(dice.random())
            hall.bus.network.heal()
            hall.pass_time(dice.random() * 2)
        compared += check_that_those_who_moved_together_heard_the_same(
            [after_the_first_ring(diary.events) for diary in hall.diaries]
        )
    assert compared > 5 * len(SEEDS)


def after_the_first_ring(events: list[Event]) -> list[Event]:
    """On the ring on which they entered, a hello does not say which of its configurations it answers."""
    told = [event for event in events if event[0] in {"configuration", "ring"}]
    later = (at for at, event in enumerate(events) if event in told and event[-1] != told[0][-1])
    begin = next(later, len(events))
    return [
        tuple(tuple(part) if isinstance(part, list) else part for part in event) for event in events[begin:]
    ]

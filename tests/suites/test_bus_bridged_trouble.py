"""Several buses under cuts and deaths: whoever moves together has heard the same, nothing is ordered twice, and a
relay is replaced without anybody on its bus noticing."""

import pytest

from simulation.network import TAME, Oddities
from tests.suites.bridged_hall import CENTRAL_HOSTS, HOME, NEAR, OUTER_HOSTS, Hall, judge

SEEDS = range(4)
MANY_SEEDS = range(6, 150)


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_relay_that_is_killed_is_replaced_and_nobody_on_its_bus_is_disturbed(seed: int) -> None:
    hall = Hall(seed)
    hall.talk(20)
    hall.centrals[0].kill()
    hall.talk(20)
    hall.come_together()
    hall.talk(5)
    hall.pass_time(2.0)
    for outer in hall.outers:
        assert outer.ended == []
        for other in hall.living:
            assert [number for number in other.heard if number in outer.said] == outer.said
    assert judge(hall.everybody) > 0


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_relay_whose_host_is_lost_is_replaced_too(seed: int) -> None:
    """The two rings notice it in either order."""
    hall = Hall(seed)
    hall.talk(20)
    first = hall.centrals[0]
    first.is_dead = True
    for bus in hall.buses.values():
        bus.crash(first.host)
    for process in first.processes:
        process.loop.kill()
    hall.talk(20, pause=0.05)
    hall.come_together()
    hall.talk(5)
    hall.pass_time(2.0)
    for outer in hall.outers:
        assert outer.ended == []
        for other in hall.living:
            assert [number for number in other.heard if number in outer.said] == outer.said
    assert judge(hall.everybody) > 0


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_relay_that_is_stopped_is_replaced_and_does_no_harm_when_it_goes_on(seed: int) -> None:
    hall = Hall(seed)
    hall.talk(20)
    first = hall.centrals[0]
    for process in first.processes:
        process.stop()
    others = [each for each in hall.living if each is not first]
    for _ in range(30):
        for each in others:
            each.say()
        hall.pass_time(0.1)
    for outer in hall.outers:
        for other in others:
            assert [number for number in other.heard if number in outer.said][:40] == outer.said[:40]
    for process in first.processes:
        process.resume()
    hall.talk(5)
    hall.pass_time(2.0)
    hall.come_together()
    for outer in hall.outers:
        assert outer.ended == []
        assert [number for number in first.heard if number in outer.said] == outer.said
    assert judge(hall.everybody) > 0


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", range(6))
def test_what_a_relay_ordered_alone_is_heard_in_the_old_configuration_by_its_members_too(seed: int) -> None:
    """The relay is cut off, on the home bus a moment before the other: what it hears meanwhile, only it orders."""
    hall = Hall(seed, Oddities(token_held=1.0))
    hall.talk(10)
    hall.buses[HOME].network.cut([[1], [2, 3, 4, 5, 6]])
    hall.talk(10, pause=0.002)
    hall.buses[NEAR].network.cut([[1], [2, 3, 4, 5, 6]])
    hall.talk(40, pause=0.05)
    for outer in hall.outers:
        if not outer.ended:
            own = [number for number in outer.heard if number in outer.said]
            assert own == outer.said[: len(own)]
    for bus in hall.buses.values():
        bus.network.heal()
    hall.pass_time(3.0)
    hall.come_together()
    assert judge(hall.everybody) > 0


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_home_bus_is_cut_members_of_the_other_follow_one_part_only(seed: int) -> None:
    hall = Hall(seed)
    hall.talk(10)
    hall.buses[HOME].network.cut([[1, 6], [2, 3, 4, 5]])
    hall.talk(40, pause=0.05)
    parts = [each for each in hall.centrals if each.host in (1, 2)]
    places = [outer.membership.place for outer in hall.outers if outer.membership is not None]
    listed = [any(place in each.members for place in places) for each in parts]
    assert listed == [True, False]
    hall.buses[HOME].network.heal()
    hall.talk(20, pause=0.05)
    hall.come_together()
    assert judge(hall.everybody) > 0


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", SEEDS)
def test_when_the_other_bus_is_cut_each_part_has_a_relay(seed: int) -> None:
    hall = Hall(seed)
    hall.talk(10)
    hall.buses[NEAR].network.cut([[1, 4], [2, 3, 5, 6]])
    hall.talk(20, pause=0.05)
    hall.come_together()
    hall.buses[NEAR].network.heal()
    hall.talk(20, pause=0.05)
    hall.come_together()
    assert judge(hall.everybody) > 0


ODD = Oddities(twice=0.3, token_held=0.7)
ODDITIES = {"tame": TAME, "odd": ODD}


@pytest.mark.req("M3")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("oddities", ODDITIES)
def test_cuts_and_deaths_at_random(seed: int, oddities: str) -> None:
    assert judge(disturbed(seed, ODDITIES[oddities]).everybody) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", MANY_SEEDS)
@pytest.mark.parametrize("oddities", ODDITIES)
def test_many_cuts_and_deaths_at_random(seed: int, oddities: str) -> None:
    assert judge(disturbed(seed, ODDITIES[oddities]).everybody) > 0


def disturbed(seed: int, oddities: Oddities) -> Hall:
    """Members who went through a lot, and are together again."""
    hall = Hall(seed, oddities)
    dice = hall.world.dice
    for _ in range(8):
        hall.talk(10, pause=dice.random() * 0.002)
        for name in (HOME, NEAR):
            if dice.random() < 0.6:
                part = [host for host in range(1, 7) if dice.random() < 0.5]
                hall.buses[name].network.cut([part, [host for host in range(1, 7) if host not in part]])
        if dice.random() < 0.4:
            dice.choice(hall.living).kill()
        hall.talk(10, pause=dice.random() * 0.1)
        for name in (HOME, NEAR):
            if dice.random() < 0.6:
                hall.buses[name].network.heal()
        for host in (*CENTRAL_HOSTS, *OUTER_HOSTS):
            if all(each.host != host for each in hall.living):
                hall.enter(host)
        hall.talk(10, pause=dice.random() * 0.1)
    for bus in hall.buses.values():
        bus.network.heal()
    hall.pass_time(5.0)
    hall.come_together()
    last = hall.living[0].said
    hall.talk(3)
    hall.pass_time(3.0)
    for each in hall.living:
        assert last[-1] in each.heard
    return hall

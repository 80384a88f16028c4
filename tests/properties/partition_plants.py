"""Rules of partition states that somebody could get wrong. Each is put in by hand, and a walk through the views shows
it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple
from unittest.mock import PropertyMock, patch

from heliograph.cluster import in_force, partition_state
from heliograph.cluster.in_force import InForce
from heliograph.cluster.partition_state import Enrolment, Scene, Statement

Plant = Callable[[], AbstractContextManager[Any]]


def _straight_if(
    enough: Callable[[Scene, Statement, list[Statement]], bool],
) -> Callable[[Scene], tuple[Statement, ...]]:
    """`_find_straight` with another idea of who came and how many it takes."""

    def find(scene: Scene) -> tuple[Statement, ...]:
        for manager in scene._managers:
            if scene._is_of_last(manager) and scene._came_from_last(manager):
                together = scene._companions[manager.who]
                came = [each for each in scene._clients if each.who in together]
                if enough(scene, manager, came):
                    return (manager, *came)
        return ()

    return find


def a_majority_of_all_that_are_configured() -> AbstractContextManager[Any]:
    def enough(scene: Scene, _manager: Statement, _came: list[Statement]) -> bool:
        here = [each.client_manager for each in scene._clients]
        return partition_state.are_most(here, scene._enrolments[0].client_managers)

    # Nobody who thinks so waits for the client managers of a former view.
    return _both(
        patch.object(Scene, "_find_straight", _straight_if(enough)),
        patch.object(in_force, "are_most", lambda _came, _voters: True),
    )


def one_who_was_elsewhere_in_between_counts() -> AbstractContextManager[Any]:
    def enough(scene: Scene, manager: Statement, _came: list[Statement]) -> bool:
        return partition_state.are_most([each.who for each in scene._clients], manager.clients)

    return _both(
        patch.object(Scene, "_find_straight", _straight_if(enough)),
        patch.object(in_force, "are_most", lambda _came, _voters: True),
    )


def one_who_is_known_to_have_ended_counts() -> AbstractContextManager[Any]:
    def enough(_scene: Scene, manager: Statement, came: list[Statement]) -> bool:
        ended = [who for who in manager.clients if who == b"\xff"]
        return partition_state.are_most([*(each.who for each in came), *ended], manager.clients)

    return _both(
        patch.object(Scene, "_find_straight", _straight_if(enough)),
        patch.object(in_force, "are_most", lambda _came, _voters: True),
    )


def half_is_enough_without_the_most_senior() -> AbstractContextManager[Any]:
    def are_half(present: Collection[object], of: Sequence[object]) -> bool:
        return 2 * sum(each in present for each in of) >= len(of)

    return _both(
        patch.object(partition_state, "are_most", are_half), patch.object(in_force, "are_most", are_half)
    )


def any_manager_of_the_last_view_will_do() -> AbstractContextManager[Any]:
    """Hole 3: also one that does not have the log."""

    def find(scene: Scene) -> tuple[Statement, ...]:
        for manager in scene._managers:
            if scene._came_from_last(manager):
                came = [each for each in scene._clients if each.who in scene._companions[manager.who]]
                if partition_state.are_most([each.who for each in came], manager.clients):
                    return (manager, *came)
        return ()

    def come_along(scene: Scene) -> tuple[Statement, ...]:
        if not scene._straight:
            return ()
        together = scene._companions[scene._straight[0].who]
        return tuple(each for each in scene._managers if each.who in together)

    return _both(patch.object(Scene, "_find_straight", find), patch.object(Scene, "_come_along", come_along))


def who_caught_up_counts_without_a_view() -> AbstractContextManager[Any]:
    """Hole 4."""
    found = Scene._find_straight

    def find(scene: Scene) -> tuple[Statement, ...]:
        for manager in scene._managers:
            if manager.is_synchronised and manager.reached is not None:
                came = [each for each in scene._clients if each.who in scene._companions[manager.who]]
                if partition_state.are_most([each.who for each in came], manager.clients):
                    scene.last = partition_state.UnrestrictedView(1, manager.last, (manager.store,))
                    return (manager, *came)
        return found(scene)

    return patch.object(Scene, "_find_straight", find)


def all_of_the_last_are_taken_for_level() -> AbstractContextManager[Any]:
    """Hole 5."""
    return patch.object(Scene, "_is_level", lambda _self, _best, _other: True)


def one_of_the_last_is_enough() -> AbstractContextManager[Any]:
    def by_the_last(scene: Scene) -> partition_state.Partition | None:
        of_last = [each for each in scene._managers if scene._is_of_last(each)]
        if not of_last or not scene._clients:
            return None
        managers = tuple(each.who for each in of_last)
        return scene._unrestricted(3, scene._share(), scene._longest(of_last), managers=managers)

    return patch.object(Scene, "by_the_last", by_the_last)


def a_view_that_nobody_recorded_needs_no_elder() -> AbstractContextManager[Any]:
    """Whoever has only the one before on disk goes on from that."""
    return patch.object(Scene, "_is_elder", Scene._is_of_last)


def a_view_is_recorded_before_anybody_arrived() -> AbstractContextManager[Any]:
    """Holes 1 and 2."""
    return patch.object(InForce, "have_arrived", PropertyMock(return_value=True))


def nobody_waits_for_records() -> AbstractContextManager[Any]:
    def is_in_force(self: InForce) -> bool:
        return self.have_arrived

    return patch.object(InForce, "is_in_force", property(is_in_force))


def who_has_caught_up_records_before_the_elders() -> AbstractContextManager[Any]:
    """Hole 4."""
    return patch.object(InForce, "may_record", lambda self, _who: self.have_arrived)


def a_replaced_disk_counts_as_the_enrolled_one() -> AbstractContextManager[Any]:
    def present(said: list[Statement]) -> dict[tuple[str, bytes], Statement]:
        return {
            (each.message_manager, bytes([each.store[0] % 100])): each
            for each in said
            if each.message_manager
        }

    return patch.object(partition_state, "_present", present)


def a_proposal_counts_at_once() -> AbstractContextManager[Any]:
    """Hole 6."""

    def enrolments(said: list[Statement]) -> tuple[Enrolment, ...]:
        told = [each for one in said for each in (one.enrolment, one.proposed) if each is not None]
        return (max(told, key=lambda each: each.epoch, default=Enrolment(0, (), ())),)

    def same(manager: Statement) -> int:
        return max(
            (each.epoch for each in (manager.enrolment, manager.proposed) if each is not None), default=-1
        )

    return _both(
        patch.object(partition_state, "_enrolments", enrolments),
        patch.object(partition_state, "_epoch_of", same),
    )


def who_is_to_go_knows_nothing() -> AbstractContextManager[Any]:
    made = Scene._message_managers

    def managers(scene: Scene) -> tuple[Statement, ...]:
        return tuple(each for each in made(scene) if scene._stays(each))

    return patch.object(Scene, "_message_managers", managers)


def _both(*patches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for each in patches:
        stack.enter_context(each)
    return stack


class Planted(NamedTuple):
    """How large a cluster it takes, with windows or a removal or without, and after how many steps it shows."""

    plant: Plant
    clients: int
    managers: int
    depth: int
    windows: bool = False
    removes: bool = False
    paired: bool = False
    young: bool = False  # from a cluster in which only one message manager is unrestricted yet


PLANTS: dict[str, Planted] = {
    each.plant.__name__: each
    for each in (
        Planted(a_majority_of_all_that_are_configured, 3, 2, 3),
        Planted(one_who_was_elsewhere_in_between_counts, 3, 2, 3),
        Planted(one_who_is_known_to_have_ended_counts, 3, 2, 3),
        Planted(half_is_enough_without_the_most_senior, 2, 2, 3),
        Planted(any_manager_of_the_last_view_will_do, 2, 2, 5),
        Planted(who_caught_up_counts_without_a_view, 2, 2, 5),
        Planted(all_of_the_last_are_taken_for_level, 2, 2, 5),
        Planted(one_of_the_last_is_enough, 2, 2, 4),
        Planted(a_view_that_nobody_recorded_needs_no_elder, 1, 2, 5, windows=True, young=True),
        Planted(a_view_is_recorded_before_anybody_arrived, 1, 2, 4, windows=True),
        Planted(who_has_caught_up_records_before_the_elders, 2, 2, 7, windows=True, paired=True, young=True),
        Planted(nobody_waits_for_records, 2, 2, 3, windows=True),
        Planted(a_replaced_disk_counts_as_the_enrolled_one, 2, 2, 4),
        Planted(a_proposal_counts_at_once, 2, 2, 4, removes=True),
        Planted(who_is_to_go_knows_nothing, 2, 2, 4, removes=True),
    )
}

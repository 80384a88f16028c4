"""Faults planted in the engine of clustered consumers: courses of events that find none in it find each of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from msgspec.structs import replace

from heliograph.clustered import epochs, leading
from heliograph.clustered.completeness import Completeness
from heliograph.clustered.events import ActOn, Effect, FindComplete, Terms
from heliograph.clustered.membership import Membership
from heliograph.clustered.presence import Presence
from heliograph.clustered.settling import Settling
from heliograph.clustered.words import Beat, Member, View
from tests.properties.clustered_copies import Keeping
from tests.properties.clustered_world import ClusteredWorld
from tests.properties.test_clustered_handover import HandingOver
from tests.properties.test_clustered_losses import Losing

Plant = Callable[[pytest.MonkeyPatch], None]


def gains_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Presence, "released", lambda *_: True)


def acts_without_looking_at_the_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "may_act", lambda self, _now: not self.is_over and self.lease_until is not None)


def dates_beats_ahead(patch: pytest.MonkeyPatch) -> None:
    honest = Membership._beat

    def ahead(self: Membership, now: float, *, is_gone: bool = False) -> Beat:
        return honest(self, now + 3 * self.terms.beat_seconds, is_gone=is_gone)

    patch.setattr(Membership, "_beat", ahead)


def takes_over_after_half_of_the_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Terms, "silence_seconds", property(lambda self: self.lease_seconds / 2))


def keeps_what_a_view_takes_away(patch: pytest.MonkeyPatch) -> None:
    honest = Membership._adopt

    def greedy(self: Membership, view: View, now: float, effects: list[Effect]) -> None:
        before = self.acting
        honest(self, view, now, effects)
        self.acting = before
        effects[:] = [ActOn(before, each.epoch) if isinstance(each, ActOn) else each for each in effects]

    patch.setattr(Membership, "_adopt", greedy)


def ignores_another_cluster(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_look_elsewhere", lambda *_: None)


def counts_epochs_without_a_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(epochs, "_signed", lambda count, _leader: count << 21)


def _when_a_cut_is_over(patch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Nothing is wrong before. So what finds it has not gone on excusing what two clusters do."""
    honest_beginning, honest_look = ClusteredWorld.__init__, ClusteredWorld._see_whether_it_is_one
    was_over = [False]

    def begin(self: ClusteredWorld, terms: Terms) -> None:
        was_over[0] = False
        honest_beginning(self, terms)

    def look(self: ClusteredWorld) -> None:
        honest_look(self)
        was_over[0] = was_over[0] or not self._was_cut

    patch.setattr(ClusteredWorld, "__init__", begin)
    patch.setattr(ClusteredWorld, "_see_whether_it_is_one", look)
    return lambda: was_over[0]


def gains_without_waiting_when_a_cut_is_over(patch: pytest.MonkeyPatch) -> None:
    honest, is_over = Presence.released, _when_a_cut_is_over(patch)
    patch.setattr(Presence, "released", lambda self, key, view: is_over() or honest(self, key, view))


def keeps_what_a_view_takes_away_when_a_cut_is_over(patch: pytest.MonkeyPatch) -> None:
    honest, is_over = Membership._adopt, _when_a_cut_is_over(patch)
    keeps_what_a_view_takes_away(patch)
    greedy = Membership._adopt

    def adopt(self: Membership, view: View, now: float, effects: list[Effect]) -> None:
        (greedy if is_over() else honest)(self, view, now, effects)

    patch.setattr(Membership, "_adopt", adopt)


# ---- and these lose messages


def takes_all_for_complete_when_nobody_is(patch: pytest.MonkeyPatch) -> None:
    def all_of_them(stayed: Sequence[Member], _beats: object) -> list[Member]:
        return [replace(member, is_complete=True) for member in stayed]

    patch.setattr(leading, "_with_one_complete", all_of_them)


def takes_old_copies_for_worthless(patch: pytest.MonkeyPatch) -> None:
    honest = Completeness.adopt

    def careless(self: Completeness, view: View) -> list[FindComplete]:
        found = honest(self, view)
        self.is_clean = True
        return found

    patch.setattr(Completeness, "adopt", careless)


def finds_complete_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settling, "add", lambda _self, what, _ids: [what])


def looks_before_it_is_caught_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keeping, "when_caught_up", lambda _self, then: then())


def throws_old_copies_away_when_it_leaves_before_it_is_in(patch: pytest.MonkeyPatch) -> None:
    honest = Membership._go

    def careless(self: Membership, *, keeps_copies: bool, effects: list[Effect]) -> None:
        honest(self, keeps_copies=keeps_copies and self.view is not None, effects=effects)

    patch.setattr(Membership, "_go", careless)


OVERLAPS = [
    gains_without_waiting,
    acts_without_looking_at_the_lease,
    dates_beats_ahead,
    takes_over_after_half_of_the_silence,
    keeps_what_a_view_takes_away,
    ignores_another_cluster,
    counts_epochs_without_a_sign,
    gains_without_waiting_when_a_cut_is_over,
    keeps_what_a_view_takes_away_when_a_cut_is_over,
]
LOSSES = [
    takes_all_for_complete_when_nobody_is,
    takes_old_copies_for_worthless,
    finds_complete_without_waiting,
    looks_before_it_is_caught_up,
    throws_old_copies_away_when_it_leaves_before_it_is_in,
]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.req("H2")
@pytest.mark.parametrize(
    ("world", "plant"), [*((HandingOver, each) for each in OVERLAPS), *((Losing, each) for each in LOSSES)]
)
def test_a_planted_fault_is_found(
    world: type[RuleBasedStateMachine], plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            world,
            settings=settings(
                max_examples=1500,
                stateful_step_count=60,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )

"""Faults planted in the engine of clustered consumers: courses of events that find none in it find each of these."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from heliograph.clustered.events import ActOn, Effect, Terms
from heliograph.clustered.membership import Membership
from heliograph.clustered.words import Beat, View
from tests.properties.test_clustered_handover import HandingOver

Plant = Callable[[pytest.MonkeyPatch], None]


def gains_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_released", lambda *_: True)


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


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.req("H2")
@pytest.mark.parametrize(
    "plant",
    [
        gains_without_waiting,
        acts_without_looking_at_the_lease,
        dates_beats_ahead,
        takes_over_after_half_of_the_silence,
        keeps_what_a_view_takes_away,
    ],
)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            HandingOver,
            settings=settings(
                max_examples=400,
                stateful_step_count=60,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )

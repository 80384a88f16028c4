"""Transactions over several sub-clusters, as the client manager that has them done sees them. Whole clusters are in
`tests/properties/test_two_phase.py`."""

from __future__ import annotations

from itertools import count

import pytest

from heliograph.bus.commands import CommitAsked
from heliograph.model.ids import SessionId
from heliograph.sessions.coordinating import Coordinating, Part, Say, Tell

_SESSION = SessionId(bytes(16))


@pytest.mark.req("M10")
def test_a_commit_that_is_asked_again_and_refused_where_all_of_it_is_is_over() -> None:
    coordinating = Coordinating(count(100).__next__)
    parts = {"east": Part(1, [])}
    inquiries = coordinating.commit(CommitAsked(1, _SESSION, 1, 1, []), parts, ["east", "west"], again=True)
    effects = []
    for said in inquiries:
        assert isinstance(said, Say)
        effects = coordinating.answered(
            said.fact.request, {"state": "unknown", "decider": "", "participants": []}
        )
    (commit,) = effects
    assert isinstance(commit, Say)
    assert isinstance(commit.fact, CommitAsked)
    told = coordinating.rejected(commit.fact.request, "transaction-rolled-back", "it was rolled back")
    assert told == [Tell(1, "transaction-rolled-back", "it was rolled back")]
    assert len(coordinating) == 0


@pytest.mark.req("P8")
def test_a_part_that_was_cut_off_cannot_say_what_became_of_a_commit_and_its_client_hears_so() -> None:
    coordinating = Coordinating(count(100).__next__)
    parts = {"east": Part(1, []), "west": Part(1, [])}
    inquiries = coordinating.commit(CommitAsked(1, _SESSION, 1, 2, []), parts, ["east", "west"], again=True)
    assert isinstance(inquiries[0], Say)
    told = coordinating.rejected(inquiries[0].fact.request, "transaction-in-doubt", "look later")
    assert told == [Tell(1, "transaction-in-doubt", "look later")]
    assert len(coordinating) == 0

"""Bugs that a merge could have, for seeing that they are found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from heliograph.destinations import branch
from heliograph.destinations.ledger import Ledger
from heliograph.nodes import branches, merger
from heliograph.nodes.branches import Branches
from heliograph.nodes.merger import Merger
from heliograph.nodes.reunion import Reunion

Plant = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def _with(target: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, value)
        yield


def the_log_is_cut_and_nothing_set_aside() -> contextlib.AbstractContextManager[None]:
    async def nothing(self: Branches, manager: Any, fork: int) -> branch.Branch:
        return branch.Branch(b"none", b"", fork, manager.place.index, manager.place.chain)

    return _with(Branches, "set_aside", nothing)


def a_branch_goes_when_it_is_offered() -> contextlib.AbstractContextManager[None]:
    def offered(self: Reunion) -> None:
        for each in list(self.branches.all):
            self.branches.remove(each)

    return _with(Reunion, "_follow", offered)


def what_is_done_elsewhere_is_not_marked() -> contextlib.AbstractContextManager[None]:
    return _with(Merger, "_mark", lambda *_: None)


def what_is_known_is_taken_again() -> contextlib.AbstractContextManager[None]:
    like = branch.account_like

    def knows_nothing(*arguments: Any) -> branch.Account:
        account = like(*arguments)
        account.known = dict.fromkeys(account.known, ())
        return account

    return _with(merger, "account_like", knows_nothing)


def only_the_first_body_of_a_lane_is_taken() -> contextlib.AbstractContextManager[None]:
    parts = merger._parts
    return _with(merger, "_parts", lambda buffer, sequences: parts(buffer, sequences[:1])[:1])


def what_was_handed_out_is_not_marked() -> contextlib.AbstractContextManager[None]:
    return _with(Merger, "_was_seen", lambda *_: None)


def a_subscription_gets_what_it_is_done_with() -> contextlib.AbstractContextManager[None]:
    return _with(Merger, "_mark_list", lambda *_: None)


def numbers_are_compared_that_are_not_common() -> contextlib.AbstractContextManager[None]:
    """As if all numbers below the present one were older than the fork."""

    @contextlib.contextmanager
    def planted() -> Iterator[None]:
        done = {0: ((1, 1_000),)}
        with (
            _with(branch, "account_of", _but_done(branch.account_of, done)),
            _with(branches, "account_of", _but_done(branch.account_of, done)),
            _with(Ledger, "last_base_of", lambda *_: 1_001),
        ):
            yield

    return planted()


def _but_done(account_of: Callable[..., branch.Account], done: Any) -> Callable[..., branch.Account]:
    def changed(*arguments: Any) -> branch.Account:
        account = account_of(*arguments)
        account.done = done
        return account

    return changed


def what_waits_behind_a_gap_goes_first() -> contextlib.AbstractContextManager[None]:
    async def nothing(*_: Any) -> list[Any]:
        return []

    return _with(Merger, "_behind", nothing)


def what_is_staged_counts_as_done() -> contextlib.AbstractContextManager[None]:
    return _with(Ledger, "unmade_of", lambda *_: ())


IN_RUNS: list[Plant] = [
    the_log_is_cut_and_nothing_set_aside,
    a_branch_goes_when_it_is_offered,
    what_is_done_elsewhere_is_not_marked,
    what_is_known_is_taken_again,
    only_the_first_body_of_a_lane_is_taken,
    what_was_handed_out_is_not_marked,
]

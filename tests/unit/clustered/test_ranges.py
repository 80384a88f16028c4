"""Who owns what: even, weighted, by a table, and as little as possible changes hands (H1, H2)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.clustered import MessageVerifier, even, weighted
from heliograph.clustered.adapter import Delivery
from heliograph.clustered.hashing import VALUES, value_of
from heliograph.clustered.ranges import Assignment, Even, Policy, Ranges, Table, Weighted, shares
from heliograph.model.errors import ClientFault

NAMES = st.sets(st.sampled_from(["ada", "bob", "cyd", "dan", "eve", "fay"]), min_size=1)
WEIGHTS = st.dictionaries(st.sampled_from(["ada", "bob", "cyd", "dan"]), st.integers(1, 9), min_size=1)


@pytest.mark.req("H1")
def test_five_members_share_evenly_and_each_message_is_of_one() -> None:
    names = ["ada", "bob", "cyd", "dan", "eve"]
    assignment = even(names)
    verifiers = [MessageVerifier(["id"], assignment.of(name)) for name in names]
    for number in range(1000):
        message = Delivery(id=f"m-{number}", body=b"")
        assert sum(verifier.is_mine(message) for verifier in verifiers) == 1


@pytest.mark.req("H2")
def test_who_has_twice_the_weight_has_twice_the_values() -> None:
    assignment = weighted({"big": 2, "small": 1})
    assert assignment.of("big").size == pytest.approx(2 * assignment.of("small").size, rel=1e-6)


@pytest.mark.req("H2")
def test_a_table_gives_values_that_do_not_follow_each_other() -> None:
    half = VALUES // 2
    policy = Table({"ada": [(0, 10), (half, VALUES)], "bob": [(10, half)]})
    assignment = policy.assign({"ada": 1, "bob": 1}, Assignment())
    assert list(assignment.of("ada")) == [(0, 10), (half, VALUES)]
    assert list(policy.assign({"bob": 1}, assignment).of("bob")) == [(0, VALUES)]


def test_a_table_with_a_gap_is_refused() -> None:
    with pytest.raises(ClientFault) as refusal:
        Table({"ada": [(0, 10)], "bob": [(11, VALUES)]})
    assert refusal.value.code == "ranges-invalid"


@given(st.lists(NAMES, min_size=2, max_size=6), st.sampled_from([Even(), Weighted()]))
def test_members_come_and_go_and_no_more_moves_than_must(lives: list[set[str]], policy: Policy) -> None:
    before = Assignment()
    for names in lives:
        weights = dict.fromkeys(names, 1)
        after = policy.assign(weights, before)
        wanted = shares(weights)
        for name in names:
            assert after.of(name).size == wanted[name]
            kept = (before.of(name) & after.of(name)).size
            assert kept == min(before.of(name).size, wanted[name])
        before = after


@given(WEIGHTS, WEIGHTS)
def test_weights_change_and_everything_stays_owned(first: dict[str, int], second: dict[str, int]) -> None:
    after = Weighted().assign(second, Weighted().assign(first, Assignment()))
    assert sum(after.of(name).size for name in second) == VALUES


def test_ranges_that_overlap_are_refused() -> None:
    with pytest.raises(ClientFault):
        Ranges([(0, 10), (9, 20)])


@dataclass
class Anything:
    """A message of some other library."""

    id: str = "7"
    destination: str = "orders"
    persistent: bool = True
    timestamp: float = 12.0
    type: str | None = None
    expiration: float = 0.0
    priority: int = 4
    unit_of_order: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)


@pytest.mark.req("H1")
@pytest.mark.parametrize(
    ("fields", "hashed"),
    [
        (["id"], ["7"]),
        (["destination", "mode"], ["orders", True]),
        (["time", "type", "expiration", "priority"], [12.0, None, 0.0, 4]),
        (["property:city"], ["Zürich"]),
        (["unit_of_order"], ["7"]),
    ],
)
def test_any_field_may_be_chosen(fields: list[str], hashed: list[Any]) -> None:
    message = Anything(properties={"city": "Zürich"})
    assert MessageVerifier(fields).value(message) == value_of(hashed)


@pytest.mark.req("H1")
def test_a_unit_of_order_stays_with_one_member() -> None:
    verifier = MessageVerifier(["unit_of_order"])
    values = {verifier.value(Anything(id=str(number), unit_of_order="customer-5")) for number in range(50)}
    assert len(values) == 1


@pytest.mark.parametrize("fields", [[], ["colour"], ["property:"]])
def test_a_field_that_messages_have_not_is_refused(fields: list[str]) -> None:
    with pytest.raises(ClientFault) as refusal:
        MessageVerifier(fields)
    assert refusal.value.code == "verifier-fields"


@pytest.mark.parametrize("what", ["id", "type", "property:p", "unit_of_order"])
def test_who_asks_in_one_piece_is_told_what_the_value_says(what: str) -> None:
    chance = random.Random(5)
    values: list[Any] = ["", "ü" * 16, "ü" * 17, None, True, 7, 2.5, b"raw"]
    values += ["".join(chance.choices("abcü-/1", k=chance.randrange(1, 40))) for _ in range(300)]
    for assignment in (even("ab"), even("abcde"), weighted({"a": 1, "b": 7})):
        for member in "ab":
            ranges = assignment.of(member)
            verifier = MessageVerifier([what], ranges)
            for value in values:
                message = SimpleNamespace(id=value, type=value, properties={"p": value}, unit_of_order=value)
                assert verifier.is_mine(message) == (verifier.value(message) in ranges)

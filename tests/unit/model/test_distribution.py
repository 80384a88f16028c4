"""Which member takes a unit, what is declared, and what members are called (U6). The choices never change."""

from __future__ import annotations

from collections import Counter

import pytest

from heliograph.model.destination import Address
from heliograph.model.distribution import (
    Distribution,
    Distributions,
    HashRouting,
    PathRouting,
    Routing,
    all_members,
)
from heliograph.model.errors import ClientFault
from heliograph.model.policy_rules import PolicyRule, PolicyRules
from heliograph.model.units import NO_UNIT, unit_number

pytestmark = pytest.mark.req("U6")
ORDERS = Address("queue:orders")


def rules(*given: dict[str, object]) -> PolicyRules:
    return PolicyRules([PolicyRule.of(each) for each in given])


def distributions(*sub_clusters: str, **given: object) -> Distributions:
    found = rules({"destinations": "queue:orders", **given})
    return Distributions(found.distribution_for, sub_clusters)


def test_the_members_of_units_by_version_1_of_the_hash() -> None:
    routing = HashRouting(Distribution(members=("east", "north", "west")), b"")
    chosen = [routing.member_for(unit_number(f"account-{number}")) for number in range(24)]
    assert "".join(member[0] for member in chosen) == "wneennnwwwnweewwnewwweew"


def test_what_has_no_unit_goes_by_the_key_of_its_session() -> None:
    members = ("east", "north", "west")
    found = Counter(
        HashRouting(Distribution(members=members), number.to_bytes(16, "big")).member_for(NO_UNIT)
        for number in range(600)
    )
    assert all(found[member] > 150 for member in members)


def test_a_member_more_takes_its_share_and_no_other_unit_moves() -> None:
    before = HashRouting(Distribution(members=("east", "west")), b"")
    after = HashRouting(Distribution(members=("east", "north", "west")), b"")
    moved = [unit for unit in range(1, 1001) if before.member_for(unit) != after.member_for(unit)]
    assert 250 < len(moved) < 420
    assert all(after.member_for(unit) == "north" for unit in moved)


def test_a_hash_that_is_not_known_is_refused() -> None:
    with pytest.raises(ClientFault) as fault:
        HashRouting(Distribution(members=("east",), version=2), b"")
    assert fault.value.code == "routing-unknown"


def test_paths_are_known_when_they_were_told_and_not_after_the_session() -> None:
    routing = PathRouting(Distribution(members=("east", "west"), routing=Routing.PATH), b"")
    assert routing.member_for(NO_UNIT)
    assert routing.member_for(7) == ""
    routing.learn(7, "west")
    assert routing.member_for(7) == "west"
    routing.forget_all()
    assert routing.member_for(7) == ""


def test_members_are_named_behind_the_destination_and_only_where_it_is_distributed() -> None:
    found = distributions("west", "east", members="all")
    assert found.of(ORDERS) is not None
    assert found.split(Address("queue:orders@east")) == (ORDERS, "east")
    for other in ("queue:orders", "queue:orders@south", "queue:others@east", "queue:mail@east"):
        assert found.split(Address(other)) == (other, "")
    assert found.of(Address("queue:orders@east")) is None


def test_with_one_sub_cluster_nothing_is_distributed() -> None:
    assert distributions("main", members="all").of(ORDERS) is None
    assert distributions(members=["east", "west"]).of(ORDERS) is None


def test_a_rule_says_who_is_a_member_who_leaves_and_who_keeps_paths() -> None:
    found = distributions("a", "b", "c", members="all", leaving=["b"], routing="path", path_service="c")
    of = found.of(ORDERS)
    assert of is not None
    assert (of.members, of.leaving, of.routing, of.keeper) == (("a", "c"), ("b",), Routing.PATH, "c")
    assert all_members(of) == ("a", "c", "b")
    default = distributions("a", "b", members=["b", "a"], routing="path").of(ORDERS)
    assert default is not None
    assert default.keeper in ("a", "b")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"members": []}, "at least one member"),
        ({"members": "east"}, 'may be "all"'),
        ({"members": [1]}, 'may be "all"'),
        ({"members": ["a"], "leaving": ["a"]}, "none of them is leaving"),
        ({"members": "all", "routing": "guess"}, "hash or path"),
        ({"routing": "hash"}, "is for what has members"),
        ({"leaving": ["a"]}, "is for what has members"),
        ({"members": "all", "path_service": "a"}, 'routing = "path"'),
        ({"members": "all", "unit_from": "property:JMSType"}, "property that applications set"),
    ],
)
def test_a_rule_that_cannot_be_is_explained(given: dict[str, object], what: str) -> None:
    with pytest.raises(ClientFault) as fault:
        rules({"destinations": "queue:orders", **given})
    assert fault.value.code == "policy-invalid"
    assert what in fault.value.sentence


def test_a_member_that_is_no_sub_cluster_is_refused_by_name() -> None:
    with pytest.raises(ClientFault) as fault:
        rules({"destinations": "queue:orders", "members": ["east", "wset"]}).check_members(("east", "west"))
    assert "wset" in fault.value.sentence
    assert "east, west" in fault.value.sentence

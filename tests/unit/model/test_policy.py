"""Policies: every key is checked by name, as a program gives it and as a person writes it (J10)."""

from __future__ import annotations

import math

import pytest

from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.policy import DEFAULT_POLICY, SETTINGS, Policy, changed, parse_changes
from heliograph.model.policy_rules import PolicyRule, PolicyRules

pytestmark = pytest.mark.req("J10")


def test_every_key_says_what_it_takes_and_its_default_is_among_it() -> None:
    assert tuple(SETTINGS) == Policy.__struct_fields__
    assert changed(DEFAULT_POLICY, {key: getattr(DEFAULT_POLICY, key) for key in SETTINGS}) == DEFAULT_POLICY


def test_what_is_not_named_stays() -> None:
    policy = changed(Policy(redelivery_limit=3), {"redelivery_delay": 2})
    assert (policy.redelivery_limit, policy.redelivery_delay) == (3, 2.0)
    assert isinstance(policy.redelivery_delay, float)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("redelivery_limit", -1),
        ("redelivery_limit", 1.0),
        ("redelivery_limit", True),
        ("redelivery_limit", "5"),
        ("redelivery_limit", None),
        ("redelivery_limit", 10**9),
        ("redelivery_delay", -0.1),
        ("redelivery_delay", math.nan),
        ("redelivery_delay", math.inf),
        ("redelivery_delay", False),
        ("redelivery_multiplier", 0.5),
        ("expired_to_dead", 1),
        ("expired_to_dead", "true"),
        ("high_water_messages", 0),
        ("high_water_bytes", 2**60),
        ("prefetch_limit", [1]),
        ("delay", 1),
        ("", 1),
    ],
)
def test_what_a_key_does_not_take_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(ClientFault) as fault:
        changed(DEFAULT_POLICY, {key: value})
    assert fault.value.code == "policy-invalid"
    assert key in fault.value.sentence


def test_a_person_writes_numbers_and_truth() -> None:
    assert parse_changes(["redelivery_limit=5", "redelivery_delay=1.5", "high_water_bytes=1_000_000"]) == {
        "redelivery_limit": 5,
        "redelivery_delay": 1.5,
        "high_water_bytes": 1_000_000,
    }
    assert parse_changes(["expired_to_dead=true"]) == {"expired_to_dead": True}


@pytest.mark.parametrize(
    "text",
    ["redelivery_limit", "redelivery_limit=", "redelivery_limit=five", "a=1", "=1", "redelivery_delay={}"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ClientFault) as fault:
        parse_changes([text])
    assert fault.value.code == "policy-invalid"


def test_delays_grow_up_to_their_limit_and_never_overflow() -> None:
    policy = Policy(redelivery_delay=1.0, redelivery_multiplier=3.0, redelivery_delay_limit=20.0)
    assert [policy.delay_before(delivery) for delivery in (2, 3, 4, 5)] == [1.0, 3.0, 9.0, 20.0]
    assert Policy(redelivery_delay=1.0, redelivery_multiplier=1000.0).delay_before(10**6) == 300.0
    assert Policy().delay_before(10**6) == 0.0


def test_the_first_rule_that_matches_decides() -> None:
    rules = PolicyRules(
        [
            PolicyRule.of({"destinations": "queue:orders.?", "redelivery_limit": 1}),
            PolicyRule.of({"destinations": "*:orders.*", "redelivery_limit": 2}),
            PolicyRule.of({"destinations": "*", "redelivery_limit": 3}),
            PolicyRule.of({"destinations": "queue:_temporary.*", "redelivery_limit": 4}),
        ]
    )

    def limit(address: str) -> int:
        return rules.policy_for(Address(address)).redelivery_limit

    assert (limit("queue:orders.a"), limit("queue:orders.ab"), limit("topic:orders.a")) == (1, 2, 2)
    assert limit("queue:else") == 3
    assert limit("queue:_temporary.1") == 4  # only a rule that spells the `_` reaches these
    assert limit("topic:_temporary.1") == DEFAULT_POLICY.redelivery_limit


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({}, "destinations is missing"),
        ({"destinations": 5}, "destinations is missing"),
        ({"destinations": "orders"}, "queue:NAME"),
        ({"destinations": "queue:"}, "queue:NAME"),
        ({"destinations": "queue:" + "x" * 300}, "at most"),
        ({"destinations": "queue:a", "redelivery_limit": -1}, "the policy for queue:a: redelivery_limit"),
        ({"destinations": "queue:a", "limit": 1}, "'limit'"),
    ],
)
def test_a_rule_that_cannot_be_is_explained(rule: dict[str, object], named: str) -> None:
    with pytest.raises(ClientFault) as fault:
        PolicyRule.of(rule)
    assert fault.value.code == "policy-invalid"
    assert named in fault.value.sentence

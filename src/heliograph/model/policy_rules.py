"""Which policy a destination gets when it is made: the first rule whose pattern matches its address (J10).

    [[policies]]
    destinations = "queue:orders.*"
    redelivery_limit = 5

A pattern is a glob over whole addresses, `*` any characters and `?` one. Names that begin with `_` belong to
the server, and a rule reaches them only when it spells the `_` out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.model.address_pattern import AddressPattern
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault
from heliograph.model.policy import DEFAULT_POLICY, Policy, changed


class PolicyRule:
    """A policy for the destinations that a glob matches."""

    __slots__ = ("_pattern", "destinations", "policy")

    def __init__(self, destinations: str, policy: Policy) -> None:
        """Raises ClientFault `policy-invalid`."""
        try:
            self._pattern = AddressPattern(destinations)
        except ClientFault as fault:
            raise _refuse(fault.sentence) from None
        self.destinations = destinations
        self.policy = policy

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PolicyRule:
        """A rule as the configuration has it. Raises ClientFault `policy-invalid`, naming the key."""
        destinations = given.get("destinations")
        if not isinstance(destinations, str):
            raise _refuse('destinations is missing: write destinations = "queue:orders.*"')
        changes = {key: value for key, value in given.items() if key != "destinations"}
        try:
            return cls(destinations, changed(DEFAULT_POLICY, changes))
        except ClientFault as fault:
            raise _refuse(f"the policy for {destinations[:60]}: {fault.sentence}") from None

    def matches(self, address: Address) -> bool:
        return self._pattern.matches(address)


class PolicyRules:
    """All rules in their order. Without any, every destination has the defaults."""

    def __init__(self, rules: Sequence[PolicyRule] = ()) -> None:
        self.rules = tuple(rules)

    def policy_for(self, address: Address) -> Policy:
        for rule in self.rules:
            if rule.matches(address):
                return rule.policy
        return DEFAULT_POLICY


NO_RULES = PolicyRules()


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(sentence, code="policy-invalid")

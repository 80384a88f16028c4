"""Which policy a destination gets when it is made: the first rule whose pattern matches its address (J10).

    [[policies]]
    destinations = "queue:orders.*"
    redelivery_limit = 5

    members = ["east", "west"]    # of a cluster with several sub-clusters: it is in these (`distribution.py`)
    routing = "path"
    path_service = "east"

A pattern is a glob over whole addresses, `*` any characters and `?` one. Names that begin with `_` belong to
the server, and a rule reaches them only when it spells the `_` out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from heliograph.model.address_pattern import AddressPattern
from heliograph.model.destination import Address
from heliograph.model.distribution import ALL, Distribution, Routing, all_members, unit_property
from heliograph.model.errors import ClientFault
from heliograph.model.policy import DEFAULT_POLICY, Policy, changed

_OF_RULES: Final = ("destinations", "members", "leaving", "routing", "path_service")


class PolicyRule:
    """A policy for the destinations that a glob matches, and whether they are distributed."""

    __slots__ = ("_pattern", "destinations", "distribution", "policy")

    def __init__(self, destinations: str, policy: Policy, distribution: Distribution | None = None) -> None:
        """Raises ClientFault `policy-invalid`."""
        try:
            self._pattern = AddressPattern(destinations)
        except ClientFault as fault:
            raise _refuse(fault.sentence) from None
        self.destinations = destinations
        self.policy = policy
        self.distribution = distribution

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PolicyRule:
        """A rule as the configuration has it. Raises ClientFault `policy-invalid`, naming the key."""
        destinations = given.get("destinations")
        if not isinstance(destinations, str):
            raise _refuse('destinations is missing: write destinations = "queue:orders.*"')
        changes = {key: value for key, value in given.items() if key not in _OF_RULES}
        try:
            policy = changed(DEFAULT_POLICY, changes)
            return cls(destinations, policy, _distribution(given, policy))
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

    def distribution_for(self, address: Address) -> Distribution | None:
        """As it was declared; without members: over all sub-clusters."""
        for rule in self.rules:
            if rule.matches(address):
                return rule.distribution
        return None

    def check_members(self, sub_clusters: Sequence[str]) -> None:
        """Raises ClientFault `policy-invalid` if a rule names a sub-cluster that there is not."""
        for rule in self.rules:
            if rule.distribution is None:
                continue
            keeper = rule.distribution.keeper
            for member in (*all_members(rule.distribution), *((keeper,) if keeper else ())):
                if member not in sub_clusters:
                    raise _refuse(
                        f"the policy for {rule.destinations[:60]}: there is no sub-cluster {member[:40]}; there are"
                        f" {', '.join(sub_clusters)}"
                    )


NO_RULES = PolicyRules()


def _names(key: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise _refuse(f'{key} is a list of sub-clusters; members may be "all"')
    return tuple(sorted(set(given)))


def _keeper(given: Mapping[str, Any], routing: Routing) -> str:
    keeper = given.get("path_service", "")
    if not isinstance(keeper, str):
        raise _refuse("path_service is the name of a sub-cluster")
    if keeper and routing is not Routing.PATH:
        raise _refuse('path_service is for routing = "path"')
    return keeper


def _distribution(given: Mapping[str, Any], policy: Policy) -> Distribution | None:
    members, routing = given.get("members"), given.get("routing", Routing.HASH)
    if members is None:
        for key in ("routing", "path_service", "leaving"):
            if key in given:
                raise _refuse(
                    f'{key} is for what has members: write members = ["NAME", …] or members = "all"'
                )
        return None
    if routing not in tuple(Routing):
        raise _refuse(f"routing must be {' or '.join(Routing)}, not {str(routing)[:40]!r}")
    leaving = _names("leaving", given.get("leaving", []))
    found = Distribution(
        members=() if members == ALL else _names("members", members),
        leaving=leaving,
        routing=Routing(routing),
        keeper=_keeper(given, Routing(routing)),
        unit_from=policy.unit_from,
    )
    if (members != ALL and not found.members) or any(name in found.members for name in leaving):
        raise _refuse("there is at least one member, and none of them is leaving")
    if unit_property(found).startswith("JMS"):
        raise _refuse("unit_from of a distributed destination names a property that applications set")
    return found


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(sentence, code="policy-invalid")

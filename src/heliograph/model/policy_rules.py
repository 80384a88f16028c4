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

from heliograph.model.destination import Address, Kind, name_of
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_NAME_BYTES
from heliograph.model.patterns import compile_glob
from heliograph.model.policy import DEFAULT_POLICY, Policy, changed

_MAX_PATTERN_BYTES = MAX_NAME_BYTES + len("queue:")


class PolicyRule:
    """A policy for the destinations that a glob matches."""

    __slots__ = ("_matches", "_names_reserved", "destinations", "policy")

    def __init__(self, destinations: str, policy: Policy) -> None:
        """Raises ClientFault `policy-invalid`."""
        kind, colon, name = destinations.partition(":")
        if destinations != "*" and (kind not in (*Kind, "*") or not colon or not name):
            raise _refuse(
                f"destinations is written queue:NAME, topic:NAME, *:NAME or *, not {destinations[:60]!r}"
            )
        if len(destinations.encode(errors="replace")) > _MAX_PATTERN_BYTES or not destinations.isprintable():
            raise _refuse(f"destinations has at most {_MAX_PATTERN_BYTES} bytes, all printable")
        self.destinations = destinations
        self.policy = policy
        self._matches = compile_glob(destinations).fullmatch
        self._names_reserved = name.startswith("_")

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
        is_reserved = name_of(address).startswith("_")
        return (self._names_reserved or not is_reserved) and self._matches(address) is not None


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

"""Distributed destinations (U6): one name, with a member in each of several sub-clusters.

`queue:orders` is then a name only; its members are ordinary queues, `queue:orders@east` and `queue:orders@west`. All
messages of a unit of order go to one member. Which one is decided here, from the unit and from the members that are
*configured*: whether a member can be reached right now changes nothing, so a unit never takes a detour.

A rule of the configuration declares which destinations are distributed, the same on every node:

    [[policies]]
    destinations = "queue:orders"
    members = ["east", "west"]    # or "all"
    routing = "hash"
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from heliograph.model import rendezvous
from heliograph.model.destination import Address, name_of
from heliograph.model.errors import ClientFault, OrderBroken
from heliograph.model.limits import UNIT_NAMES_REMEMBERED
from heliograph.model.policy import BY_PROPERTY
from heliograph.model.units import NO_UNIT

UNREACHABLE: Final = "member-unreachable"
"""Why nothing can be sent to a member now: the code of the error, and the reason that a client is told."""
ALL: Final = "all"
_UNIT_BYTES: Final = 8


class Routing(enum.StrEnum):
    """How a unit finds its member. Hash: its number alone decides, and nobody has to remember anything. Path: the
    first to use a unit is given a member, which is remembered as long as the unit is used."""

    HASH = "hash"
    PATH = "path"


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """How a destination is distributed. Members are in the order of their names."""

    members: tuple[str, ...]
    leaving: tuple[
        str, ...
    ] = ()  # former members: no unit begins there any more, but what is there is received
    routing: Routing = Routing.HASH
    version: int = rendezvous.VERSION
    keeper: str = ""  # the sub-cluster that remembers where units are, if they are routed by path
    unit_from: str = ""  # of the policy: the unit of messages whose producer says nothing


def member_of(address: str, member: str) -> Address:
    """What a member of a distributed destination is called."""
    return Address(f"{address}@{member}")


def all_members(distribution: Distribution) -> tuple[str, ...]:
    """Those that messages may be at."""
    return (*distribution.members, *distribution.leaving)


class Distributions:
    """Which destinations are distributed, as rules say, over the sub-clusters that there are."""

    def __init__(self, rule: Callable[[Address], Distribution | None], sub_clusters: Sequence[str]) -> None:
        """`rule` says what was declared for an address; no members: all there are."""
        self._rule = rule
        self._sub_clusters = tuple(sorted(sub_clusters))

    def of(self, address: Address) -> Distribution | None:
        """How a destination is distributed; None: it is not. Where there is one sub-cluster only, none is."""
        if len(self._sub_clusters) < 2 or name_of(address).startswith("_"):
            return None
        declared = self._rule(address)
        if declared is None:
            return None
        others = tuple(name for name in self._sub_clusters if name not in declared.leaving)
        return msgspec.structs.replace(
            declared,
            members=declared.members or others,
            keeper=declared.keeper or rendezvous.chosen(address.encode(), self._sub_clusters),
        )

    def everywhere(self, address: Address) -> list[Address]:
        """One of the server's own destinations, in each sub-cluster."""
        if len(self._sub_clusters) < 2:
            return [address]
        return [member_of(address, name) for name in self._sub_clusters]

    def split(self, address: Address) -> tuple[Address, str]:
        """The distributed destination that a member belongs to, and the sub-cluster it is in; for anything else the
        address itself and nothing. Any sub-cluster can be named, so that a former member is not out of reach."""
        plain, at, name = address.rpartition("@")
        if at and name in self._sub_clusters and self.of(Address(plain)) is not None:
            return Address(plain), name
        return address, ""


NOTHING_DISTRIBUTED: Final = Distributions(lambda _: None, ())


class HashRouting:
    """Which member takes a unit: the same for everybody who knows the same members (rendezvous hashing)."""

    def __init__(self, distribution: Distribution, own_key: bytes) -> None:
        """`own_key` stands for the unit of what has none, so that one session's messages keep their order. Raises
        ClientFault `routing-unknown` where another version of the function is wanted."""
        if distribution.version != rendezvous.VERSION:
            raise ClientFault(
                f"units are routed by version {distribution.version} of the hash, and this program knows"
                f" {rendezvous.VERSION}: use a newer one",
                code="routing-unknown",
            )
        self._members = distribution.members
        self._own = rendezvous.chosen(own_key, self._members)
        self._remembered: dict[int, str] = {}

    def member_for(self, unit: int) -> str:
        """By the number, not the name: names that share a number share an order, so they have to share a member."""
        if unit == NO_UNIT:
            return self._own
        member = self._remembered.get(unit)
        if member is None:
            member = rendezvous.chosen(unit.to_bytes(_UNIT_BYTES, "little"), self._members)
            if len(self._remembered) >= UNIT_NAMES_REMEMBERED:
                self._remembered.clear()  # computing them again costs microseconds
            self._remembered[unit] = member
        return member


class PathRouting:
    """Which member takes a unit, as far as the path service has said so already."""

    def __init__(self, distribution: Distribution, own_key: bytes) -> None:
        self._own = rendezvous.chosen(own_key, distribution.members)
        self._remembered: dict[int, str] = {}

    def member_for(self, unit: int) -> str:
        """Empty: the service has to be asked. What was said holds as long as the session that it was said to."""
        return self._own if unit == NO_UNIT else self._remembered.get(unit, "")

    def learn(self, unit: int, member: str) -> None:
        if len(self._remembered) >= UNIT_NAMES_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))  # it is asked for again
        self._remembered[unit] = member

    def forget_all(self) -> None:
        """The session is another one, which uses none of them."""
        self._remembered.clear()


def unit_property(distribution: Distribution) -> str:
    """The property whose value is the unit of messages whose producer says nothing; empty if there is none."""
    return (
        distribution.unit_from.removeprefix(BY_PROPERTY)
        if distribution.unit_from.startswith(BY_PROPERTY)
        else ""
    )


def service_unreachable(address: str) -> OrderBroken:
    """What whoever sends the first message of a unit is told while nobody leads where paths are kept."""
    return OrderBroken(
        f"where new units of {address} belong cannot be asked now: try again later; units that this session has used"
        " go on",
        code="path-service-unreachable",
    )


def unreachable(address: str) -> OrderBroken:
    """What whoever sends to a member is told while nobody leads there."""
    return OrderBroken(
        f"{address} cannot be reached now, and what belongs there goes nowhere else, since that would break its"
        " order: try again later",
        code=UNREACHABLE,
    )

"""Members of distributed destinations, between a client manager and the sub-clusters they are in (U6).

In its sub-cluster a member is a destination like any other and bears the plain name; clients call it
`queue:orders@east`. Here one becomes the other, in both directions, and whoever sends to a member is told when nobody
leads there.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heliograph.bus.commands import (
    Answered,
    Command,
    ConsumerAttached,
    ConsumerDetached,
    DestinationGone,
    DestinationMade,
    DestinationWanted,
    FetchBegun,
    FlowChanged,
    Rejected,
    UploadBegun,
)
from heliograph.model.destination import Address
from heliograph.model.distribution import (
    UNREACHABLE,
    Distribution,
    Distributions,
    member_of,
    unreachable,
)
from heliograph.model.limits import MAX_DESTINATIONS

# What whoever asks for is told at once that it cannot be had, instead of being left to wait.
_WISHES: Final = (DestinationWanted, ConsumerAttached, UploadBegun, FetchBegun)
_NEWS: Final = (FlowChanged, DestinationMade, DestinationGone)


class Members:
    """The members that were spoken of, each under the name that clients use."""

    def __init__(self, distributions: Distributions) -> None:
        self._distributions = distributions
        self._places: dict[Address, tuple[Address, str]] = {}
        self._reasons: dict[Address, str] = {}  # why producers wait, as the members themselves said

    def distribution_of(self, address: Address) -> Distribution | None:
        return self._distributions.of(address)

    def place_of(self, address: Address) -> tuple[Address, str] | None:
        """What a member is called in its sub-cluster, and which that is; None: it is no member."""
        place = self._places.get(address)
        if place is None:
            place = self._distributions.split(address)
            if not place[1]:
                return None
            if len(self._places) >= MAX_DESTINATIONS:  # names that clients made up: more than there can be
                self._places.pop(next(iter(self._places)))
            self._places[address] = place
        return place

    def at(self, name: str, address: Address) -> Address:
        """What clients call a destination of a sub-cluster."""
        return address if self._distributions.of(address) is None else member_of(address, name)

    # ---- what a sub-cluster says

    def heard(self, name: str, command: Command) -> Command:
        if not isinstance(command, _NEWS):
            return command
        address = self.at(name, command.address)
        if address == command.address:
            return command
        if isinstance(command, FlowChanged):
            self._reasons[address] = command.reason
        return msgspec.structs.replace(command, address=address)

    def resumed(self, name: str, body: dict[str, Any]) -> None:
        """The lanes, consumers and blocks of a session, as a sub-cluster knows them."""
        if "lanes" in body:
            body["lanes"] = [
                (number, self.at(name, address), last) for number, address, last in body["lanes"]
            ]
        if "consumers" in body:
            body["consumers"] = [
                (number, identity, self.at(name, address)) for number, identity, address in body["consumers"]
            ]
        if "blocked" in body:
            body["blocked"] = {self.at(name, address): reason for address, reason in body["blocked"].items()}

    # ---- a sub-cluster is away

    def refusal(self, fact: Command) -> Answered | Rejected | None:
        """What is answered at once to something for a member whose sub-cluster nobody leads; None: it can wait."""
        if not isinstance(fact, (*_WISHES, ConsumerDetached)) or self.place_of(fact.address) is None:
            return None
        if isinstance(fact, ConsumerDetached):
            # What it had returns when it is heard there.
            return Answered(fact.request, {}) if fact.request else None
        error = unreachable(fact.address)
        return Rejected(fact.request, error.code, error.sentence)

    def reachability(self, name: str, *, is_led: bool) -> list[FlowChanged]:
        """What producers to the members in a sub-cluster are told when it changes."""
        return [
            FlowChanged(address, self._reasons.get(address, "") if is_led else UNREACHABLE)
            for address, (_, place) in self._places.items()
            if place == name
        ]

"""What an administrator can learn and change of destinations and sessions. Changes last: they are journaled.

Answers are pages where there may be many: an answer fits one control frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.subjects import OWN_SUBSCRIPTIONS, Arguments, argument
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.topic import Topic
from heliograph.destinations.unit_report import waiting_units
from heliograph.model.destination import Address, Kind, name_of, parse_address
from heliograph.model.errors import ClientFault
from heliograph.model.ids import text_of
from heliograph.model.policy import DEFAULT_POLICY, Policy, changed
from heliograph.model.units import unit_number

# An entry has a name of at most 255 bytes and a dozen numbers, and a control frame has 64 KiB.
PAGE_ENTRIES: Final = 100


class CatalogueHandlers:
    """Answers for the destinations and sessions of one message manager."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def register_with(self, administration: Administration) -> None:
        for subject, handler in (
            ("destinations", self._destinations),
            ("destination.show", self._show),
            ("destination.set", self._set),
            ("destination.create", self._create),
            ("destination.delete", self._delete),
            ("destination.purge", self._purge),
            ("destination.units", self._units),
            ("destination.resume_unit", self._resume_unit),
            ("sessions", self._sessions),
            (OWN_SUBSCRIPTIONS, self._subscriptions_of),
            ("policies", self._policies),
        ):
            administration.register(subject, handler)

    # ---- looking

    def _destinations(self, arguments: Arguments) -> Outcome:
        """A page of all destinations by number, those after number `after`; `next` is 0 on the last."""
        after = argument(arguments, "after", int, 0)
        page: list[dict[str, Any]] = []
        for destination in self._following(after):
            if len(page) == PAGE_ENTRIES:
                return Outcome({"destinations": page, "next": after})
            page.append(msgspec.to_builtins(destination.figures()))
            after = destination.number
        return Outcome({"destinations": page, "next": 0})

    def _following(self, after: int) -> Iterator[Destination]:
        numbers = sorted(number for number in self._catalogue.by_number if number > after)
        return (self._catalogue.by_number[number] for number in numbers)

    def _show(self, arguments: Arguments) -> Outcome:
        return Outcome(shown(destination_named(self._catalogue, arguments)))

    def _subscriptions_of(self, arguments: Arguments) -> Outcome:
        client = argument(arguments, "client", str)
        return Outcome(
            {
                "subscriptions": self._catalogue.subscriptions_of(client),
                "places": [[name, str(address)] for name, address in self._catalogue.places_of(client)],
            }
        )

    def _sessions(self, arguments: Arguments) -> Outcome:
        """A page of sessions, those behind the first `after`; `next` is 0 on the last."""
        after = argument(arguments, "after", int, 0)
        known = list(self._catalogue.sessions.items())
        entries = [
            {
                "session": text_of(identity),
                "user": session.user,
                "connected": not session.lost_at,
                "lost_at": session.lost_at,
                "lanes": len(session.lanes),
            }
            for identity, session in known[after : after + PAGE_ENTRIES]
        ]
        behind = after + len(entries)
        return Outcome({"sessions": entries, "next": behind if behind < len(known) else 0})

    def _policies(self, _arguments: Arguments) -> Outcome:
        """The defaults and the rules by which new destinations get their policies."""
        rules = [
            {"destinations": rule.destinations, "policy": _policy(rule.policy)}
            for rule in self._catalogue.rules.rules[:PAGE_ENTRIES]
        ]
        return Outcome({"defaults": _policy(DEFAULT_POLICY), "rules": rules})

    def _units(self, arguments: Arguments) -> Outcome:
        """A page of the units of order that wait, those behind the first `after`; `next` is 0 on the last."""
        after = argument(arguments, "after", int, 0)
        lists = destination_named(self._catalogue, arguments).lists()
        states = (state for messages in lists for state in waiting_units(messages))
        page = list(islice(states, after, after + PAGE_ENTRIES + 1))
        entries = [msgspec.to_builtins(state) for state in page[:PAGE_ENTRIES]]
        return Outcome({"units": entries, "next": after + PAGE_ENTRIES if len(page) > PAGE_ENTRIES else 0})

    # ---- changing

    def _resume_unit(self, arguments: Arguments) -> Outcome:
        """Let a stopped unit go on, named by its name, or by its number as `destination.units` shows it.

        With `give_up`, without the message for which it stopped: that goes to the dead.
        """
        destination = destination_named(self._catalogue, arguments)
        name = argument(arguments, "unit", str)
        gives_up = argument(arguments, "give_up", bool, False)
        keys = [unit_number(name)]
        if re.fullmatch("[0-9a-f]{16}", name):
            keys.append(int(name, 16))
        effects: list[AnyEffect] = []
        resumed = [
            messages.give_up(key, effects) if gives_up else messages.resume_unit(key, effects)
            for messages in destination.lists()
            for key in keys
        ]
        if not any(resumed):
            raise ClientFault(
                f"no unit {name[:60]!r} is stopped in {destination.address}", code="unit-unknown"
            )
        event = ("unit-resumed", {"destination": destination.address, "unit": name[:60], "gave_up": gives_up})
        return Outcome({"destination": destination.address, "unit": name}, effects, destination, event)

    def _set(self, arguments: Arguments) -> Outcome:
        destination = destination_named(self._catalogue, arguments)
        changes = argument(arguments, "policy", dict)
        policy = changed(destination.policy, changes)
        effects: list[AnyEffect] = []
        self._catalogue.set_policy(destination.address, policy, effects)
        event = ("policy-changed", {"destination": destination.address, "policy": changes})
        return Outcome(shown(destination), effects, destination, event)

    def _create(self, arguments: Arguments) -> Outcome:
        address = parse_address(argument(arguments, "destination", str))
        if address in self._catalogue.by_address:
            raise ClientFault(f"{address} is there already", code="destination-exists")
        changes = argument(arguments, "policy", dict, {})
        effects: list[AnyEffect] = []
        changed(DEFAULT_POLICY, changes)  # refuses what cannot be before anything is made
        destination = self._catalogue.find_or_make(address, effects, create=True)
        if changes:
            self._catalogue.set_policy(address, changed(destination.policy, changes), effects)
        return Outcome(shown(destination), effects)

    def _delete(self, arguments: Arguments) -> Outcome:
        destination = destination_named(self._catalogue, arguments)
        self._check_deletable(destination, force=argument(arguments, "force", bool, False))
        messages = destination.figures().depth
        effects = self._catalogue.delete(destination.address)
        return Outcome({"destination": destination.address, "messages": messages}, effects)

    def _check_deletable(self, destination: Destination, *, force: bool) -> None:
        address, figures = destination.address, destination.figures()
        if name_of(address).startswith("_"):
            raise ClientFault(f"{address} belongs to the server", code="name-reserved")
        if destination.intake.pending or self._catalogue.transactions.stages_for(destination):
            raise ClientFault(
                f"{address} is being sent to: try again when it is not", code="destination-in-use"
            )
        if force:
            return
        if figures.consumers:
            raise ClientFault(
                f"{address} has consumers ({figures.consumers}): end them, or insist",
                code="destination-in-use",
            )
        if figures.depth + figures.in_flight or (isinstance(destination, Topic) and figures.subscriptions):
            raise ClientFault(
                f"{address} is not empty: {figures.depth + figures.in_flight} messages,"
                f" {figures.subscriptions} subscriptions; insist if they may go",
                code="destination-not-empty",
            )

    def _purge(self, arguments: Arguments) -> Outcome:
        destination = destination_named(self._catalogue, arguments)
        effects: list[AnyEffect] = []
        purged = destination.purge(effects)
        event = ("destination-purged", {"destination": destination.address, "messages": purged})
        body = {"destination": destination.address, "messages": purged}
        return Outcome(body, effects, destination, event)


def destination_named(catalogue: Catalogue, arguments: Arguments, name: str = "destination") -> Destination:
    """The destination that an argument names. Raises ClientFault if there is none."""
    address = Address(argument(arguments, name, str))
    destination = catalogue.by_address.get(address)
    if destination is None:
        raise ClientFault(f"there is no {address[:60]}", code="destination-unknown")
    return destination


def shown(destination: Destination) -> dict[str, Any]:
    """All there is to say of a destination."""
    body = {**msgspec.to_builtins(destination.figures()), "policy": _policy(destination.policy)}
    if isinstance(destination, Topic):
        body["subscribers"] = [
            {
                "name": each.terms.name,
                "client": each.terms.client,
                "durable": each.terms.durable,
                "shared": each.terms.shared,
                "selector": each.terms.selector[:200],
                "depth": each.messages.depth,
                "in_flight": each.messages.in_flight,
                "consumers": len(each.messages.consumers),
            }
            for each in list(destination.subscriptions.values())[:PAGE_ENTRIES]
            if not each.is_for_other_parts
        ]
    assert body["kind"] in tuple(Kind)
    return body


def _policy(policy: Policy) -> dict[str, Any]:
    """All keys, those that have their defaults too."""
    return msgspec.structs.asdict(policy)

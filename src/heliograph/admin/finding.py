"""Destinations for people who look for some (X3): by a part of their names, sorted, page by page; and who consumes.

A page begins behind a place in the order, so that pages of several sub-clusters can be merged, and so that what comes
and goes meanwhile neither hides nor repeats more than itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import msgspec

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.handlers import destination_named
from heliograph.admin.subjects import FIND, Arguments, argument
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.model.destination import kind_of, name_of
from heliograph.model.errors import ClientFault
from heliograph.model.ids import text_of
from heliograph.model.limits import FOUND_ENTRIES

Place = tuple[int, str]
# The most first; by name, all are equal.
SORTS: Final[dict[str, Callable[[Destination], int]]] = {
    "name": lambda _each: 0,
    "depth": lambda each: -each.counts()[0],
    "in_flight": lambda each: -each.counts()[1],
    "consumers": lambda each: -each.counts()[2],
    "delivered": lambda each: -each.counts()[3],
    "stopped_units": lambda each: -each.counts()[5],
    "published": lambda each: -each.counts()[6],
    "bytes": lambda each: -each.counts()[7],
    "held_back": lambda each: -each.counts()[9],
}


class FindingHandlers:
    """Answers for the destinations of one message manager."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def register_with(self, administration: Administration) -> None:
        administration.register(FIND, self._find)
        administration.register("destination.consumers", self._consumers)

    def _find(self, arguments: Arguments) -> Outcome:
        """`contains` (a part of the name), `kind`, `sort` and `limit`; `after` is a place, as `next` was."""
        limit = min(max(argument(arguments, "limit", int, FOUND_ENTRIES), 1), FOUND_ENTRIES)
        after = place_in(arguments)
        by = argument(arguments, "sort", str, "name")
        key = SORTS.get(by)
        if key is None:
            raise ClientFault(f"the argument sort is one of {', '.join(SORTS)}", code="argument-invalid")
        found = list(self._matching(arguments))
        places = ((key(each), str(each.address)) for each in found)
        page = nsmallest(limit, (place for place in places if after is None or place > after))
        entries = [self._catalogue.by_address[address].figures() for _, address in page]  # type: ignore[index]
        return Outcome(
            {
                "destinations": msgspec.to_builtins(entries),
                "places": [list(place) for place in page],
                "total": len(found),
            }
        )

    def _matching(self, arguments: Arguments) -> Iterator[Destination]:
        contains = argument(arguments, "contains", str, "").lower()
        kind = argument(arguments, "kind", str, "")
        own = argument(arguments, "own", bool, False)
        for address, destination in self._catalogue.by_address.items():
            if contains and contains not in address.lower():
                continue
            if kind and kind_of(address) != kind:
                continue
            if not own and name_of(address).startswith("_") and not contains:
                continue
            yield destination

    def _consumers(self, arguments: Arguments) -> Outcome:
        """A page of those who take from a destination, those behind the first `after`; `next` is 0 on the last."""
        after = argument(arguments, "after", int, 0)
        destination = destination_named(self._catalogue, arguments)
        page = list(islice(self._entries(destination), max(after, 0), max(after, 0) + FOUND_ENTRIES + 1))
        behind = after + FOUND_ENTRIES if len(page) > FOUND_ENTRIES else 0
        return Outcome({"consumers": page[:FOUND_ENTRIES], "next": behind})

    def _entries(self, destination: Destination) -> Iterator[dict[str, Any]]:
        for messages in destination.lists():
            for consumer in messages.consumers.values():
                session = self._catalogue.sessions.get(consumer.session)
                yield {
                    "session": text_of(consumer.session),
                    "user": session.user if session is not None else "",
                    "client": session.client if session is not None else "",
                    "credit": consumer.credit,
                    "in_flight": consumer.outstanding.messages,
                    "in_flight_bytes": consumer.outstanding_bytes,
                    "away": consumer.away,
                    "retired": consumer.retired,
                    "subscription": messages.number,
                }


def place_in(arguments: Arguments) -> Place | None:
    """Raises ClientFault."""
    after = arguments.get("after")
    if after is None:
        return None
    match after:
        case [int(value), str(address)]:
            return value, address
    raise ClientFault("the argument after is a place of an earlier answer", code="argument-invalid")


def merged(bodies: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Pages of several sub-clusters as one."""
    rows = [
        (tuple(place), entry)
        for body in bodies
        for place, entry in zip(body["places"], body["destinations"], strict=True)
    ]
    rows.sort(key=lambda row: row[0])
    # Members of one distributed destination have one place: none of them is left to a page that begins behind it.
    while limit < len(rows) and rows[limit][0] == rows[limit - 1][0]:
        limit += 1
    return {
        "destinations": [entry for _, entry in rows[:limit]],
        "places": [list(place) for place, _ in rows[:limit]],
        "total": sum(body["total"] for body in bodies),
    }

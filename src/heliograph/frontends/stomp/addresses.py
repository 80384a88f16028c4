"""What STOMP clients call destinations.

    /queue/orders        queue:orders
    /topic/prices        topic:prices
    /alerts/ops          alerts:ops, a channel of alerts
    /temp-queue/answers  a temporary queue of this connection, made when it is first named

Our own way of writing an address is taken too. A subscription may name a pattern, `/topic/glob:prices.*`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from heliograph.model.destination import Kind
from heliograph.model.errors import InvalidName
from heliograph.model.limits import ADDRESSES_REMEMBERED

_PREFIXES: Final = {"/queue/": Kind.QUEUE, "/topic/": Kind.TOPIC, "/alerts/": Kind.ALERTS}
TEMPORARY: Final = {"/temp-queue/": Kind.QUEUE, "/temp-topic/": Kind.TOPIC}


@lru_cache(maxsize=ADDRESSES_REMEMBERED)
def address_of(destination: str) -> str:
    """Raises InvalidName."""
    for prefix, kind in _PREFIXES.items():
        if destination.startswith(prefix):
            return f"{kind}:{destination[len(prefix) :]}"
    if destination.partition(":")[0] in tuple(Kind):
        return destination
    raise InvalidName(
        f"a destination is written /queue/NAME, /topic/NAME or /alerts/NAME, not {destination[:40]!r}",
        code="invalid-destination",
    )


def kind_of_temporary(destination: str) -> Kind | None:
    """Of which kind a temporary destination is to be; None: it names another."""
    if destination.startswith("/temp-"):
        for prefix, kind in TEMPORARY.items():
            if destination.startswith(prefix):
                return kind
    return None


def destination_of(address: str) -> str:
    """What a STOMP client calls an address; whatever is none stays as it is."""
    kind, colon, name = address.partition(":")
    return f"/{kind}/{name}" if colon and kind in tuple(Kind) else address

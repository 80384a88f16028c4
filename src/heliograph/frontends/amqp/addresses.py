"""What AMQP clients call destinations.

    queue:orders, /queue/orders, queue://orders    queue:orders
    topic:prices, /topic/prices, topic://prices    topic:prices
    alerts:ops, /alerts/ops, alerts://ops          alerts:ops
    orders                                         what the link says with a capability (queue, topic), or the
                                                   message with `x-opt-jms-dest`; otherwise a queue

A JMS client is told names, with their kind beside them; others are told addresses that they can use as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from heliograph.model.destination import OF_MESSAGES, TEMPORARY_PREFIX, Kind
from heliograph.model.limits import ADDRESSES_REMEMBERED

_PREFIXES: Final = (
    ("/queue/", Kind.QUEUE),
    ("/topic/", Kind.TOPIC),
    ("queue://", Kind.QUEUE),
    ("topic://", Kind.TOPIC),
    ("/alerts/", Kind.ALERTS),
    ("alerts://", Kind.ALERTS),
)
_KINDS: Final = {
    "queue": Kind.QUEUE,
    "topic": Kind.TOPIC,
    "temporary-queue": Kind.QUEUE,
    "temporary-topic": Kind.TOPIC,
}
# How a message says of which kind its destination is (the JMS mapping).
_OF_NUMBER: Final = (Kind.QUEUE, Kind.TOPIC, Kind.QUEUE, Kind.TOPIC)


def kind_wanted(capabilities: Iterable[str]) -> Kind | None:
    """What a link says of the kind of its node; None: nothing."""
    for capability in capabilities:
        if capability in _KINDS:
            return _KINDS[capability]
    return None


def kind_numbered(number: object) -> Kind | None:
    return _OF_NUMBER[number] if isinstance(number, int) and 0 <= number < len(_OF_NUMBER) else None


@lru_cache(maxsize=ADDRESSES_REMEMBERED)
def address_of(name: str, kind: Kind | None = None) -> str:
    """`kind`: what is known of it besides. Whether there can be such a destination is for others to say."""
    for prefix, meant in _PREFIXES:
        if name.startswith(prefix):
            return f"{meant}:{name[len(prefix) :]}"
    if name.partition(":")[0] in tuple(Kind) and ":" in name:
        return name
    return f"{kind or Kind.QUEUE}:{name}"


@lru_cache(maxsize=ADDRESSES_REMEMBERED)
def named(address: str) -> tuple[str, int]:
    """The name of a destination for a JMS client, and the number of its kind; -1: it is none of ours."""
    kind, colon, name = address.partition(":")
    if not colon or kind not in OF_MESSAGES:
        return address, -1
    number = 1 if kind == Kind.TOPIC else 0
    return (address, number + 2) if name.startswith(TEMPORARY_PREFIX) else (name, number)

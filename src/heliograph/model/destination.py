"""What a destination is called and what kind it is (J1)."""

from __future__ import annotations

import enum
from typing import NewType

from heliograph.model.errors import ClientFault, InvalidName
from heliograph.model.limits import MAX_NAME_BYTES

Address = NewType("Address", str)
"""A checked destination address: `queue:orders`, `topic:prices`, `alerts:ops`."""


class Kind(enum.StrEnum):
    """Queue: each message to exactly one consumer. Topic: each message to every subscriber. Alerts: no messages, but
    alerts, which are live until they end (A1)."""

    QUEUE = "queue"
    TOPIC = "topic"
    ALERTS = "alerts"


_KINDS = tuple(kind.value for kind in Kind)
# What messages are sent to and received from.
OF_MESSAGES = (Kind.QUEUE, Kind.TOPIC)


def parse_address(text: str, *, system: bool = False) -> Address:
    """Check an address as a client wrote it. `system` admits the well-known names that begin with `_`
    (M11)."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in _KINDS:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise InvalidName(
            f"a destination is written queue:NAME, topic:NAME or alerts:NAME, not {shown!r}",
            code="invalid-destination",
        )
    if not name:
        raise InvalidName(f"the {kind} has no name: write {kind}:NAME", code="name-empty")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidName(
            f"the name has {len(name.encode())} bytes; at most {MAX_NAME_BYTES} are allowed",
            code="name-too-long",
        )
    if name[0] == "_" and not system:
        raise InvalidName(
            f"names that begin with '_' belong to the server: {name[:40]!r}", code="name-reserved"
        )
    if not name.isprintable() or name != name.strip():
        raise InvalidName(
            "a name has printable characters only and no blank at either end", code="name-unprintable"
        )
    return Address(text)


def of_messages(address: Address) -> Address:
    """The address, unless it takes no messages."""
    if kind_of(address) not in OF_MESSAGES:
        raise ClientFault(
            f"{address} takes alerts, not messages: use connection.alerts({name_of(address)!r})",
            code="alerts-only",
        )
    return address


def kind_of(address: Address) -> Kind:
    return Kind(address.partition(":")[0])


def name_of(address: Address) -> str:
    return address.partition(":")[2]


DEAD_MESSAGES = Address("queue:_DMQ")
EVENT_LOG = Address("topic:_LOG")
ADMINISTRATION = Address("topic:_ADMIN")
# Where durable subscriptions to patterns are written down, for topics that are yet to come. Nobody sends there.
PATTERNS = Address("topic:_PATTERNS")
# Queues that have the one message which whoever subscribes to a topic gets first (MQTT's retained message).
RETAINED_PREFIX = "$retained/"
# Temporary destinations are named by the server and end with the connection that asked for them (J9).
TEMPORARY_PREFIX = "_temporary."


def at_sub_cluster(address: Address) -> tuple[Address, str]:
    """The server's own destinations are in every sub-cluster: `queue:_DMQ@east` is the one in the east. Returns the
    address there and the sub-cluster, empty where none is named."""
    plain, at, sub_cluster = address.rpartition("@")
    if at and name_of(address).startswith("_") and not name_of(address).startswith(TEMPORARY_PREFIX):
        return Address(plain), sub_cluster
    return address, ""

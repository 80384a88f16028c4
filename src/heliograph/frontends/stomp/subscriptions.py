"""The subscriptions of a STOMP connection: what each client asked for, what it has, and what its ACK and NACK mean.

auto                what was sent counts as received as soon as the network has it
client              an ACK is for that message and all before it of the subscription
client-individual   an ACK is for that message
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from heliograph.bus.commands import BY_POLICY, DEAD, UNSEEN
from heliograph.frontends.held_tags import HeldTags, Ranges
from heliograph.frontends.stomp.frames import V1_2
from heliograph.frontends.stomp.headers import Encoder
from heliograph.model.errors import ClientFault, ProtocolFault
from heliograph.model.limits import FOREIGN_CREDIT, FOREIGN_UNACKNOWLEDGED, MAX_CREDIT
from heliograph.sessions import commands

AUTO: Final = "auto"
CLIENT: Final = "client"
INDIVIDUAL: Final = "client-individual"
_MODES: Final = (AUTO, CLIENT, INDIVIDUAL)
# What other servers call the name of a durable subscription.
_NAMES: Final = ("subscription-name", "durable-subscription-name", "activemq.subscriptionName")


class Subscription:
    """One of a client's, under our number for it."""

    def __init__(self, number: int, key: str, headers: dict[str, str], *, version: str) -> None:
        """Raises ClientFault."""
        self.number = number
        self.key = key
        self.address = ""
        self.mode = headers.get("ack", AUTO)
        if self.mode not in _MODES:
            raise ClientFault(
                f"ack is one of {', '.join(_MODES)}, not {self.mode[:40]!r}", code="header-invalid"
            )
        self.is_browser = headers.get("browser") == "true"
        self.name = subscription_name(headers)
        has_acks = self.mode != AUTO and not self.is_browser
        self._encoder = Encoder(headers.get("id", ""), version, has_acks=has_acks and version == V1_2)
        # Before 1.2 a message is acknowledged by its id.
        self.tags: dict[str, int] | None = {} if has_acks and version != V1_2 else None
        self.held = HeldTags()
        self._pending = HeldTags()  # acknowledged by their ids in transactions that are open
        self.handed: Ranges = []  # of mode auto: what the network has not got yet

    @property
    def encoder(self) -> Encoder:
        return self._encoder

    @property
    def is_auto(self) -> bool:
        return self.mode == AUTO

    def sent(self, first: int, last: int) -> None:
        """The client was sent these."""
        if self.is_browser:
            return
        if not self.is_auto:
            self.held.add(first, last)
        elif self.handed and self.handed[-1][1] == first - 1:
            self.handed[-1] = (self.handed[-1][0], last)
        else:
            self.handed.append((first, last))

    def take(self, tag: int) -> Ranges:
        """What an ACK or NACK of this tag is about; nothing, if all of it is settled."""
        return self.held.take_up_to(tag) if self.mode == CLIENT else self.held.take(tag, tag)

    def put_back(self, ranges: Ranges) -> None:
        """A transaction was aborted: they can be acknowledged again."""
        for first, last in ranges:
            self._pending.take(first, last)
            self.held.add(first, last)

    def recalled(self, ranges: Ranges) -> None:
        for first, last in ranges:
            self.held.take(first, last)

    def committed(self, ranges: Ranges) -> None:
        """What became of them in a transaction is final."""
        for first, last in ranges:
            self._pending.take(first, last)
        self._forget(ranges[-1][1])

    def by_name(self, name: str, *, is_final: bool) -> Ranges:
        """What an ACK or NACK of this id is about. An id is forgotten when no transaction can be aborted that puts
        its message back."""
        assert self.tags is not None
        tag = self.tags[name]
        ranges = self.take(tag)
        if not is_final:
            for first, last in ranges:
                self._pending.add(first, last)
        elif self.mode == CLIENT:
            self._forget(tag)
        elif tag not in self._pending:
            del self.tags[name]
        return ranges

    def _forget(self, last: int) -> None:
        """The ids of what is settled, up to a tag."""
        if self.tags:
            held, pending = self.held, self._pending
            self.tags = {
                name: tag for name, tag in self.tags.items() if tag > last or tag in held or tag in pending
            }

    def last_seen(self, headers: dict[str, str]) -> int:
        """What a client that leaves says of what it was sent: the last tag that reached the application. -1: nothing.
        Raises ProtocolFault."""
        first_unseen = headers.get("first-unseen")
        if first_unseen is None:
            return -1
        number, tag = _tag(first_unseen)
        return tag - 1 if number == self.number else -1

    def take_handed(self) -> Ranges:
        handed, self.handed = self.handed, []
        return handed


def subscription_name(headers: dict[str, str]) -> str:
    """The name of a durable or shared subscription: as it is given, or the id that a client always uses for it."""
    for header in _NAMES:
        if headers.get(header):
            return headers[header]
    is_named = headers.get("durable") == "true" or headers.get("shared") == "true"
    return headers.get("id", "") if is_named else ""


def is_durable(headers: dict[str, str]) -> bool:
    return headers.get("durable") == "true" or any(name in headers for name in _NAMES[1:])


def subscribe_command(
    request: int, subscription: Subscription, headers: dict[str, str], address: str
) -> commands.Subscribe:
    """Raises ClientFault."""
    usual = FOREIGN_CREDIT if subscription.is_auto or subscription.is_browser else FOREIGN_UNACKNOWLEDGED
    return commands.Subscribe(
        request,
        subscription.number,
        address,
        credit_of(headers, usual),
        headers.get("selector", ""),
        subscription.name,
        is_durable(headers),
        headers.get("shared") == "true",
        headers.get("no-local") == "true" or headers.get("activemq.noLocal") == "true",
        subscription.is_browser,
    )


def credit_of(headers: dict[str, str], usual: int) -> int:
    """How many messages a client takes ahead. Raises ClientFault."""
    text = headers.get("prefetch-count") or headers.get("activemq.prefetchSize")
    if text is None:
        return usual
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= MAX_CREDIT:
        raise ClientFault(f"prefetch-count is a number from 1 to {MAX_CREDIT}", code="header-invalid")
    return int(text[:9])


class Subscriptions:
    """All of one connection."""

    def __init__(self, new_number: Callable[[], int]) -> None:
        self._new_number = new_number
        self._by_key: dict[str, Subscription] = {}
        self.by_number: dict[int, Subscription] = {}

    def add(self, headers: dict[str, str], version: str) -> Subscription:
        """Raises ClientFault."""
        key = _key(headers)
        if key in self._by_key:
            raise ClientFault(f"subscription {key[:40]!r} is there already", code="consumer-exists")
        found = Subscription(self._new_number(), key, headers, version=version)
        self._by_key[key] = self.by_number[found.number] = found
        return found

    def has(self, headers: dict[str, str]) -> bool:
        """Whether there is the one that a frame names. Raises ProtocolFault."""
        return _key(headers) in self._by_key

    def remove(self, headers: dict[str, str]) -> Subscription:
        """Raises ClientFault."""
        key = _key(headers)
        found = self._by_key.pop(key, None)
        if found is None:
            raise ClientFault(f"there is no subscription {key[:40]!r}", code="consumer-unknown")
        del self.by_number[found.number]
        return found

    def acknowledged(
        self, headers: dict[str, str], version: str, *, is_final: bool
    ) -> tuple[Subscription, Ranges] | None:
        """What an ACK or NACK is about. None: it was settled before, or its subscription is gone. `is_final`: no
        transaction can be aborted that puts it back. Raises ProtocolFault."""
        if version == V1_2:
            return self._by_tag(headers)
        name = headers.get("message-id")
        if name is None:
            raise ProtocolFault(
                "ACK and NACK say which message they are for: message-id", code="frame-malformed"
            )
        key = headers.get("subscription")
        wanted = list(self.by_number.values()) if key is None else [self._by_key.get(f"id:{key}")]
        for subscription in wanted:
            if subscription is not None and subscription.tags and name in subscription.tags:
                return subscription, subscription.by_name(name, is_final=is_final)
        return None

    def _by_tag(self, headers: dict[str, str]) -> tuple[Subscription, Ranges] | None:
        number, tag = _tag(headers.get("id", ""))
        found = self.by_number.get(number)
        return None if found is None else (found, found.take(tag))


def _tag(text: str) -> tuple[int, int]:
    """The number of a subscription and the tag in a message's header `ack`. Raises ProtocolFault."""
    number, dash, tag = text.partition("-")
    if not dash or not number.isdecimal() or not tag.isdecimal() or len(number) > 18 or len(tag) > 18:
        raise ProtocolFault(
            "ACK and NACK say which message they are for: the header id is the message's ack",
            code="frame-malformed",
        )
    return int(number), int(tag)


def fate_of(headers: dict[str, str]) -> int:
    """What becomes of a message that a client gives back."""
    if headers.get("requeue") == "false":
        return DEAD
    return UNSEEN if headers.get("delivered") == "false" else BY_POLICY


def _key(headers: dict[str, str]) -> str:
    """Version 1.0 knows subscriptions without an id, by their destination."""
    if "id" in headers:
        return f"id:{headers['id']}"
    if "destination" in headers:
        return f"destination:{headers['destination']}"
    raise ProtocolFault("a subscription has an id", code="frame-malformed")

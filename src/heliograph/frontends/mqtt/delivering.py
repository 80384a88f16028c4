"""Messages on their way to an MQTT client: their numbers, how many may be under way, and what is acknowledged.

    quality 0   ──▶ sent, and settled when the network has it
    quality 1   ──PUBLISH──▶ ◀──PUBACK── settled
    quality 2   ──PUBLISH──▶ ◀──PUBREC── ──PUBREL──▶ ◀──PUBCOMP── settled

A message of quality 2 is settled at the end: if all knowledge of it is lost before, it comes again rather than
not at all. As long as its number is known, the client does not take it twice.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.messages import Outgoing
from heliograph.frontends.mqtt.packets import PUBREL, V5, acknowledgement
from heliograph.frontends.mqtt.properties import Properties, encode_properties
from heliograph.frontends.mqtt.reading import pack_text
from heliograph.frontends.mqtt.subscriptions import Subscription
from heliograph.frontends.mqtt.topics import topic_of
from heliograph.model.limits import MQTT_TOPIC_ALIASES

_MAX_PACKET_ID: Final = 0xFFFF
_EMPTY_TOPIC: Final = b"\0\0"
# Bytes of a PUBLISH without properties besides topic and payload: kind, length, number, length of properties.
_MOST_AROUND: Final = 8
_U16 = struct.Struct(">H")
NO_TAG: Final = 0
"""Of a message that nobody has to be told about: it was retained."""


class InFlight(msgspec.Struct):
    """A message that the client has not acknowledged."""

    consumer: int
    tag: int
    qos: int
    identity: str
    is_released: bool = False


class Waiting(msgspec.Struct):
    """A message that the client cannot take yet."""

    subscription: Subscription
    tag: int
    message: Outgoing
    destination: str
    identity: str
    qos: int
    retain: bool
    earlier: int


class Delivering:
    """To one client."""

    def __init__(self, version: int, *, receive_maximum: int, packet_limit: int, aliases: int) -> None:
        self._version = version
        self.receive_maximum = receive_maximum
        self._packet_limit = packet_limit
        self._alias_limit = min(aliases, MQTT_TOPIC_ALIASES)
        self._aliases: dict[str, int] = {}
        self._topics: dict[str, bytes] = {}
        self._in_flight: dict[int, InFlight] = {}
        self._waiting: deque[Waiting] = deque()
        self._last_id = 0
        self.known: dict[str, tuple[int, bool]] = {}  # of quality 2, from an earlier connection
        self._settled: dict[int, list[int]] = {}
        self.out: list[bytes] = []

    # ---- to the client

    def deliver(
        self,
        subscription: Subscription,
        tag: int,
        message: Outgoing,
        *,
        destination: str,
        identity: str,
        earlier: int = 0,
        is_retained: bool = False,
    ) -> None:
        options = subscription.options
        qos = min(message.qos, options.qos)
        retain = is_retained or (options.retain_as_published and message.is_retained)
        if not qos:
            self._send(subscription, message, destination, 0, retain=retain, qos=0, duplicate=False)
            if tag != NO_TAG:
                subscription.hand(tag)
            return
        if self.known or self._waiting or len(self._in_flight) >= self.receive_maximum:
            waiting = Waiting(subscription, tag, message, destination, identity, qos, retain, earlier)
            self._waiting.append(waiting)
            self.go_on()
            return
        packet_id = self._new_number()
        self._in_flight[packet_id] = InFlight(subscription.number, tag, qos, identity)
        if not self._send(
            subscription, message, destination, packet_id, retain=retain, qos=qos, duplicate=False
        ):
            self._done(packet_id)

    def deliver_plain(
        self, subscription: Subscription, first: int, payloads: list[bytes], destination: str
    ) -> bool:
        """Messages of quality 1 about which there is nothing to say, as most are, under tags from `first`: what
        `deliver` does, at a fraction of the cost. Whether it could be done so; if not, nothing was done."""
        in_flight, options = self._in_flight, subscription.options
        if options.qos != 1 or options.identifier or self._alias_limit or self.known or self._waiting:
            return False
        topic = self._topic(destination)
        longest = max(map(len, payloads)) + len(topic) + _MOST_AROUND
        if len(in_flight) + len(payloads) > self.receive_maximum or longest > self._packet_limit:
            return False
        size, begin, properties = -1, b"", b"" if self._version != V5 else b"\0"
        tag, number, consumer = first, self._last_id, subscription.number
        for payload in payloads:
            if len(payload) != size:
                size = len(payload)
                begin = packets.begin_publish(topic, size + len(properties))
            number = number % _MAX_PACKET_ID + 1
            while number in in_flight:
                number = number % _MAX_PACKET_ID + 1
            in_flight[number] = InFlight(consumer, tag, 1, "")
            self.out.append(b"".join((begin, _U16.pack(number), properties, payload)))
            tag += 1
        self._last_id = number
        return True

    def _topic(self, destination: str) -> bytes:
        topic = self._topics.get(destination)
        if topic is None:
            topic = self._topics[destination] = pack_text(topic_of(destination))
        return topic

    def go_on(self) -> None:
        """As much as the client can take."""
        while self._waiting and len(self._in_flight) < self.receive_maximum:
            waiting = self._waiting.popleft()
            packet_id, was_released, duplicate = self._number(waiting)
            in_flight = InFlight(
                waiting.subscription.number, waiting.tag, waiting.qos, waiting.identity, was_released
            )
            self._in_flight[packet_id] = in_flight
            if was_released:
                self.out.append(acknowledgement(PUBREL, packet_id, self._version))
            elif not self._send(
                waiting.subscription,
                waiting.message,
                waiting.destination,
                packet_id,
                retain=waiting.retain,
                qos=waiting.qos,
                duplicate=duplicate,
            ):
                self._done(packet_id)

    def _number(self, waiting: Waiting) -> tuple[int, bool, bool]:
        """The number for a message, whether it was released under it before, and whether it was sent."""
        known = self.known.pop(waiting.identity, None) if self.known and waiting.earlier else None
        if known is not None and known[0] not in self._in_flight:
            return known[0], known[1], True
        return self._new_number(), False, False

    def _new_number(self) -> int:
        taken = {number for number, _ in self.known.values()} if self.known else ()
        while True:
            self._last_id = self._last_id % _MAX_PACKET_ID + 1
            if self._last_id not in self._in_flight and self._last_id not in taken:
                return self._last_id

    def _send(
        self,
        subscription: Subscription,
        message: Outgoing,
        destination: str,
        packet_id: int,
        *,
        retain: bool,
        qos: int,
        duplicate: bool,
    ) -> bool:
        """Whether it was not too large for the client."""
        topic = self._topic(destination)
        properties = b""
        if self._version == V5:
            said = message.properties
            if subscription.options.identifier:
                said["subscription_identifier"] = [subscription.options.identifier]
            if self._alias_limit:
                topic = self._shorten(destination, topic, said)
            properties = encode_properties(said)
        packet = packets.publish(
            topic,
            message.payload,
            qos=qos,
            retain=retain,
            duplicate=duplicate,
            packet_id=packet_id,
            properties=properties,
        )
        if len(packet) > self._packet_limit:
            return False
        self.out.append(packet)
        return True

    def _shorten(self, destination: str, topic: bytes, said: Properties) -> bytes:
        alias = self._aliases.get(destination)
        if alias is not None:
            said["topic_alias"] = alias
            return _EMPTY_TOPIC
        if len(self._aliases) < self._alias_limit:
            said["topic_alias"] = self._aliases[destination] = len(self._aliases) + 1
        return topic

    # ---- from the client

    def acknowledged(self, packet_id: int, qos: int) -> None:
        """PUBACK or PUBCOMP. What is not known was settled before, or on another connection."""
        in_flight = self._in_flight.get(packet_id)
        if in_flight is not None and in_flight.qos == qos:
            self._done(packet_id)
        if self._waiting:
            self.go_on()

    def acknowledged_all(self, packet_ids: Sequence[int]) -> None:
        """Many PUBACKs."""
        in_flight = self._in_flight
        for packet_id in packet_ids:
            each = in_flight.get(packet_id)
            if each is not None and each.qos == 1:
                self._done(packet_id)
        if self._waiting:
            self.go_on()

    def received(self, packet_id: int, reason: int) -> bool:
        """PUBREC. Whether the message is known."""
        in_flight = self._in_flight.get(packet_id)
        if in_flight is None or in_flight.qos != 2:
            return False
        if reason >= 0x80:
            self._done(packet_id)
            self.go_on()
        else:
            in_flight.is_released = True
            self.out.append(acknowledgement(PUBREL, packet_id, self._version))
        return True

    def _done(self, packet_id: int) -> None:
        in_flight = self._in_flight.pop(packet_id)
        if in_flight.tag != NO_TAG:
            self._settled.setdefault(in_flight.consumer, []).append(in_flight.tag)

    def take_settled(self) -> list[tuple[int, Ranges]]:
        """What can be settled, for each consumer."""
        if not self._settled:
            return []
        settled, self._settled = self._settled, {}
        return [(consumer, ranges_of(tags)) for consumer, tags in settled.items()]

    def dropped(self, consumer: int, ranges: Ranges) -> None:
        """These went back and come again under other tags."""
        gone = [
            number
            for number, each in self._in_flight.items()
            if each.consumer == consumer and any(low <= each.tag <= high for low, high in ranges)
        ]
        for number in gone:
            self._in_flight[number].tag = NO_TAG
        self._waiting = deque(
            each
            for each in self._waiting
            if each.subscription.number != consumer
            or not any(low <= each.tag <= high for low, high in ranges)
        )

    def is_waiting(self, consumer: int, tag: int) -> bool:
        """Whether it was not sent yet."""
        return any(each.subscription.number == consumer and each.tag == tag for each in self._waiting)

    def unsubscribed(self, consumer: int) -> None:
        self._waiting = deque(each for each in self._waiting if each.subscription.number != consumer)

    def under_way(self) -> dict[str, tuple[int, bool]]:
        """What the client may have, of quality 2: a later connection goes on with it."""
        sent = {
            each.identity: (number, each.is_released)
            for number, each in self._in_flight.items()
            if each.qos == 2 and each.tag != NO_TAG
        }
        return {**self.known, **sent}


def ranges_of(tags: list[int]) -> Ranges:
    tags.sort()
    ranges: Ranges = []
    for tag in tags:
        if ranges and ranges[-1][1] == tag - 1:
            ranges[-1] = (ranges[-1][0], tag)
        else:
            ranges.append((tag, tag))
    return ranges

"""The subscriptions of an MQTT client, and what of its session is kept while it is away.

A durable one is named after its filter and the options that it was first made with, so that a client that
comes back finds it though it does not subscribe again, wherever it comes back and whatever was restarted meanwhile.
"""

from __future__ import annotations

from typing import Final

import msgspec

from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.mqtt.alerts import Wishes
from heliograph.frontends.mqtt.packets import Filter
from heliograph.frontends.mqtt.topics import Meaning, parse_filter
from heliograph.model.errors import InvalidName
from heliograph.model.limits import FOREIGN_CREDIT, FOREIGN_UNACKNOWLEDGED
from heliograph.model.patterns import SEPARATOR
from heliograph.sessions import commands

_PREFIX: Final = "mqtt:"


class Options(msgspec.Struct, frozen=True):
    """How a client wants to get what a filter means."""

    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0


class Subscription:
    """One of a client's, under our number for it."""

    def __init__(self, number: int, text: str, meaning: Meaning, options: Options, name: str) -> None:
        self.number = number
        self.text = text
        self.meaning = meaning
        self.options = options
        self.name = name  # of the durable subscription, empty if it ends with the connection
        self.wishes: Wishes | None = None  # of alerts
        self.handed: Ranges = []  # of quality 0: what the network has not got yet

    def hand(self, tag: int) -> None:
        if self.handed and self.handed[-1][1] == tag - 1:
            self.handed[-1] = (self.handed[-1][0], tag)
        else:
            self.handed.append((tag, tag))

    def take_handed(self) -> Ranges:
        handed, self.handed = self.handed, []
        return handed


def options_of(wanted: Filter, identifier: int) -> Options:
    return Options(wanted.qos, wanted.no_local, wanted.retain_as_published, identifier)


def durable_name(text: str, options: Options) -> str:
    bits = options.qos | options.no_local << 2 | options.retain_as_published << 3
    return f"{_PREFIX}{bits:x}:{text}"


def parse_name(name: str) -> tuple[str, Meaning, Options, str] | None:
    """The filter, its meaning and options in the name of a durable subscription, and the name itself; None: it
    was not made by an MQTT client."""
    name = name.partition(SEPARATOR)[0]
    bits, colon, text = name.removeprefix(_PREFIX).partition(":")
    if not name.startswith(_PREFIX) or not colon or len(bits) != 1 or bits not in "0123456789abcdef":
        return None
    try:
        meaning = parse_filter(text)
    except InvalidName:
        return None
    number = int(bits, 16)
    return text, meaning, Options(min(number & 3, 2), number & 4 != 0, number & 8 != 0), name


def subscribe_command(request: int, subscription: Subscription, receive_maximum: int) -> commands.Subscribe:
    meaning, options = subscription.meaning, subscription.options
    usual = min(FOREIGN_UNACKNOWLEDGED, receive_maximum) if options.qos else FOREIGN_CREDIT
    is_shared = bool(meaning.share) and not meaning.is_queue
    return commands.Subscribe(
        request,
        subscription.number,
        meaning.address,
        usual,
        subscription=f"{_PREFIX}share:{meaning.share}:{meaning.address}" if is_shared else subscription.name,
        durable=bool(subscription.name),
        shared=is_shared,
        no_local=options.no_local and not is_shared and not meaning.is_queue,
        common=is_shared,
    )


class SessionState(msgspec.Struct):
    """What is kept of a session while its client is away, besides its durable subscriptions."""

    options: dict[str, Options]
    # Messages of quality 2 from the client: those that are stored and not released yet.
    received: dict[int, bool]
    # Those to the client, by their id: the number of the packet, and whether it was released.
    sent: dict[str, tuple[int, bool]]

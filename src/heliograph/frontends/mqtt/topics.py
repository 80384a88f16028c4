"""What MQTT calls topics and filters, and what they are here.

    a/b             topic:a/b
    a/+/c, a/#      a pattern over topics
    $queue/orders   queue:orders: each message to one of those who subscribe
    $share/g/a/b    topic:a/b, shared by all who name the group g
    $alerts/ops     alerts:ops, a channel of alerts; behind it may stand whom one is for, or which are wanted
                    (`/TAG:disk`), and $acknowledgements/ops/TAG:disk means acknowledgements of those

Filters with `+` or `#` at their beginning mean no topic that begins with `$`.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from heliograph.model.destination import RETAINED_PREFIX, Kind
from heliograph.model.errors import InvalidName

QUEUE: Final = "$queue/"
ALERTS: Final = "$alerts/"
_ACKNOWLEDGEMENTS: Final = "$acknowledgements/"
_SHARE: Final = "$share/"
# Where the name of a channel ends and topics begin.
_TOPICS: Final = re.compile("/(?=(?:TAG|PROFILE|USER):)")
_OWN: Final = "$"
_PREFIXES: Final[dict[str, str]] = {Kind.QUEUE: QUEUE, Kind.ALERTS: ALERTS}


class Meaning(msgspec.Struct, frozen=True):
    """What a filter asks for. `pattern`: a regular expression over names, where it means several topics."""

    address: str
    share: str = ""
    pattern: str = ""

    @property
    def is_queue(self) -> bool:
        return self.address.startswith(f"{Kind.QUEUE}:")


def address_of(topic: str) -> str:
    """Where messages for a topic go. Raises InvalidName."""
    if not topic or "+" in topic or "#" in topic:
        raise InvalidName("messages are published to one topic, without + and #", code="invalid-destination")
    if topic.startswith(QUEUE):
        return f"{Kind.QUEUE}:{topic[len(QUEUE) :]}"
    if topic.startswith(ALERTS):
        return f"{Kind.ALERTS}:{topic[len(ALERTS) :]}"
    if topic.startswith(_OWN):
        raise InvalidName(f"{topic[:40]!r} is no topic that can be published to", code="name-reserved")
    return f"{Kind.TOPIC}:{topic}"


def topic_of(address: str) -> str:
    """What an MQTT client calls an address."""
    kind, colon, name = address.partition(":")
    if not colon or kind not in tuple(Kind):
        return address
    return f"{_PREFIXES.get(kind, '')}{name}"


class ChannelFilter(msgspec.Struct, frozen=True):
    """A channel of alerts that a filter means, and which alerts, if it says so."""

    address: str
    topics: str
    of_acknowledgements: bool


def split_channel(address: str) -> tuple[str, str]:
    """The address of a channel, and what stands behind its name: whom an alert is for, or which are wanted."""
    found = _TOPICS.search(address)
    return (address, "") if found is None else (address[: found.start()], address[found.end() :])


def parse_channel(text: str) -> ChannelFilter | None:
    """None: the filter is for messages. Raises InvalidName."""
    prefix = next((each for each in (ALERTS, _ACKNOWLEDGEMENTS) if text.startswith(each)), "")
    if not prefix:
        return None
    if "+" in text or "#" in text:
        raise InvalidName(
            "+ and # are no part of a filter for alerts: a user property, topics, says which are wanted",
            code="invalid-destination",
        )
    address, topics = split_channel(f"{Kind.ALERTS}:{text[len(prefix) :]}")
    return ChannelFilter(address, topics, prefix == _ACKNOWLEDGEMENTS)


def retained_queue(address: str) -> str:
    """The queue that has the retained message of a topic."""
    return f"{Kind.QUEUE}:{RETAINED_PREFIX}{address.partition(':')[2]}"


def retained_pattern(meaning: Meaning) -> str:
    """A pattern over the queues that have the retained messages of what a filter means."""
    expression = meaning.pattern or re.escape(meaning.address.partition(":")[2])
    inner = expression.removeprefix("^").removesuffix("$")
    return f"{Kind.QUEUE}:regex:^{re.escape(RETAINED_PREFIX)}(?:{inner})$"


def parse_filter(text: str) -> Meaning:
    """Raises InvalidName."""
    share = ""
    if text.startswith(_SHARE):
        share, slash, text = text[len(_SHARE) :].partition("/")
        if not slash or not share or not text or "+" in share or "#" in share:
            raise InvalidName("a shared subscription is $share/NAME/FILTER", code="invalid-destination")
        if parse_channel(text) is not None:
            raise InvalidName("alerts are for each who asks for them, not shared", code="invalid-destination")
    if not text:
        raise InvalidName("a filter has at least one letter", code="name-empty")
    levels = text.split("/")
    if "+" not in text and "#" not in text:
        return Meaning(_plain(text), share)
    if any("#" in level for level in levels[:-1]) or any(
        len(level) > 1 and ("+" in level or "#" in level) for level in levels
    ):
        raise InvalidName("+ and # stand for whole levels, # for the last ones", code="invalid-destination")
    if text.startswith(QUEUE):
        raise InvalidName("nobody receives from several queues at once", code="invalid-destination")
    pattern = _expression(levels)
    return Meaning(f"{Kind.TOPIC}:regex:{pattern}", share, pattern)


def _plain(text: str) -> str:
    if text.startswith(QUEUE):
        return f"{Kind.QUEUE}:{text[len(QUEUE) :]}"
    return f"{Kind.TOPIC}:{text}"


def _expression(levels: list[str]) -> str:
    pieces: list[str] = []
    for index, level in enumerate(levels):
        slash = "/" if index else ""
        if level == "#":
            # It also means the level above.
            pieces.append("(?:/.*)?" if index else "(?:[^$].*)")
        elif level == "+":
            pieces.append(f"{slash}[^/]*" if index else "(?:[^$/][^/]*)?")
        else:
            pieces.append(slash + re.escape(level))
    return f"^{''.join(pieces)}$"

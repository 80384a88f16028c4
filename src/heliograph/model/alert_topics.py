"""What alerts are addressed to, and what is asked for (A2).

    TAG:PATTERN     a regular expression, found anywhere in the destination unless `^` and `$` anchor it
    PROFILE:NAME    exactly
    USER:NAME       exactly

One request may name several: `TAG:a,b;USER:c` are `TAG:a`, `TAG:b` and `USER:c`. Blanks around them do not count. A
backslash keeps a comma or semicolon inside a pattern; before anything else it is the pattern's own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_ALERT_DESTINATION_BYTES, MAX_TOPICS_PER_REQUEST
from heliograph.model.patterns import PatternFault, compile_regex


class Prefix(enum.StrEnum):
    """How a topic is meant."""

    TAG = "TAG"
    PROFILE = "PROFILE"
    USER = "USER"


class Topic(NamedTuple):
    """One thing that alerts are addressed to, or one that is asked for: then `text` of a TAG is a pattern."""

    prefix: Prefix
    text: str

    def __str__(self) -> str:
        return f"{self.prefix}:{self.text}"


class TopicFault(ClientFault):
    """Topics that cannot be read. `position` counts characters from 1."""

    default_code = "topic-invalid"

    def __init__(self, sentence: str, *, position: int = 0, code: str | None = None) -> None:
        super().__init__(sentence, code=code)
        self.position = position


_PREFIXES = {prefix.value: prefix for prefix in Prefix}


def parse_destination(text: str) -> Topic:
    """What one alert is addressed to. Raises TopicFault."""
    prefix, colon, name = text.partition(":")
    if not colon or prefix not in _PREFIXES or not name.strip():
        raise TopicFault(
            f"an alert goes to TAG:TEXT, PROFILE:NAME or USER:NAME, not {text[:60]!r}", position=1
        )
    for position, letter in enumerate(text, 1):
        if not letter.isprintable():
            raise TopicFault(
                f"a destination has printable characters only; the one at position {position} is not",
                position=position,
            )
    if len(text.encode()) > MAX_ALERT_DESTINATION_BYTES:
        raise TopicFault(
            f"a destination has at most {MAX_ALERT_DESTINATION_BYTES} bytes, this one {len(text.encode())}"
        )
    return Topic(_PREFIXES[prefix], name.strip())


def parse_topics(text: str) -> tuple[Topic, ...]:
    """What a request asks for, each topic once. Raises TopicFault or PatternFault, saying where."""
    found: dict[Topic, None] = {}
    for position, letter in enumerate(text, 1):
        if not letter.isprintable():
            raise TopicFault(
                f"topics have printable characters only; the one at position {position} is not",
                position=position,
            )
    for prefix, name, at in _pieces(text):
        if not name:
            raise TopicFault(f"{prefix}: names nothing at position {at}", position=at)
        _check(prefix, name, at)
        found[Topic(prefix, name)] = None
        if len(found) > MAX_TOPICS_PER_REQUEST:
            raise TopicFault(f"one request has at most {MAX_TOPICS_PER_REQUEST} topics", position=at)
    return tuple(found)


def _check(prefix: Prefix, name: str, at: int) -> None:
    if prefix is Prefix.TAG:
        try:
            compile_regex(name)
        except PatternFault as fault:
            fault.position += at - 1 if fault.position else 0
            raise
    elif len(name.encode()) > MAX_ALERT_DESTINATION_BYTES:
        raise TopicFault(f"a name has at most {MAX_ALERT_DESTINATION_BYTES} bytes", position=at)


def _pieces(text: str) -> Iterator[tuple[Prefix, str, int]]:
    """Prefix, text, and the position at which that begins."""
    start = 0
    for section, at in _split(text, ";"):
        prefix, colon, rest = section.partition(":")
        word = prefix.strip()
        if not colon or word not in _PREFIXES:
            sentence = (
                f"topics begin with TAG:, PROFILE: or USER:, not with {word[:40]!r} at position {at + 1}"
            )
            raise TopicFault(sentence, position=at + 1)
        start = at + len(prefix) + 1
        for name, within in _split(rest, ","):
            blanks = len(name) - len(name.lstrip())
            yield _PREFIXES[word], _unescaped(name.strip()), start + within + blanks + 1


def _split(text: str, separator: str) -> Iterator[tuple[str, int]]:
    """The parts between separators that no backslash keeps, and where each begins."""
    start = at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == separator:
            yield text[start:at], start
            start = at + 1
        at += 1
    yield text[start:], start


def _unescaped(text: str) -> str:
    """Without the backslashes that keep commas and semicolons. All others are the pattern's."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            parts.append(text[at + 1] if text[at + 1] in ",;" else text[at : at + 2])
            at += 2
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts)


def written(topics: tuple[Topic, ...]) -> str:
    """The topics as a request would name them."""
    return ";".join(f"{topic.prefix}:{_escaped(topic.text)}" for topic in topics)


def _escaped(text: str) -> str:
    return text.replace(",", "\\,").replace(";", "\\;")

"""Rules of composite events (D5, A9): a file in TOML, read and checked, and told in words.

    [[rules]]
    name = "three failures and a success"
    by = "card"                           # a property, a field of a JSON body, or a header: one match for each value
    pattern = "seq(times(3, failed), ok)"
    within = "10m"
    late = "30s"                          # events that come so late still count; later ones are dropped and counted
    [rules.events]
    failed = "JMSType = 'login' AND result = 'failed'"      # a selector
    ok = "JMSType = 'login' AND result = 'ok'"
    [rules.action]
    send = "queue:fraud"                  # or: alert = "fraud", tag = "card.{key}", duration = "1h"
    text = "{rule} for {key}: {ids}"

What cannot be understood is refused with file, line and reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from heliograph.model.alert import DEFAULT_PRIORITY, HIGHEST_PRIORITY, LOWEST_PRIORITY
from heliograph.model.destination import Kind, kind_of, name_of, parse_address
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.selector import Selector
from heliograph.spark.pipelines import patterns, toml_places
from heliograph.spark.pipelines.patterns import Pattern

MAX_RULES: Final = 1000
MAX_EVENTS: Final = 60
"""Kinds of events in a rule: each is a bit."""
_ALERTS: Final = f"{Kind.ALERTS}:"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_KEYS: Final = ("name", "by", "pattern", "within", "late", "events", "action", "where")
_ACTION_KEYS: Final = ("send", "alert", "tag", "duration", "text", "priority")
_OF_ALERTS: Final = ("tag", "duration")
_NOT_IN_HISTORY: Final = ("JMSXUserID", "JMSXDeliveryCount")
_FIELDS: Final = re.compile(r"\{(rule|key|ids|started|completed)\}")
DEFAULT_TEXT: Final = "{rule}: {key}"
DEFAULT_DURATION: Final = "1d"
"""Nobody cancels what a rule raised, and alerts without end are limited."""


class Rule(msgspec.Struct, frozen=True):
    """A rule that can be carried out."""

    name: str
    by: str
    pattern_text: str
    window: int  # microseconds
    late: float  # seconds
    where: str  # a selector that everything must match
    events: dict[str, str]  # kinds of events, by selectors
    destination: str
    text: str
    priority: int  # of a message 0 to 9, of an alert 1 to 10
    tag: str = ""  # of an alert
    duration: float = 0.0  # of an alert, in seconds

    @property
    def raises(self) -> bool:
        """Whether a match is an alert, and not a message."""
        return self.destination.startswith(_ALERTS)

    @property
    def bits(self) -> dict[str, int]:
        return {name: 1 << place for place, name in enumerate(self.events)}

    def pattern(self) -> Pattern:
        return patterns.parse(self.pattern_text, self.bits)

    def explain(self, late: float = 0.0) -> str:
        """The rule in words. `late`: the longest of the rules that it is carried out with, which counts for all."""
        kinds = "\n".join(f"    {name}: a message for which {text}" for name, text in self.events.items())
        only = f"\n  Only messages count for which {self.where}." if self.where else ""
        does = f"sends a message to {self.destination}"
        if self.raises:
            does = f"raises an alert in {self.destination} to TAG:{self.tag}, for {_told(self.duration)}"
        wanted = ""
        if late > self.late:
            wanted = f", the longest of these rules (this one wants {_told(self.late)})"
        each = f"  For each value of {self.by}, look for" if self.by else "  Look for"
        return "\n".join(
            (
                self.name,
                f"{each} {self.pattern().words()}, within {_told(self.window / 1e6)} of the first.",
                f"{kinds}{only}",
                f"  Events may come up to {_told(max(self.late, late))} late{wanted};"
                " what comes later is dropped and counted.",
                f"  Each match {does}; the next match begins behind the last event of this one.",
            )
        )


def explained(rules: Sequence[Rule]) -> list[str]:
    """Rules in words, as they are carried out together."""
    late = longest_late(rules)
    return [rule.explain(late) for rule in rules]


def longest_late(rules: Sequence[Rule]) -> float:
    """One stream has one watermark: what one rule waits for, all do."""
    return max(rule.late for rule in rules)


def read_rules(path: Path) -> list[Rule]:
    """Raises ClientFault `event-rule-invalid`, with file, line and reason."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ClientFault(f"{path} cannot be read: {error.strerror}", code="event-rule-invalid") from None
    return parse_rules(text, str(path))


def parse_rules(text: str, name: str) -> list[Rule]:
    """Raises ClientFault."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ClientFault(f"{name}: {fault}", code="event-rule-invalid") from None
    given = document.get("rules")
    if not isinstance(given, list) or not given or len(given) > MAX_RULES or set(document) != {"rules"}:
        raise ClientFault(
            f"{name}: a file of rules has 1 to {MAX_RULES} tables [[rules]]", code="event-rule-invalid"
        )
    file = _File(name, text)
    places = [_Place(file, ("rules", number)) for number in range(len(given))]
    rules = [_rule(entry, place) for entry, place in zip(given, places, strict=True)]
    for number, rule in enumerate(rules):
        if rule.name in [earlier.name for earlier in rules[:number]]:
            raise places[number].fault("name", f"another rule is called {rule.name!r} already")
    return rules


class _File:
    """Who asks for lines has something to refuse."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self._text = name, text

    @cached_property
    def lines(self) -> dict[toml_places.Path, int]:
        return toml_places.lines_of(self._text)


class _Place:
    """A rule in its file, or a table of it: where its keys stand."""

    def __init__(self, file: _File, path: toml_places.Path) -> None:
        self._file, self._path = file, path

    def inside(self, key: str) -> _Place:
        return _Place(self._file, (*self._path, key))

    def fault(self, key: str, reason: str) -> ClientFault:
        """At the key, or, where it is missing, where it should be."""
        path = (*self._path, key)
        lines = self._file.lines
        while path and path not in lines:
            path = path[:-1]
        return ClientFault(
            f"{self._file.name}, line {lines.get(path, 1)}: {reason}", code="event-rule-invalid"
        )


def _rule(entry: Any, place: _Place) -> Rule:
    if not isinstance(entry, dict):
        raise place.fault("", "a rule is a table")
    for key in entry:
        if key not in _KEYS:
            raise place.fault(key, f"a rule has no {key!r}; it has {', '.join(_KEYS)}")
    name = _text(entry, "name", place)
    events = entry.get("events")
    if not isinstance(events, dict) or not 0 < len(events) <= MAX_EVENTS:
        raise place.fault("events", f"a rule names 1 to {MAX_EVENTS} events in [rules.events]")
    for event, selector in events.items():
        _check_selector(selector, event, place.inside("events"))
    where = _text(entry, "where", place, "")
    if where:
        _check_selector(where, "where", place)
    by = _text(entry, "by", place, "")
    destination, text, priority, tag, duration = _action(entry.get("action"), place, by=by)
    rule = Rule(
        name,
        by,
        _text(entry, "pattern", place),
        int(_seconds(entry, "within", place) * 1_000_000),
        _seconds(entry, "late", place, "1m"),
        where,
        events,
        destination,
        text,
        priority,
        tag,
        duration,
    )
    try:
        used = set(rule.pattern().names())
    except ClientFault as fault:
        raise place.fault("pattern", fault.sentence) from None
    unused = [event for event in events if event not in used]
    if unused:
        raise place.inside("events").fault(unused[0], f"the event {unused[0]!r} is not in the pattern")
    return rule


def _action(action: Any, place: _Place, *, by: str) -> tuple[str, str, int, str, float]:
    """Where to, what it says, how urgent it is; of an alert, its tag and how long it lives."""
    if not isinstance(action, dict) or ("send" in action) == ("alert" in action):
        raise place.fault("action", "an action says send = DESTINATION or alert = NAME")
    place = place.inside("action")
    for key in action:
        if key not in _ACTION_KEYS:
            raise place.fault(key, f"an action has no {key!r}; it has {', '.join(_ACTION_KEYS)}")
        if key in _OF_ALERTS and "alert" not in action:
            raise place.fault(key, f"{key} is of alerts; this action sends a message")
    raises = "alert" in action
    destination = f"{_ALERTS}{action['alert']}" if raises else str(action["send"])
    try:
        address = parse_address(destination)
    except HeliographError as fault:
        raise place.fault("alert" if raises else "send", fault.sentence) from None
    if not raises and kind_of(address) is Kind.ALERTS:
        raise place.fault("send", f'alert = "{name_of(address)}" raises an alert; send sends a message')
    text = _template(action, "text", DEFAULT_TEXT, place)
    priority = action.get("priority", DEFAULT_PRIORITY if raises else 4)
    low, high = (LOWEST_PRIORITY, HIGHEST_PRIORITY) if raises else (0, 9)
    if isinstance(priority, bool) or not isinstance(priority, int) or not low <= priority <= high:
        what = "an alert" if raises else "a message"
        raise place.fault("priority", f"the priority of {what} is {low} to {high}")
    if not raises:
        return destination, text, priority, "", 0.0
    tag = _template(action, "tag", "{rule}.{key}" if by else "{rule}", place)
    if not tag.strip():
        raise place.fault("tag", "an alert has a tag, by which subscribers know it")
    return destination, text, priority, tag, _seconds(action, "duration", place, DEFAULT_DURATION)


def _template(action: dict[str, Any], key: str, default: str, place: _Place) -> str:
    text = action.get(key, default)
    if not isinstance(text, str) or re.search(r"[{}]", _FIELDS.sub("", text)):
        reason = f"a {key} may have {{rule}}, {{key}}, {{ids}}, {{started}} and {{completed}} in it"
        raise place.fault(key, reason)
    return text


def _check_selector(text: Any, key: str, place: _Place) -> None:
    if not isinstance(text, str):
        raise place.fault(key, f"{key} is a selector, a text")
    try:
        names = Selector(text).names
    except ClientFault as fault:
        raise place.fault(key, fault.sentence) from None
    for name in names:
        if name in _NOT_IN_HISTORY:
            raise place.fault(key, f"no rule can ask for {name}, which the history does not say")


def _text(entry: dict[str, Any], key: str, place: _Place, default: str | None = None) -> str:
    value = entry.get(key, default)
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise place.fault(key, f"a rule needs {key}, a text")
    return value


def _seconds(entry: dict[str, Any], key: str, place: _Place, default: str | None = None) -> float:
    value = entry.get(key, default)
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not float(found[1]):
        raise place.fault(key, f'{key} is a time such as "10m": a number and ms, s, m, h or d')
    return float(found[1]) * _UNITS[found[2]]


def _told(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}{'s' if seconds > size else ''}"
    return f"{seconds:g} {'second' if seconds == 1 else 'seconds'}"

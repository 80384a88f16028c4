"""What an administrator decides about a destination (J10, M7, M11)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from heliograph.model.errors import ClientFault
from heliograph.model.limits import (
    DESTINATION_HIGH_WATER_BYTES,
    DESTINATION_HIGH_WATER_MESSAGES,
    ENDLESS_ALERTS,
    MAX_CREDIT,
    MAX_LIVE_ALERTS,
)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy of one destination; times in seconds. Fields are appended, never reordered or reused."""

    # A message that was handed out this often and came back goes to the dead message queue. 0: never.
    redelivery_limit: int = 10
    # It waits this long before it is handed out again, longer each time, up to a maximum.
    redelivery_delay: float = 0.0
    redelivery_multiplier: float = 2.0
    redelivery_delay_limit: float = 300.0
    # Expired messages go to the dead message queue instead of nowhere.
    expired_to_dead: bool = False
    # A message that nobody took for so long goes to the dead message queue. 0: never.
    undelivered_to_dead_after: float = 0.0
    # Producers are told to wait when this much is there.
    high_water_messages: int = DESTINATION_HIGH_WATER_MESSAGES
    high_water_bytes: int = DESTINATION_HIGH_WATER_BYTES
    # A consumer gets at most so many messages ahead. 0: as many as it has credit for.
    prefetch_limit: int = 0
    # Which unit of order a message is in whose producer says nothing: none, its session's, or one for each
    # value of a property.
    unit_from: str = ""
    # When a message of a unit was handed out as often as it may be, its unit stops and waits for an
    # administrator; otherwise the message goes to the dead message queue and the unit goes on.
    unit_stops: bool = False
    # By which headers and properties what waits in a queue is ordered. Empty: by priority.
    sort_keys: str = ""
    # What waits longer than this, or beyond so much, is removed, the oldest first. 0: it stays.
    retention_seconds: float = 0.0
    retention_messages: int = 0
    retention_bytes: int = 0
    # What is removed so goes to the dead message queue instead of nowhere.
    retention_to_dead: bool = False
    # In a restricted part of a cluster, messages with a unit of order are handed out; otherwise they wait until the
    # parts have met. Two parts may then work on one unit at a time.
    unit_continues: bool = False
    # Alerts of a channel that are live without end, until somebody cancels them; more are refused.
    endless_alerts: int = ENDLESS_ALERTS

    @property
    def has_retention(self) -> bool:
        return bool(self.retention_seconds or self.retention_messages or self.retention_bytes)

    def delay_before(self, delivery: int) -> float:
        """How long a message waits before its second (third, …) delivery."""
        if not self.redelivery_delay:
            return 0.0
        # The exponent is bounded so that the float is; the delay is bounded long before.
        delay: float = self.redelivery_delay * self.redelivery_multiplier ** min(delivery - 2, _MAX_STEPS)
        return min(delay, self.redelivery_delay_limit)


_MAX_STEPS: Final = 64
BY_SESSION: Final = "session"
BY_PROPERTY: Final = "property:"
DEFAULT_POLICY = Policy()
Value = bool | int | float | str


class Setting(msgspec.Struct, frozen=True):
    """What a key of a policy takes, and what it is for."""

    kind: type
    lowest: float
    highest: float
    meaning: str
    pattern: str = ""
    matches: str = ""

    @property
    def accepts(self) -> str:
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return self.pattern
        what = "a whole number" if self.kind is int else "a number"
        return f"{what} from {self.lowest:.16g} to {self.highest:.16g}"


# What sort keys have to look like (see `sort_keys`).
_NAME: Final = r"[A-Za-z_$][A-Za-z0-9_.$-]{0,127}(?: (?:asc|desc))?"
SORT_KEYS_PATTERN: Final = rf"(?:{_NAME}(?:, ?{_NAME}){{0,7}})?"
# A century of seconds: nobody waits longer, and microseconds of it fit wherever time is kept.
_LONGEST: Final = 100 * 365 * 86400
_MOST: Final = 2**53  # whole numbers beyond are not exact in JSON

SETTINGS: Final[dict[str, Setting]] = {
    "redelivery_limit": Setting(int, 0, 1_000_000, "deliveries after which a message is dead; 0: never"),
    "redelivery_delay": Setting(float, 0, _LONGEST, "seconds before a message is handed out again"),
    "redelivery_multiplier": Setting(float, 1, 1000, "how much longer it waits each further time"),
    "redelivery_delay_limit": Setting(float, 0, _LONGEST, "seconds that it waits at most"),
    "expired_to_dead": Setting(bool, 0, 1, "whether expired messages go to the dead message queue"),
    "undelivered_to_dead_after": Setting(
        float, 0, _LONGEST, "seconds after which a message that nobody took is dead; 0: never"
    ),
    "high_water_messages": Setting(int, 1, _MOST, "messages at which producers are told to wait"),
    "high_water_bytes": Setting(int, 1, _MOST, "bytes at which producers are told to wait"),
    "prefetch_limit": Setting(int, 0, MAX_CREDIT, "messages that a consumer gets ahead; 0: its credit"),
    "unit_from": Setting(
        str,
        0,
        0,
        "the unit of order of messages whose producer says nothing: by session, by a property, or none",
        '"session", "property:NAME" or ""',
        r"(session|property:[A-Za-z_$][A-Za-z0-9_.$-]{0,127})?",
    ),
    "unit_stops": Setting(
        bool, 0, 1, "whether a unit of order waits for an administrator when a message of it failed too often"
    ),
    "sort_keys": Setting(
        str,
        0,
        0,
        "what a queue is sorted by, for example JMSPriority desc, price; empty: by priority",
        '"NAME [asc|desc], …", at most 8 of them, or ""',
        SORT_KEYS_PATTERN,
    ),
    "retention_seconds": Setting(
        float, 0, _LONGEST, "seconds after which a message that waits is removed; 0: never"
    ),
    "retention_messages": Setting(
        int, 0, _MOST, "messages that wait at most, beyond which the oldest are removed; 0: any number"
    ),
    "retention_bytes": Setting(
        int, 0, _MOST, "bytes that wait at most, beyond which the oldest are removed; 0: any number"
    ),
    "retention_to_dead": Setting(bool, 0, 1, "whether what is removed so goes to the dead message queue"),
    "unit_continues": Setting(
        bool, 0, 1, "whether units of order go on in a restricted part of a cluster, or wait until parts meet"
    ),
    "endless_alerts": Setting(
        int, 0, MAX_LIVE_ALERTS, "alerts without end that a channel takes, until some are cancelled"
    ),
}
assert tuple(SETTINGS) == Policy.__struct_fields__


def changed(policy: Policy, changes: Mapping[str, object]) -> Policy:
    """The policy with some keys changed. Raises ClientFault `policy-invalid`, naming the key."""
    checked = {key: _checked(key, value) for key, value in changes.items()}
    return msgspec.structs.replace(policy, **checked)


def _checked(key: str, value: object) -> Value:
    setting = _setting(key)
    if setting.kind is str:
        if isinstance(value, str) and re.fullmatch(setting.matches, value):
            return value
    elif setting.kind is bool:
        if isinstance(value, bool):
            return value
    elif isinstance(value, int if setting.kind is int else int | float) and not isinstance(value, bool):
        assert isinstance(value, int | float)
        if setting.lowest <= value <= setting.highest:  # which `nan` is not
            return value if setting.kind is int else float(value)
    raise _refuse(f"{key} must be {setting.accepts}, not {str(value)[:40]!r}")


def parse_changes(given: Sequence[str]) -> dict[str, Value]:
    """Changes as a person writes them, `redelivery_limit=5`. Raises ClientFault `policy-invalid`."""
    changes: dict[str, Value] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise _refuse(f"a policy is written KEY=VALUE, not {text[:60]!r}")
        changes[key] = _parsed(key, value)
    return changes


def _parsed(key: str, text: str) -> Value:
    if _setting(key).kind is str:
        return _checked(key, text.strip('"'))
    try:
        value = msgspec.json.decode(text.replace("_", ""))  # 1_000_000 is easier to read
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = text
    return _checked(key, value)


def _setting(key: str) -> Setting:
    setting = SETTINGS.get(key)
    if setting is None:
        near = difflib.get_close_matches(key, SETTINGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTINGS)}"
        raise _refuse(f"a policy has no {key[:60]!r}; {hint}")
    return setting


def _refuse(sentence: str) -> ClientFault:
    return ClientFault(sentence, code="policy-invalid")

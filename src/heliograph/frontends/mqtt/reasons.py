"""Why something is refused, in the numbers of MQTT."""

from __future__ import annotations

from typing import Final

from heliograph.frontends.mqtt.packets import V5
from heliograph.model.errors import (
    ClientFault,
    HeliographError,
    InvalidName,
    NotAllowed,
    NotAuthenticated,
    Unavailable,
    from_code,
)

UNSPECIFIED: Final = 0x80
NO_SUBSCRIPTION: Final = 0x11
PACKET_UNKNOWN: Final = 0x92
_BY_CODE: Final = {
    "frame-malformed": 0x81,
    "protocol-fault": 0x82,
    "frame-unknown": 0x82,
    "greeted-twice": 0x82,
    "not-greeted": 0x82,
    "version-unknown": 0x84,
    "client-id-missing": 0x85,
    "invalid-name": 0x90,
    "header-invalid": 0x83,
    "alerts-only": 0x83,
    "alert-invalid": 0x83,
    "alert-unknown": 0x83,
    "topic-invalid": 0x90,
    "pattern-invalid": 0x90,
    "too-many-alerts": 0x97,
    "not-authenticated": 0x86,
    "authentication-unknown": 0x8C,
    "not-allowed": 0x87,
    "too-many-connections": 0x89,
    "too-many-logins": 0x89,
    "server-stopping": 0x8B,
    "server-moved": 0x8B,
    "session-moved": 0x8E,
    "subscription-in-use": 0x91,
    "alias-invalid": 0x94,
    "frame-too-long": 0x95,
    "message-too-large": 0x95,
    "block-too-large": 0x95,
    "destination-full": 0x97,
    "storage-full": 0x97,
    "message-in-doubt": 0x97,
    "disk-full": 0x97,
    "too-many-destinations": 0x97,
}
# What version 3.1.1 knows, in the answer to CONNECT.
_CONNACK_3: Final = {0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5, 0x8C: 4}
_UNAVAILABLE_3: Final = 3


def reason_of(error: HeliographError) -> int:
    found = _BY_CODE.get(error.code)
    if found is not None:
        return found
    if isinstance(error, InvalidName):
        return 0x90
    if isinstance(error, NotAllowed):
        return 0x87
    if isinstance(error, NotAuthenticated):
        return 0x86
    return 0x88 if isinstance(error, Unavailable) else UNSPECIFIED


def reason_of_code(code: str) -> int:
    return reason_of(from_code(code, ""))


def is_lasting(code: str) -> bool:
    """Whether a subscription that was refused is refused again, however often its client comes: that it is in use may
    be of an old connection that is not known to be lost yet."""
    return isinstance(from_code(code, ""), ClientFault) and code != "subscription-in-use"


def connack_reason(error: HeliographError, version: int) -> int:
    reason = reason_of(error)
    return reason if version == V5 else _CONNACK_3.get(reason, _UNAVAILABLE_3)


def suback_reason(code: str, version: int) -> int:
    """For a filter that was refused."""
    if version != V5:
        return UNSPECIFIED
    reason = reason_of_code(code)
    return 0x8F if reason == 0x90 else reason

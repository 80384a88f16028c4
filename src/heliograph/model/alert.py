"""What an alert is (A1): its header, what may be in it, and what it is called.

    header   destination · priority 1–10 · duration · type · persistence · scope · classification
             cancel policy · acknowledge policy · correlation id         said by the producer
    besides  id · arrival time · user                                    said by the server

Priorities 1 to 10 become 0 to 9 where an alert is seen as a message, and the other way round.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Final, NewType

import msgspec

from heliograph.model.alert_topics import parse_destination
from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId
from heliograph.model.limits import MAX_ALERT_BODY_BYTES, MAX_ALERT_SECONDS

AlertId = NewType("AlertId", bytes)
ALERT_ID_BYTES: Final = 12

LOWEST_PRIORITY: Final = 1
HIGHEST_PRIORITY: Final = 10
DEFAULT_PRIORITY: Final = 5


class AlertType(enum.IntEnum):
    """An alert, or somebody's word that they have seen one."""

    ALERT = 0
    ACKNOWLEDGEMENT = 1


class Classification(enum.IntEnum):
    """Who may see it: those whose clearance is as high."""

    UNCLASSIFIED = 0
    CONFIDENTIAL = 1
    SECRET = 2
    TOP_SECRET = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


class CancelPolicy(enum.IntEnum):
    """Who may cancel it: the user who published it, or anybody who can see it."""

    ORIGINATOR = 0
    ANY = 1


class AcknowledgePolicy(enum.IntEnum):
    """What is wanted of who receives it: nothing, an acknowledgement by the application, or a receipt, which the
    server gives when the application has it."""

    NONE = 0
    CLIENT = 1
    RECEIPT = 2


class AlertHeader(msgspec.Struct, array_like=True, frozen=True):
    """What a producer says of an alert. Fields are appended, never reordered."""

    destination: str
    priority: int = DEFAULT_PRIORITY
    duration: float = 0.0  # seconds; 0: until it is cancelled
    type: int = AlertType.ALERT
    persistent: bool = True
    scope: int = 0  # how far it reaches; 0: this channel, and there is no other yet
    classification: int = Classification.UNCLASSIFIED
    cancel_policy: int = CancelPolicy.ORIGINATOR
    acknowledge_policy: int = AcknowledgePolicy.NONE
    correlation: bytes = b""  # of an acknowledgement: the id of its alert


class AlertView(msgspec.Struct, array_like=True):
    """An alert as a client gets it."""

    id: bytes
    header: AlertHeader
    user: str
    arrived: int  # microseconds since 1970
    body: bytes
    again: bool = False  # it may have been seen before


class AlertFault(ClientFault):
    """An alert that cannot be."""

    default_code = "alert-invalid"


def identity_of(token: bytes, lane: LaneId, sequence: int) -> AlertId:
    """Only who has the session's token can tell what the next one would be."""
    parts = b"".join((lane, sequence.to_bytes(8, "big")))
    return AlertId(hashlib.blake2b(parts, digest_size=ALERT_ID_BYTES, key=token).digest())


def text_of_alert(identity: bytes) -> str:
    return identity.hex()


def parse_alert_id(text: str) -> AlertId:
    """Raises AlertFault."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != ALERT_ID_BYTES:
        raise AlertFault(f"an alert's id has {2 * ALERT_ID_BYTES} hexadecimal digits, {text[:40]!r} has not")
    return AlertId(raw)


def check_header(header: AlertHeader, body: bytes) -> None:
    """Raises AlertFault, or TopicFault for its destination."""
    parse_destination(header.destination)
    if not LOWEST_PRIORITY <= header.priority <= HIGHEST_PRIORITY:
        raise AlertFault(
            f"priorities of alerts are {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {header.priority}"
        )
    if not 0 <= header.duration <= MAX_ALERT_SECONDS:  # which `nan` is not
        raise AlertFault(
            f"a duration is 0, until it is cancelled, to {MAX_ALERT_SECONDS} seconds, not {header.duration:g}"
        )
    if header.scope:
        raise AlertFault("there is no scope but 0, the channel itself")
    for kind, value in (
        (AlertType, header.type),
        (Classification, header.classification),
        (CancelPolicy, header.cancel_policy),
        (AcknowledgePolicy, header.acknowledge_policy),
    ):
        if value not in tuple(kind):
            raise AlertFault(f"there is no {kind.__name__} {value}")
    if len(body) > MAX_ALERT_BODY_BYTES:
        raise AlertFault(
            f"the body of an alert has at most {MAX_ALERT_BODY_BYTES} bytes, this has {len(body)}"
        )


def message_priority(priority: int) -> int:
    """The priority of a message that stands for an alert."""
    return priority - 1


def alert_priority(priority: int) -> int:
    """The priority of an alert that was sent as a message."""
    return priority + 1


def parse_classification(text: str) -> Classification:
    """By its name, `top-secret`. Raises ValueError, saying which there are."""
    for each in Classification:
        if text.lower().replace("_", "-").replace(" ", "-") == each.label:
            return each
    known = ", ".join(each.label for each in Classification)
    raise ValueError(f"there is no classification {text[:40]!r}; there are {known}")

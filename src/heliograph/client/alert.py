"""An alert as an application receives it, and what it may say when it publishes one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypedDict

import msgspec

from heliograph.model.alert import (
    AcknowledgePolicy,
    AlertFault,
    AlertHeader,
    AlertType,
    AlertView,
    CancelPolicy,
    Classification,
    parse_classification,
    text_of_alert,
)

if TYPE_CHECKING:
    from heliograph.client.alerts import AlertChannel
    from heliograph.client.blocking_alerts import BlockingAlertChannel

ClassificationName = Literal["unclassified", "confidential", "secret", "top-secret"]


class AlertOptions(TypedDict, total=False):
    """What can be said of an alert besides where it goes."""

    priority: int
    duration: float
    persistent: bool
    classification: ClassificationName
    cancel: Literal["originator", "any"]
    acknowledge: Literal["none", "client", "receipt"]


class Receipt(msgspec.Struct, frozen=True):
    """The application of a subscriber has an alert that was published here."""

    id: str
    destination: str
    user: str
    name: str
    time: datetime


class Alert:
    """An alert that was received."""

    __slots__ = ("_channel", "_view")

    def __init__(self, channel: AlertChannel, view: AlertView) -> None:
        self._channel = channel
        self._view = view

    def __repr__(self) -> str:
        return f"<Alert {self.id} {self.priority} {self.destination}>"

    @property
    def id(self) -> str:
        return text_of_alert(self._view.id)

    @property
    def channel(self) -> str:
        """`alerts:NAME`."""
        return self._channel.address

    @property
    def destination(self) -> str:
        """`TAG:…`, `PROFILE:…` or `USER:…`."""
        return self._view.header.destination

    @property
    def body(self) -> bytes:
        return self._view.body

    @property
    def text(self) -> str:
        return self._view.body.decode(errors="replace")

    @property
    def priority(self) -> int:
        """1 to 10, which is the most urgent."""
        return self._view.header.priority

    @property
    def duration(self) -> float:
        """Seconds that it is live; 0: until it is cancelled."""
        return self._view.header.duration

    @property
    def is_acknowledgement(self) -> bool:
        return self._view.header.type == AlertType.ACKNOWLEDGEMENT

    @property
    def correlation_id(self) -> str:
        """Of an acknowledgement: the id of the alert that was acknowledged."""
        return text_of_alert(self._view.header.correlation) if self._view.header.correlation else ""

    @property
    def persistent(self) -> bool:
        return self._view.header.persistent

    @property
    def classification(self) -> str:
        return Classification(self._view.header.classification).label

    @property
    def acknowledge_policy(self) -> str:
        """What its producer wants: "none", "client", "receipt"."""
        return AcknowledgePolicy(self._view.header.acknowledge_policy).name.lower()

    @property
    def user(self) -> str:
        """Who published it."""
        return self._view.user

    @property
    def time(self) -> datetime:
        """When it arrived at the server."""
        return datetime.fromtimestamp(self._view.arrived / 1e6, UTC)

    @property
    def redelivered(self) -> bool:
        """Whether a former life of this subscriber may have received it."""
        return self._view.again

    async def acknowledge(self, body: bytes | str = b"ACK") -> str:
        """Tell whoever subscribed to acknowledgements. The id of that alert; empty if nobody asked for one."""
        return await self._channel.acknowledge(self.id, body)


class BlockingAlert(Alert):
    """As `Alert`, without await."""

    __slots__ = ("_blocking",)

    _blocking: BlockingAlertChannel

    def acknowledge(self, body: bytes | str = b"ACK") -> str:  # type: ignore[override]
        """As `Alert.acknowledge`."""
        return self._blocking.acknowledge(self.id, body)


def header_of(destination: str, options: AlertOptions) -> AlertHeader:
    """Raises AlertFault."""
    default = AlertHeader(destination)
    try:
        return AlertHeader(
            destination,
            options.get("priority", default.priority),
            float(options.get("duration", default.duration)),
            persistent=options.get("persistent", default.persistent),
            classification=parse_classification(options.get("classification", "unclassified")),
            cancel_policy=CancelPolicy[options.get("cancel", "originator").upper()],
            acknowledge_policy=AcknowledgePolicy[options.get("acknowledge", "none").upper()],
        )
    except KeyError as fault:
        raise AlertFault(f"there is no policy {str(fault).lower()}") from None
    except ValueError as fault:
        raise AlertFault(str(fault)) from None


def bytes_of(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body

"""Raises the alerts of a data pipeline, a group at a time and each group once (D5, A9).

A batch of Spark's is done again after a crash, and its alerts are raised again: under the same name and number. One
frame of the journal has all alerts of a group and notes its number; raised again, they are not. The alerts of a
pipeline have a lane of its own, in which the server numbers them: no session could say twice which is which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.admin.pipelines import name_in, number_in
from heliograph.admin.subjects import argument
from heliograph.bus.commands import AlertPublished, Asked
from heliograph.destinations.pipelines import Kind, Mark, encode_mark, session_named
from heliograph.model.alert import AlertFault, AlertHeader, AlertType, Classification, check_header
from heliograph.model.destination import Address
from heliograph.model.errors import NO_ROOM, StorageFull
from heliograph.model.ids import lane_of
from heliograph.model.limits import MAX_RAISED_ALERTS, PIPELINE_MARK_SECONDS

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.pipelines import Pipelines

_MOST: Final = 1 << 62
_LANE: Final = 1
_RECORD_BYTES: Final = 200
"""More than a record has beside header, user and body of its alert."""
_encode_header = msgspec.msgpack.Encoder().encode
Wanted = tuple[AlertHeader, bytes]


class Raising:
    """Of one message manager."""

    def __init__(self, manager: MessageManager, pipelines: Pipelines) -> None:
        self._manager = manager
        self._pipelines = pipelines

    def publish(self, question: Asked) -> None:
        """Publish a group of alerts in a channel, unless it was published before. Raises HeliographError."""
        arguments, manager, pipelines = question.arguments, self._manager, self._pipelines
        address = Address(argument(arguments, "destination", str))
        name, number = name_in(arguments), number_in(arguments, "number", 0, _MOST)
        wanted = _alerts(arguments)
        noted = f"{name} {address}"
        if number <= pipelines.marks.number(Kind.ALERTS, noted):
            manager.answer_when_stored(question.request, {"took_effect": False})
            return
        pipelines.marks.check_room(Kind.ALERTS, noted)
        channel = manager.alerting.channel(address, create=bool(arguments.get("create")))
        channel.channel.publishing.check_room(wanted)
        mark = Mark(Kind.ALERTS, noted, number, manager.now() + PIPELINE_MARK_SECONDS)
        user = str(arguments.get("by", ""))
        self._reserve(mark, user, wanted)
        pipelines.write(mark, wait=True)
        lane = lane_of(session_named(name), _LANE)
        first = channel.channel.facts.last_sequence(lane) + 1
        for sequence, (header, body) in enumerate(wanted, first):
            manager.alerting.on_command(
                AlertPublished(
                    0, address, False, lane, sequence, header, body, user, Classification.UNCLASSIFIED
                )
            )
        manager.answer_when_stored(question.request, {"took_effect": True})

    def _reserve(self, mark: Mark, user: str, wanted: list[Wanted]) -> None:
        """Room for all of it in one frame. Raises StorageFull."""
        size = len(encode_mark(mark)) + _RECORD_BYTES
        for header, body in wanted:
            size += len(_encode_header(header)) + len(user.encode()) + len(body) + _RECORD_BYTES
        if not self._manager.journal.reserve(size):
            raise StorageFull(f"{NO_ROOM}: no alert was raised")


def _alerts(arguments: dict[str, Any]) -> list[Wanted]:
    """Raises AlertFault."""
    given = argument(arguments, "alerts", list)
    if not 0 < len(given) <= MAX_RAISED_ALERTS:
        raise AlertFault(f"the argument alerts is a list of 1 to {MAX_RAISED_ALERTS} alerts")
    return [_alert(each) for each in given]


def _alert(given: Any) -> Wanted:
    """Raises AlertFault."""
    try:
        header, body = msgspec.convert(given, tuple[AlertHeader, bytes])
    except msgspec.ValidationError as fault:
        raise AlertFault(f"an alert is a header and a body: {fault}") from None
    check_header(header, body)
    if header.type != AlertType.ALERT or header.correlation:
        raise AlertFault("an alert is acknowledged by its id")
    if header.classification != Classification.UNCLASSIFIED:
        raise AlertFault("what pipelines raise is unclassified")
    return msgspec.structs.replace(header, persistent=True), body

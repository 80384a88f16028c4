"""What an administrator sees of the units of order of a destination: which wait, for what, and what to do (U1).

Names are read from the messages themselves, as far as those are in memory; a unit whose messages are all on
disk is told by its number.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.destinations.message_list import MessageList
from heliograph.destinations.unit_of_order import Unit, segments
from heliograph.model.block import Span, head_at
from heliograph.model.errors import ClientFault
from heliograph.model.ids import text_of
from heliograph.model.message import decode_head


class UnitState(msgspec.Struct, kw_only=True):
    """One unit. `reason` is a word for programs, `sentence` one for people; `until` is a time or 0."""

    unit: str
    name: str
    waiting: int
    handed_out: int
    reason: str
    sentence: str
    session: str = ""
    until: float = 0.0
    subscription: int = 0


def waiting_units(messages: MessageList) -> Iterator[UnitState]:
    """Units that have something waiting, those first that need somebody."""
    known = [
        (key, unit) for key, unit in messages.units.items() if _waiting(unit) or unit.asides or unit.burying
    ]
    for key, unit in sorted(known, key=lambda item: not item[1].stopped):
        reason, sentence = _reason(messages, unit)
        yield UnitState(
            unit=f"{key:016x}",
            name=_name(messages, key, unit),
            waiting=_waiting(unit) + len(unit.asides or ()),
            handed_out=unit.outstanding,
            reason=reason,
            sentence=sentence,
            session=text_of(unit.owner.session) if unit.owner is not None else "",
            until=messages.schedule.due_of(unit.aside) / 1_000_000 if unit.aside else 0.0,
            subscription=messages.number,
        )


def _waiting(unit: Unit) -> int:
    hot = sum(span.stop - span.start for span in unit.run or ())
    return hot + sum(page.messages for _, page in unit.cold or ()) + unit.ready


def _reason(messages: MessageList, unit: Unit) -> tuple[str, str]:
    if unit.stopped:
        return "stopped", (
            "a message of it failed as often as the policy allows: mend the consumer and resume the unit,"
            " or give the message up"
        )
    if unit.burying:
        return "burying", "a message of it is on its way to the dead message queue"
    if unit.owner is not None:
        return "handed-out", "a consumer has not completed what it has of it: the rest waits for that"
    if unit.asides:
        return "delayed", "its first message may not go yet: it is delayed, or backs off after a failure"
    if not messages.consumers:
        return "no-consumer", "nobody consumes here: start a consumer"
    if messages.selective:
        return "no-taker", "no consumer with credit selects its first message: look at their selectors"
    return "no-credit", "no consumer has room for its first message"


def _name(messages: MessageList, key: int, unit: Unit) -> str:
    candidates: list[Span] = list(unit.run or ())
    if unit.owner is not None:
        candidates += unit.owner.outstanding.spans()
    for span in candidates:
        keys = messages.keys_of(span)
        for start, _, found in segments(span, keys) if keys is not None else ():
            if found == key and (name := _name_in(span, start)):
                return name
    return ""


def _name_in(span: Span, index: int) -> str:
    try:
        raw = head_at(span.block, index)
        return (decode_head(raw).unit or "") if raw else ""
    except ClientFault:
        return ""

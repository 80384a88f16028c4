"""What the destination stories share: blocks, spans, and what came out of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from heliograph.bus.commands import Command, Dispatched
from heliograph.destinations.effects import AnyEffect, Multicast
from heliograph.model.block import Block, Span, pack, pack_lone, parse
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_of

ISSUER = IdIssuer(site=1, node=2, started_ms=3)
SESSION = ISSUER.session()
LANE = lane_of(SESSION, 1)
OTHER_LANE = lane_of(ISSUER.session(), 1)

Some = TypeVar("Some", bound=AnyEffect)
SomeCommand = TypeVar("SomeCommand", bound=Command)


def lone(sequence: int, *, lane: LaneId = LANE, persistent: bool = True, priority: int = 4) -> Block:
    """One message that came alone."""
    return parse(
        pack_lone(
            b"body %d" % sequence,
            lane=lane,
            sequence=sequence,
            timestamp=1000 + sequence,
            persistent=persistent,
            priority=priority,
        )
    )


def several(
    first: int,
    count: int,
    *,
    lane: LaneId = LANE,
    persistent: bool = True,
    priorities: Sequence[int] | None = None,
) -> Block:
    """Messages that came in one block."""
    bodies = [b"body %d" % (first + index) for index in range(count)]
    return parse(pack(bodies, lane=lane, first=first, persistent=persistent, priorities=priorities))


def span_of(block: Block, *, number: int = 0, position: int = 0, deliveries: int = 0) -> Span:
    """All of a block as an engine would hold it."""
    block.number, block.position = number, position
    return Span(block, 0, block.count, deliveries)


def sequences(spans: Sequence[Span]) -> list[int]:
    return [span.block.first + index for span in spans for index in range(span.start, span.stop)]


def told(effects: Sequence[AnyEffect], kind: type[SomeCommand]) -> list[SomeCommand]:
    """The commands of one kind that were multicast."""
    return [
        effect.command
        for effect in effects
        if isinstance(effect, Multicast) and isinstance(effect.command, kind)
    ]


def asked(effects: Sequence[AnyEffect], kind: type[Some]) -> list[Some]:
    """The effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def handed_to(effects: Sequence[AnyEffect], consumer: ConsumerId) -> list[int]:
    """Sequences of what a consumer was given, in order."""
    return sequences([each.span for each in told(effects, Dispatched) if each.consumer == consumer])


def a_session() -> SessionId:
    return ISSUER.session()


def a_consumer() -> ConsumerId:
    return ISSUER.consumer()

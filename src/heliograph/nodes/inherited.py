"""Consumers that another manager had, or this one in an earlier life: they go on with what they were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.bus.commands import ConsumerAttached, Standing
from heliograph.destinations.recovery import Claim, Inheritance
from heliograph.model.block import Block

if TYPE_CHECKING:
    from heliograph.nodes.message_manager import MessageManager


def restore_doubtful(manager: MessageManager, inheritance: Inheritance) -> None:
    """Consumers that may be in another part are away, as they were before the restart."""
    blocks: dict[int, Block] = {}
    for doubt in manager.catalogue.doubts:
        claims = inheritance.claims.get(doubt.consumer, [])
        if claims and doubt.attached is not None and doubt.standing is not None:
            restore_consumer(manager, doubt.attached, doubt.standing, claims, blocks)
    manager.end_stale_doubts(manager.catalogue.doubts)


def restore_consumer(
    manager: MessageManager,
    attached: ConsumerAttached,
    standing: Standing,
    claims: list[Claim],
    blocks: dict[int, Block],
) -> bool:
    """`claims`: what it has; `blocks`: those that were read so far, by position. False: what it took from is gone."""
    destination = manager.catalogue.by_address.get(attached.address)
    if destination is None:
        return False
    restored = destination.restore_consumer(attached, standing.list)
    messages = destination.list_of(attached.consumer)
    if restored is None or messages is None:
        return False
    for claim in sorted(claims):
        messages.restore_handed_out(restored, claim.tag, manager.span_of(claim, blocks))
    messages.restore_standing(
        restored,
        standing.credit,
        standing.next_tag,
        standing.given,
        standing.former,
        retired=standing.is_retired,
        away=standing.lease_seconds > 0,
    )
    manager.restore_attendant(attached, standing.lease_seconds)
    return True

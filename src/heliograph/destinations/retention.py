"""What a destination keeps at most (M11): messages that waited too long, or are too many, are removed.

Each list keeps for itself: a queue its one, a topic that of each subscription. Only what waits for a consumer
counts and goes; what is handed out, delayed or backing off is not touched. Messages are removed in the order
in which they arrived, whatever their priority. Bytes are the average size of what the destination holds,
times the number that waits.

This is looked at every second and goes on, a bounded piece a turn, until the policy holds.
"""

from __future__ import annotations

from heliograph.destinations.effects import AnyEffect, Continue, Load
from heliograph.destinations.message_list import NOBODY, MessageList
from heliograph.destinations.removals import Removal
from heliograph.destinations.waiting import Level, number_of
from heliograph.model.block import Span
from heliograph.model.limits import DISPATCH_SPANS_PER_TURN, MAX_CREDIT

_SECOND = 1_000_000
# A level with the messages at its head, which are taken out of it for a moment.
Head = tuple[int, Level, Span]


def enforce(messages: MessageList, held: int, held_bytes: int, effects: list[AnyEffect], now: int) -> None:
    """Remove what the policy of a list does not keep, for one turn.

    `held` messages of about `held_bytes` are in the destination.
    """
    policy = messages.policy
    oldest = now - int(policy.retention_seconds * _SECOND) if policy.retention_seconds else 0
    most = _most(policy.retention_messages, policy.retention_bytes, held, held_bytes)
    removed: list[Span] = []
    for _ in range(DISPATCH_SPANS_PER_TURN):
        waiting = sum(level.messages for _, level in messages.levels())
        excess = waiting - most if most is not None else 0
        if not waiting or (excess <= 0 and not oldest):
            break
        span = _take_oldest(messages, max(excess, 0), oldest, effects)
        if span is None:
            break
        removed.append(span)
    else:
        effects.append(Continue())
    if removed:
        messages.discard(removed, Removal.RETENTION, effects, is_dead=policy.retention_to_dead)


def _most(messages: int, size: int, held: int, held_bytes: int) -> int | None:
    """How many messages may wait, None if any number may."""
    limits = [messages] if messages else []
    if size and held_bytes:
        limits.append(size * held // held_bytes)
    return min(limits, default=None)


def _take_oldest(messages: MessageList, excess: int, oldest: int, effects: list[AnyEffect]) -> Span | None:
    """Take out what arrived first, if there is an excess, or else what is too old at the head of any priority."""
    heads = _take_heads(messages, effects)
    if heads is None:
        return None
    found: Span | None = None
    for _, level, span in sorted(heads, key=lambda head: number_of(head[2])):
        if found is None and (excess or 0 < span.block.timestamp < oldest):
            count = min(span.stop - span.start, excess) if excess else span.stop - span.start
            found = span.part(span.start, span.start + count)
            if found.stop < span.stop:
                level.put_back([span.part(found.stop, span.stop)])
        else:
            level.put_back([span])
    return found


def _take_heads(messages: MessageList, effects: list[AnyEffect]) -> list[Head] | None:
    """The head of each priority; None while one of them is being read from the disk, or was not found yet."""
    heads: list[Head] = []
    is_complete = True
    for priority, level in messages.levels():
        if not level.messages:
            continue
        span = level.take(MAX_CREDIT, NOBODY, effects)
        if span is not None:
            heads.append((priority, level, span))
            continue
        is_complete = False
        page = level.page_to_load()
        if page is not None:
            effects.append(Load(messages.number, priority, page))
    if is_complete:
        return heads
    for _, level, span in heads:
        level.put_back([span])
    return None

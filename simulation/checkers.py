"""What must hold of a history, each rule by itself. A rule gives back sentences that say what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from simulation.history import HandOut, History, Sent, Transaction


def violations(history: History) -> list[str]:
    """Each sentence behind the name of the rule that it breaks."""
    rules = (
        lost,
        comes_again,
        twice_unmarked,
        never_sent,
        out_of_order,
        unit_torn,
        seen_before_commit,
        half_done,
    )
    return [found for rule in rules for found in named(rule.__name__.replace("_", " "), rule(history))]


def named(checker: str, sentences: Iterable[str]) -> list[str]:
    return [f"{checker}: {sentence}" for sentence in sentences]


def checker_of(violation: str) -> str:
    """Who found it."""
    return violation.partition(": ")[0]


def lost(history: History) -> Iterator[str]:
    """What was confirmed comes to somebody who is through with it, at every place where it must."""
    for place, key in history.waiting():
        seen = len(history.by_place.get((place, key), ()))
        yield f"{key} was confirmed and is {'not done' if seen else 'lost'} at {place}, handed out {seen} times"


def comes_again(history: History) -> Iterator[str]:
    """What a client knows to be done is not handed out again."""
    for (place, key), hand_outs in history.by_place.items():
        done = min((each.done_at for each in hand_outs if each.done_at), default=0.0)
        for each in hand_outs:
            if done and each.at > done and not each.is_stale:
                yield f"{key} was done at {place} ({done:.6f}) and came again ({each.at:.6f}, {each.consumer})"


def twice_unmarked(history: History) -> Iterator[str]:
    """Whoever gets what another may have had is told so."""
    for (place, key), hand_outs in history.by_place.items():
        unmarked = [each for each in hand_outs if not each.is_marked]
        if len(unmarked) > 1:
            who = ", ".join(f"{each.consumer} at {each.at:.6f}" for each in unmarked)
            yield f"{key} came {len(unmarked)} times unmarked at {place}: {who}"


def never_sent(history: History) -> Iterator[str]:
    """Nothing comes that was not sent there, or was refused, or that a transaction took back."""
    for place, key in history.by_place:
        sent = history.sent.get(key)
        if sent is None or not history.may_come_to(sent, place):
            yield f"{key} came at {place} and was never sent there"
        elif sent.was_refused:
            yield f"{key} came at {place} and was refused"


def out_of_order(history: History) -> Iterator[str]:
    """Where there is one consumer, what a producer sent comes in the order in which it was sent.

    What is marked was given to the consumer's former life, and comes when that is known to be over. Who asked and
    got nothing is a consumer too: what it was given and never saw comes to another when it says so, without a mark
    and behind what followed (partitions 310).
    """
    highest: dict[tuple[str, str], int] = {}
    for (place, key), hand_outs in history.by_place.items():  # in the order of first hand-outs
        sent = history.sent.get(key)
        if sent is None or len(history.consumers[place]) > 1 or hand_outs[0].is_marked:
            continue
        if (
            sent.transaction or sent.unit or sent.may_be_lost
        ):  # those have rules of their own, or wait for no disk
            continue
        before = highest.get((place, sent.producer), 0)
        if sent.number < before:
            yield f"{key} came at {place} behind {sent.producer}:{before}"
        highest[place, sent.producer] = max(before, sent.number)


def unit_torn(history: History) -> Iterator[str]:
    """A message of a unit is handed out when those before it are settled, or with the same consumer."""
    units: dict[tuple[str, str], list[Sent]] = {}
    for sent in history.sent.values():
        if sent.unit:
            units.setdefault((sent.producer, sent.unit), []).append(sent)
    last: dict[str, HandOut] = {}
    for each in history.hand_outs:
        this = history.sent.get(each.key)
        if this is None or not this.unit:
            continue
        last[each.key] = each
        if each.is_stale:
            continue
        for earlier in _before(units[this.producer, this.unit], this):
            found = last.get(earlier.key)
            if found is None:
                yield f"{each.key} of {this.unit} came before {earlier.key}"
            elif not 0 < found.settled_at <= each.at and found.consumer != each.consumer:
                yield f"{each.key} of {this.unit} is with {each.consumer} while {found.consumer} has {earlier.key}"


def _before(unit: list[Sent], this: Sent) -> Iterator[Sent]:
    """The nearest few before it that were taken: those before them were judged with them."""
    at = next(index for index, sent in enumerate(unit) if sent is this)
    taken = (sent for sent in reversed(unit[:at]) if not sent.was_refused)
    for _, sent in zip(range(3), taken, strict=False):
        yield sent


def seen_before_commit(history: History) -> Iterator[str]:
    """What is sent in a transaction comes to nobody before its client has asked for the commit."""
    for each in history.hand_outs:
        sent = history.sent.get(each.key)
        if sent is None or not sent.transaction:
            continue
        asked_at = history.transactions[sent.transaction].commit_asked_at
        if each.at < asked_at:
            when = "never" if math.isinf(asked_at) else f"not before {asked_at:.6f}"
            yield f"{each.key} came to {each.consumer} at {each.at:.6f}, and its commit was {when} asked for"


def half_done(history: History) -> Iterator[str]:
    """A transaction happens as a whole or not at all, and as the client was told."""
    for transaction in history.transactions.values():
        yield from _judge(history, transaction)


def _judge(history: History, transaction: Transaction) -> Iterator[str]:
    name, outcome = transaction.name, transaction.outcome
    arrived = history.arrived(transaction)
    if outcome == "rolled back" and arrived:
        yield f"{name} was rolled back, and {arrived[0]} came"
    if arrived and len(arrived) < len(transaction.sent):
        yield f"{name} ({outcome}) happened in part: {len(arrived)} of {len(transaction.sent)} came"
    for hand_out in transaction.taken:
        same = history.by_place[hand_out.place, hand_out.key]
        later = [each for each in same if each.at > hand_out.at and not each.is_stale]
        if arrived and outcome == "unknown" and later:
            yield f"{name} (unknown) sent {arrived[0]}, and took {hand_out.key}, which came again"
        if outcome == "rolled back" and hand_out.settled_at:
            yield f"{name} was rolled back, and {hand_out.key} is done"

"""What the clients of a run did and saw: sent, confirmed, handed out, acknowledged, committed. `checkers`
judge it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from simulation.world import World


class Sent(msgspec.Struct):
    """A message that a client sent. `key` is in its body: PRODUCER:NUMBER, numbers climb."""

    key: str
    destination: str
    unit: str
    transaction: str
    sent_at: float
    confirmed_at: float = 0.0
    was_refused: bool = False
    may_be_lost: bool = False  # it is not persistent
    is_large: bool = False  # whoever gets it may give up in the middle of its content

    @property
    def producer(self) -> str:
        return self.key.rpartition(":")[0]

    @property
    def number(self) -> int:
        return int(self.key.rpartition(":")[2])


class HandOut(msgspec.Struct, eq=False):
    """A message in the hands of an application. `place` is a queue or a subscription."""

    place: str
    key: str
    consumer: str  # with its life: who starts again is somebody else
    at: float
    is_marked: bool  # as redelivered
    is_stale: bool  # its connection was broken by then, and the server may have known before the client
    settled_at: float = 0.0  # when the application said that it was done with it
    done_at: float = 0.0  # when the server said that it knew
    was_returned: bool = False  # the application gave it back
    may_return: bool = False  # or asked what may give it back: the end of its transaction
    tag: int = 0  # under which it came


class Transaction(msgspec.Struct):
    """What went in, what came out, and what the application was told: committed, rolled back, or nothing it
    could trust."""

    name: str
    taken: list[HandOut]
    sent: list[str]
    outcome: str = "unknown"
    decided_at: float = 0.0
    commit_asked_at: float = math.inf  # when the application asked for it: never, until it does


class History:
    """Everything, in the order in which it happened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.on_confirmed: Callable[[str], None] | None = None
        self.on_handed: Callable[[HandOut], None] | None = None
        self.on_refused: Callable[[str, float, str], None] | None = None
        self.sent: dict[str, Sent] = {}
        self.hand_outs: list[HandOut] = []
        self.by_place: dict[tuple[str, str], list[HandOut]] = {}
        self.transactions: dict[str, Transaction] = {}
        self.subscriptions: dict[
            str, list[str]
        ] = {}  # of each topic, the places where its messages must arrive
        self.audiences: dict[str, list[str]] = {}  # and those where they may
        self.since: dict[str, float] = {}  # of a place that there was not from the beginning
        self.consumers: dict[str, dict[str, None]] = {}  # of each place, who ever asked there

    def send(self, key: str, destination: str, *, unit: str = "", transaction: str = "") -> Sent:
        assert key not in self.sent
        sent = self.sent[key] = Sent(key, destination, unit, transaction, self._world.now)
        return sent

    def confirmed(self, key: str) -> None:
        self.sent[key].confirmed_at = self._world.now
        if self.on_confirmed is not None:
            self.on_confirmed(key)
        self._world.note("confirmed", key)

    def refused(self, key: str) -> None:
        self.sent[key].was_refused = True
        self._world.note("refused", key)

    def asks(self, place: str, consumer: str) -> None:
        """An application is about to consume. From now on messages may be given to it that it never sees."""
        self.consumers.setdefault(place, {})[consumer.partition("#")[0]] = None

    def handed(
        self, place: str, key: str, consumer: str, *, is_marked: bool, is_stale: bool = False
    ) -> HandOut:
        self.asks(place, consumer)
        hand_out = HandOut(place, key, consumer, self._world.now, is_marked, is_stale)
        self.hand_outs.append(hand_out)
        self.by_place.setdefault((place, key), []).append(hand_out)
        if self.on_handed is not None:
            self.on_handed(hand_out)
        self._world.note("handed", place, key, consumer, is_marked)
        return hand_out

    def settled(self, hand_out: HandOut) -> None:
        hand_out.settled_at = self._world.now

    def returned(self, hand_out: HandOut) -> None:
        hand_out.was_returned = hand_out.may_return = True

    def done(self, hand_out: HandOut) -> None:
        hand_out.done_at = self._world.now
        self._world.note("done", hand_out.place, hand_out.key)

    def commit_refused(self, transaction: Transaction, began_at: float, sentence: str) -> None:
        """Over a connection that is in order, and was since the transaction began."""
        if self.on_refused is not None:
            self.on_refused(transaction.name, began_at, sentence)

    def asks_to_commit(self, transaction: Transaction) -> None:
        """From now on what was sent in it may come to somebody, and not before."""
        transaction.commit_asked_at = self._world.now
        self._may_return(transaction)  # if it is refused

    def asks_to_roll_back(self, transaction: Transaction) -> None:
        self._may_return(transaction)

    def _may_return(self, transaction: Transaction) -> None:
        for hand_out in transaction.taken:
            hand_out.may_return = True

    def decided(self, transaction: Transaction, outcome: str) -> None:
        transaction.outcome, transaction.decided_at = outcome, self._world.now
        self._world.note("transaction", transaction.name, outcome)
        if outcome == "committed":
            for hand_out in transaction.taken:
                self.settled(hand_out)
                self.done(hand_out)
            for key in transaction.sent:
                self.confirmed(key)

    def places_of(self, sent: Sent) -> list[str]:
        places = self.subscriptions.get(sent.destination, [sent.destination])
        return [place for place in places if sent.sent_at >= self.since.get(place, 0.0)]

    def may_come_to(self, sent: Sent, place: str) -> bool:
        return place in self.places_of(sent) or place in self.audiences.get(sent.destination, ())

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Confirmed messages that nobody is through with yet, with their places."""
        happened = self.taken_by_unknown()
        for sent in self.sent.values():
            if sent.confirmed_at and not sent.may_be_lost:
                for place in self.places_of(sent):
                    found = self.by_place.get((place, sent.key))
                    settled = found and any(hand_out.settled_at for hand_out in found)
                    if not settled and (place, sent.key) not in happened:
                        yield place, sent.key

    def arrived(self, transaction: Transaction) -> list[str]:
        """What it sent and somebody got."""
        return [key for key in transaction.sent if (self.sent[key].destination, key) in self.by_place]

    def taken_by_unknown(self) -> dict[tuple[str, str], None]:
        """Messages that went into transactions which happened, though their client does not know."""
        return {
            (hand_out.place, hand_out.key): None
            for transaction in self.transactions.values()
            if transaction.outcome == "unknown" and self.arrived(transaction)
            for hand_out in transaction.taken
        }

    def counts(self) -> dict[str, int]:
        outcomes = [transaction.outcome for transaction in self.transactions.values()]
        return {
            "sent": len(self.sent),
            "confirmed": sum(1 for sent in self.sent.values() if sent.confirmed_at),
            "refused": sum(1 for sent in self.sent.values() if sent.was_refused),
            "handed_out": len(self.hand_outs),
            "marked": sum(1 for hand_out in self.hand_outs if hand_out.is_marked),
            "acknowledged": sum(1 for hand_out in self.hand_outs if hand_out.done_at),
            "committed": outcomes.count("committed"),
            "rolled_back": outcomes.count("rolled back"),
            "commits_unknown": outcomes.count("unknown"),
        }

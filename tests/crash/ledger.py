"""The books of a crash test: who sent what, what was promised, who received it, and what must hold.

A body says where it comes from: `lane/number`, where a lane is one session's way to one queue.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from heliograph.client import Message


@dataclass(slots=True)
class Receipt:
    """One hand-over of a message to a consumer."""

    consumer: str
    number: int
    redelivered: bool
    acknowledged: bool = False  # the server said that it stored the acknowledgement


@dataclass(slots=True)
class LaneBook:
    """The books of one lane."""

    sent: int = 0
    confirmed: int = 0  # all up to here: confirmations come in order
    received: dict[int, list[Receipt]] = field(default_factory=dict)
    last_fresh: dict[str, int] = field(default_factory=dict)  # by consumer


class Ledger:
    """All books. What is wrong the moment it happens is noted then; the rest is found by `check`."""

    def __init__(self) -> None:
        self.lanes: dict[str, LaneBook] = {}
        self.faults: list[str] = []
        self.receipts = 0
        self.redelivered = 0

    def next_body(self, lane: str, padding: int = 0) -> bytes:
        book = self.lanes.setdefault(lane, LaneBook())
        book.sent += 1
        return f"{lane}/{book.sent}/".encode() + b"." * padding

    def confirmed(self, lane: str, number: int) -> None:
        book = self.lanes[lane]
        if number != book.confirmed + 1:
            self._fault(f"{lane}: {number} was confirmed after {book.confirmed}")
        book.confirmed = max(book.confirmed, number)

    def received(self, consumer: str, message: Message) -> Receipt:
        """Book a hand-over; faults of order and of marks show here."""
        body = message.body
        assert isinstance(body, bytes)
        lane, digits, _ = body.decode().split("/", 2)
        number = int(digits)
        receipt = Receipt(consumer, number, message.redelivered)
        book = self.lanes.get(lane)
        if book is None or not 0 < number <= book.sent:
            self._fault(f"{lane}/{number} was received and never sent")
            return receipt
        self.receipts += 1
        earlier = book.received.setdefault(number, [])
        if message.redelivered:
            self.redelivered += 1
        else:
            self._check_fresh(book, receipt, lane, earlier)
        if any(other.acknowledged for other in earlier):
            self._fault(f"{lane}/{number} came again after its acknowledgement was stored")
        earlier.append(receipt)
        return receipt

    def _check_fresh(self, book: LaneBook, receipt: Receipt, lane: str, earlier: list[Receipt]) -> None:
        consumer, number = receipt.consumer, receipt.number
        if earlier:
            self._fault(f"{lane}/{number} came to {consumer} again, unmarked, after {earlier[-1]}")
        self._check_order(book, receipt, lane)

    def _check_order(self, book: LaneBook, receipt: Receipt, lane: str) -> None:
        consumer, number = receipt.consumer, receipt.number
        last = book.last_fresh.get(consumer, 0)
        if number <= last:
            self._fault(f"{lane}: {consumer} received {number} after {last}, neither marked as redelivered")
        book.last_fresh[consumer] = max(last, number)

    def _fault(self, sentence: str) -> None:
        if len(self.faults) < 50:
            self.faults.append(sentence)

    # ---- at the end

    @property
    def sent(self) -> int:
        return sum(book.sent for book in self.lanes.values())

    @property
    def confirmed_total(self) -> int:
        return sum(book.confirmed for book in self.lanes.values())

    @property
    def distinct(self) -> int:
        return sum(len(book.received) for book in self.lanes.values())

    def missing(self) -> list[str]:
        """What was confirmed and never received."""
        return [
            f"{lane}/{number}"
            for lane, book in self.lanes.items()
            for number in range(1, book.confirmed + 1)
            if number not in book.received
        ]

    def check(self) -> None:
        missing = self.missing()
        lost = Counter(name.partition("/")[0] for name in missing)
        assert not missing, f"confirmed and lost: {dict(lost)}, beginning with {missing[:10]}"
        assert not self.faults, "\n".join(self.faults)

    def summary(self) -> str:
        return (
            f"{self.sent:,} sent, {self.confirmed_total:,} confirmed, {self.distinct:,} received,"
            f" {self.redelivered:,} times redelivered"
        )

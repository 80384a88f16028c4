"""What clients of a replicated cluster may see, and what they must have seen in the end."""

from __future__ import annotations

import msgspec

from heliograph.model.ids import ConsumerId, LaneId, SessionId


class Violation(AssertionError):
    """A promise was broken."""


class Transaction(msgspec.Struct):
    """`outcome` is what its client was told; None: nothing yet, or ever."""

    number: int
    is_asked: bool = False
    outcome: bool | None = None


class Letter(msgspec.Struct):
    """A message as its sender knows it."""

    name: str
    address: str
    lane: LaneId
    sequence: int
    body: bytes
    persistent: bool = True
    priority: int = 4
    unit: int = 0
    due: int = 0  # microseconds
    expiry: int = 0
    transaction: Transaction | None = None
    confirmed: bool = False
    sender_is_gone: bool = False  # before it was confirmed
    crashes: int = 0  # of message managers before it was sent
    begun: int = 0  # how many subscriptions had begun
    copies: dict[str, Copy] = {}

    @property
    def must_arrive(self) -> bool:
        if self.transaction is not None and self.transaction.outcome is not True:
            return False
        return self.confirmed and self.persistent and not self.expiry


class Copy(msgspec.Struct):
    """A message in a queue, or in a subscription."""

    holder: ConsumerId | None = None
    tag: int = 0
    was_seen: bool = False
    is_acknowledged: bool = False
    is_done: bool = False  # and that was confirmed
    acknowledged_by: ConsumerId | None = None
    may_be_done: bool = False  # acknowledged by somebody who is gone
    times: int = 0
    history: list[str] = []


class Judge:
    """Hears of everything that clients hear."""

    def __init__(self) -> None:
        self.decided: dict[tuple[SessionId, int], bool] = {}  # what another sub-cluster decided
        self.abandoned: dict[SessionId, None] = {}  # their client manager died in the middle of a commit
        self.letters: dict[str, Letter] = {}
        self._last: dict[tuple[str, LaneId, int], int] = {}  # in lists that one consumer at a time takes from
        self._units: dict[int, list[Letter]] = {}
        self.deliveries = 0

    def sent(self, letter: Letter) -> None:
        self.letters[letter.name] = letter
        if letter.unit:
            self._units.setdefault(letter.unit, []).append(letter)

    def given(
        self, of: str, consumer: ConsumerId, tag: int, body: bytes, *, marked: bool, alone: bool, now: int
    ) -> Letter:
        """A message reached a consumer of a list. `alone`: nobody else takes from it."""
        self.deliveries += 1
        name = body.partition(b"|")[0].decode()
        letter = self.letters.get(name)
        if letter is None or letter.body != body:
            raise Violation(f"{body[:40]!r} was never sent so")
        copy = letter.copies.setdefault(of, Copy())
        copy.times += 1
        copy.history.append(
            f"given {consumer.hex()[4:8]}.{consumer.hex()[20:28]}#{tag}{' marked' if marked else ''}"
        )
        self._check_transaction(letter)
        story = f"{name} in {of}: {copy.history}"
        if copy.is_done:
            raise Violation(f"acknowledged and confirmed, and comes again: {story}")
        if copy.is_acknowledged:
            raise Violation(f"acknowledged, and comes again: {story}")
        if copy.holder is not None:
            raise Violation(f"two have it: {story}")
        if copy.was_seen and not marked:
            raise Violation(f"twice, and not marked: {story}")
        if letter.due > now + 2_000:
            raise Violation(f"too early by {letter.due - now} us: {story}")
        self._check_order(of, letter, marked=marked, alone=alone)
        copy.holder, copy.tag, copy.was_seen = consumer, tag, True
        self._check_unit(of, letter)
        return letter

    def _check_transaction(self, letter: Letter) -> None:
        transaction = letter.transaction
        if transaction is None:
            return
        if not transaction.is_asked:
            raise Violation(f"{letter.name} arrived before its transaction was to be committed")
        if transaction.outcome is False:
            raise Violation(f"{letter.name} arrived, and its client was told that it would not")

    def _check_order(self, of: str, letter: Letter, *, marked: bool, alone: bool) -> None:
        if marked or not alone or letter.due or letter.unit:
            return
        key = (of, letter.lane, letter.priority)
        last = self._last.get(key, 0)
        if letter.sequence <= last:
            raise Violation(f"out of order: {letter.name} in {of} after {last}")
        self._last[key] = letter.sequence

    def _check_unit(self, of: str, letter: Letter) -> None:
        """All that is before it in its unit is done, or with the same consumer and before it."""
        mine = letter.copies[of]
        for earlier in self._units.get(letter.unit, ()):
            if earlier.sequence >= letter.sequence:
                break
            copy = earlier.copies.get(of)
            is_over = copy is not None and (copy.is_done or copy.is_acknowledged or copy.may_be_done)
            if is_over or (copy is not None and copy.holder == mine.holder and copy.tag < mine.tag):
                continue
            if earlier.sender_is_gone and copy is None:
                continue
            raise Violation(
                f"unit of order: {letter.name} {mine.history} in {of} before {earlier.name} {copy and copy.history}"
            )

    # ---- the end

    def check_complete(self, lists: dict[str, tuple[str, int]], crashes: int) -> None:
        """`lists`: where each takes from, and which of the letters' `begun` it goes back to."""
        missing = []
        for letter in self.letters.values():
            for of, (address, number) in lists.items():
                if address != letter.address or letter.begun < number:
                    continue
                copy = letter.copies.get(of)
                may_be_lost = not letter.persistent and crashes > letter.crashes
                if copy is not None and (copy.is_done or copy.is_acknowledged or copy.may_be_done):
                    continue
                is_wanted = (
                    letter.confirmed and not letter.expiry and not may_be_lost and not letter.transaction
                )
                if letter.must_arrive or is_wanted:
                    missing.append(f"{letter.name} in {of}: {copy and copy.history}")
        if missing:
            raise Violation(f"lost: {len(missing)}, such as {missing[:5]}")

"""A link by which a client receives: its credit, what it has and has not settled, what its word on a message means.

    accepted                       done
    rejected                       to the dead
    released                       back, as if it had not been handed out
    modified, delivery failed      back, as the policy says; not failed: as released
    modified, undeliverable here   to the dead

Credit is the client's: the destination is told of as much as the client allows, and when the client wants less, or
all there is now (drain), what was granted is taken back. What was under way then waits here until the client allows
it.

In a transaction the word is kept: what was accepted is done with it, the rest has its fate when it is committed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from heliograph.bus.commands import BY_POLICY, DEAD, UNSEEN
from heliograph.frontends.amqp.engine import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    TRANSACTIONAL,
    Engine,
    Link,
)
from heliograph.frontends.amqp.messages import Encoder
from heliograph.frontends.amqp.transfers import Download, Transfers
from heliograph.frontends.amqp.values import Described
from heliograph.frontends.held_tags import HeldTags, Ranges
from heliograph.frontends.proxy import Proxy
from heliograph.model.limits import AMQP_GRANTED
from heliograph.sessions import commands

Word = tuple[bool, int, str]
"""Of a client on a message: whether it goes back, its fate, and why."""
_NAMES: Final = {
    "amqp:accepted:list": ACCEPTED,
    "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED,
    "amqp:modified:list": MODIFIED,
}
# Rounds without anything new after which a link that wants all there is has it.
_QUIET_ROUNDS: Final = 1


class Outlet:
    """One consumer of a client's, under our number for it."""

    def __init__(
        self, engine: Engine, proxy: Proxy, transfers: Transfers, link: Link, number: int, *, jms: bool
    ) -> None:
        self._engine = engine
        self._proxy = proxy
        self._transfers = transfers
        self.link = link
        self.number = number
        self.address = ""
        self.encoder = Encoder(jms=jms)
        self.is_browser = False
        self.is_pattern = False
        self.says_what_failed = False  # then it has seen nothing of what it says nothing of
        self.is_open = False
        self.temporary = ""  # the node that was made for it
        self.subscription = ""
        self.is_durable = False
        self.is_common = False
        self.granted = 0
        self._waiting: deque[tuple[int, bytes | Download]] = deque()
        self._streamed: tuple[int, Download] | None = None  # what is sent as it is read; nothing overtakes it
        self._held = HeldTags()
        self._handed: Ranges = []  # of a link that is settled by us: what the network has not got yet
        self._settled: dict[Word, Ranges] = {}
        self._unsettled: dict[int, Any] = {}  # the client has said what becomes of it, and waits for us
        self._words: dict[int, Word] = {}  # in transactions, on what is not accepted there
        self._is_draining = False
        self._drain_count = 0
        self._quiet = 0
        self._is_browsed = False
        self._is_drained = False

    # ---- credit

    def balance(self) -> None:
        """The destination is told of what the client allows."""
        if not self.is_open or not self.link.is_there:
            return
        self._send_waiting()
        under_way = len(self._waiting) + (self._streamed is not None)
        wanted = min(self._engine.credit(self.link), AMQP_GRANTED) - self.granted - under_way
        if wanted > 0:
            self._grant(wanted)
        elif wanted < 0 and self.granted > 0 and self._can_withdraw:
            self._grant(max(wanted, -self.granted))
        if self._engine.is_draining(self.link) and not self._is_draining and self._engine.credit(self.link):
            self._drain()

    @property
    def _can_withdraw(self) -> bool:
        return not self.is_browser and not self.is_pattern

    def _grant(self, count: int) -> None:
        self.granted += count
        self._proxy.command(commands.GrantCredit(self.number, count))

    def _drain(self) -> None:
        """All there is now. The destination is asked until it has nothing more; then credit is taken back."""
        if self.is_browser:
            if self._is_browsed:
                self._drained()
            return
        self._is_draining = True
        self._drain_count = self._quiet = 0
        self._proxy.echo(self.number, self._echoed)

    def _echoed(self) -> None:
        if not self._is_alive:
            return
        self._quiet = 0 if self._drain_count else self._quiet + 1
        self._drain_count = 0
        if self._engine.credit(self.link) and self._quiet <= _QUIET_ROUNDS:
            self.balance()
            self._proxy.echo(self.number, self._echoed)
        elif self.granted > 0 and self._can_withdraw:
            self._grant(-self.granted)
            self._proxy.echo(self.number, self._withdrawn)
        else:
            self._withdrawn()

    def _withdrawn(self) -> None:
        self._is_draining = False
        if self._is_alive:
            self._send_waiting()
            self._drained()

    def _drained(self) -> None:
        self._is_drained = self._streamed is not None  # then it counts as credit still
        if not self._is_drained:
            self._engine.drained(self.link)
            self.balance()

    def browsed(self) -> None:
        """There is nothing more to see."""
        self._is_browsed = True
        if self._is_alive and self._engine.is_draining(self.link) and not self._waiting:
            self._drained()

    @property
    def _is_alive(self) -> bool:
        return self.is_open and self.link.is_there

    # ---- out

    def give(self, tag: int, data: bytes | Download) -> None:
        self.granted -= 1
        self._drain_count += 1
        if (
            self._waiting
            or type(data) is Download
            or self._streamed is not None
            or not self._is_alive
            or self._engine.credit(self.link) <= 0
        ):
            self._waiting.append((tag, data))
            if self._is_alive:
                self._send_waiting()
        else:
            self._send(tag, data)  # type: ignore[arg-type]  # it is no Download

    def _send_waiting(self) -> None:
        while self._waiting and self._streamed is None and self._engine.credit(self.link) > 0:
            tag, data = self._waiting[0]
            if isinstance(data, Download):
                if not self._transfers.has_room(self.balance):
                    return
                self._waiting.popleft()
                self._stream(tag, data)
            else:
                self._waiting.popleft()
                self._send(tag, data)

    def _send(self, tag: int, data: bytes) -> None:
        self._engine.send(self.link, tag, data)
        self.sent(tag)

    def _stream(self, tag: int, content: Download) -> None:
        self._streamed = tag, content
        content.delivery = self._engine.begin(self.link, tag)
        self._engine.write(self.link, content.before)
        content.begin(self._transfers, self._write, self._streamed_all)

    def _write(self, data: bytes) -> None:
        if self.link.is_there:
            self._engine.write(self.link, data)

    def _streamed_all(self, why: str) -> None:
        """`why`: it cannot be read."""
        if self._streamed is None or not self.link.is_there:
            return
        (tag, content), self._streamed = self._streamed, None
        if why:
            self._engine.abort(content.delivery)
            if not self.is_browser:
                self._proxy.settle(self.number, [(tag, tag)], returned=True, replenish=False, error=why)
        else:
            self._engine.write(self.link, content.after)
            self._engine.finish(self.link, content.delivery)
            self.sent(tag)
        self._send_waiting()
        if not self._is_drained:
            self.balance()
        elif self._streamed is None:
            self._drained()

    def sent(self, tag: int) -> None:
        if self.is_browser:
            return
        if not self.link.presettled:
            self._held.add(tag, tag)
        elif self._handed and self._handed[-1][1] == tag - 1:
            self._handed[-1] = (self._handed[-1][0], tag)
        else:
            self._handed.append((tag, tag))

    def written(self) -> None:
        """The network has what was sent, unless the client's window keeps it here: what we settle is the client's."""
        if self._streamed is not None and self.link.is_there:
            content = self._streamed[1]
            if not self._engine.has_unwritten(content.delivery):
                content.allow_more()
        if self._handed and self.link.is_there and not self._engine.has_unsent(self.link):
            handed, self._handed = self._handed, []
            self._proxy.settle(self.number, handed, replenish=False)

    # ---- what the client says

    def disposed(self, delivery: Any) -> tuple[str, int] | None:
        """The client's word on a delivery. Returns the transaction that it is part of, if it is, and its tag."""
        engine = self._engine
        tag, state = engine.tag_of(delivery), engine.state_of(delivery)
        is_settled = engine.is_settled(delivery)
        if self.is_browser:
            if is_settled or state:
                engine.settle(delivery)
            return None
        if state == TRANSACTIONAL:
            return self._in_transaction(delivery, tag, is_settled=is_settled)
        word = self._meaning(delivery, state)
        if word is None and not is_settled:
            return None
        if not self._held.take(tag, tag):  # it went back meanwhile
            engine.settle(delivery)
            return None
        if is_settled:
            engine.settle(delivery)
            _extend(self._settled.setdefault(word or (False, BY_POLICY, ""), []), tag)
        else:
            self._unsettled[tag] = delivery
            self._settle(word or (False, BY_POLICY, ""), [(tag, tag)], tag)
        return None

    def _meaning(self, delivery: Any, state: int) -> Word | None:
        """None: nothing was said."""
        if state == ACCEPTED:
            return False, BY_POLICY, ""
        if state == RELEASED:
            return True, UNSEEN, ""
        if state == REJECTED:
            return True, DEAD, self._engine.reason(delivery)
        if state == MODIFIED:
            return self._modified(*self._engine.failing(delivery))
        return None

    def _modified(self, failed: bool, is_useless: bool) -> Word:
        self.says_what_failed |= failed
        return True, DEAD if is_useless else BY_POLICY if failed else UNSEEN, ""

    def flush(self) -> None:
        """What the client said in one go is said in one go."""
        settled, self._settled = self._settled, {}
        for word, ranges in settled.items():
            self._settle(word, sorted(ranges))

    def _settle(self, word: Word, ranges: Ranges, unsettled: int | None = None) -> None:
        returned, fate, error = word
        then = None if unsettled is None else (lambda: self._stored(unsettled))
        self._proxy.settle(
            self.number,
            ranges,
            returned=returned,
            replenish=False,
            error=error,
            fate=fate,
            on_settled=then,
        )

    def _stored(self, tag: int) -> None:
        delivery = self._unsettled.pop(tag, None)
        if delivery is not None and self.link.is_there:
            self._engine.settle(delivery)

    # ---- transactions

    def _in_transaction(self, delivery: Any, tag: int, *, is_settled: bool) -> tuple[str, int] | None:
        details = self._engine.details_of(delivery)
        name = (
            details[0].hex()
            if isinstance(details, list) and details and isinstance(details[0], bytes)
            else ""
        )
        if not self._held.take(tag, tag):
            self._engine.settle(delivery)
            return None
        word = self._provisional(details[1] if name and len(details) > 1 else None)
        if word is not None:
            self._words[tag] = word
        if is_settled:
            self._engine.settle(delivery)
        else:
            self._unsettled[tag] = delivery
        return name, tag

    def _provisional(self, outcome: Any) -> Word | None:
        """What is to become of it when the transaction is committed; None: it is accepted, as where nothing is said.
        What says something else than there is goes back."""
        if outcome is None:
            return None
        said = outcome.descriptor if isinstance(outcome, Described) else None
        state = _NAMES.get(said) if isinstance(said, str) else said
        fields = outcome.value if isinstance(outcome, Described) else None
        fields = fields if isinstance(fields, list) else []
        if state == ACCEPTED:
            return None
        if state == REJECTED:
            return True, DEAD, _reason(fields)
        if state == MODIFIED:
            return self._modified(fields[:1] == [True], fields[1:2] == [True])
        return True, UNSEEN if state == RELEASED else BY_POLICY, ""

    def takes(self, ranges: Ranges) -> bool:
        """Whether a commit is to take it, which the client said of in a transaction. It spoke of one at a time."""
        return ranges[0][0] not in self._words

    def committed(self, ranges: Ranges) -> None:
        """A transaction has taken what was accepted. The destination counts it as credit, which it is not."""
        for first, last in ranges:
            for tag in range(first, last + 1):
                word = self._words.pop(tag, None)
                if word is None:
                    self.granted += 1
                    self._stored(tag)
                else:
                    self._settle(word, [(tag, tag)], tag if tag in self._unsettled else None)
        self.balance()

    def rolled_back(self, ranges: Ranges) -> None:
        """What the client was through with goes back; what it was not can be settled again."""
        back: Ranges = []
        for first, last in ranges:
            for tag in range(first, last + 1):
                self._words.pop(tag, None)
                if tag in self._unsettled:
                    del self._unsettled[tag]
                    self._held.add(tag, tag)
                else:
                    _extend(back, tag)
        self._proxy.settle(self.number, sorted(back), returned=True, replenish=False)

    # ---- the end

    def recalled(self, ranges: Ranges) -> None:
        """What a unit of order took back is not the client's any more, whatever it says."""
        for first, last in ranges:
            self._held.take(first, last)
            self.granted += last - first + 1
            self._waiting = deque(each for each in self._waiting if not first <= each[0] <= last)
            if self._streamed is not None and first <= self._streamed[0] <= last and self.link.is_there:
                self._engine.abort(self._streamed[1].delivery)
                self._stop_streaming()
        self.balance()

    def _stop_streaming(self) -> None:
        if self._streamed is not None:
            self._streamed[1].stop()
            self._streamed = None

    def left(self, *, keeps: bool) -> None:
        """The client has closed the link: what it never got goes back as that. `keeps`: a transaction has something
        of it, so the rest goes back one by one."""
        self.is_open = False
        if self.granted > 0 and self._can_withdraw:
            self._grant(-self.granted)  # or what goes back would come here again
        self.flush()
        waiting = [(tag, tag) for tag, _ in self._waiting]
        if self._streamed is not None:
            waiting.insert(0, (self._streamed[0], self._streamed[0]))
        self._waiting.clear()
        self._stop_streaming()
        if not self.is_browser:
            self._proxy.settle(self.number, waiting, returned=True, replenish=False, fate=UNSEEN)
            if keeps:
                self._proxy.settle(self.number, self._held.ranges(), returned=True, replenish=False)
        self._unsettled.clear()


def _reason(fields: list[Any]) -> str:
    """Why a message is rejected: the error's condition and description."""
    error = fields[0].value if fields and isinstance(fields[0], Described) else None
    texts = [each for each in error[:2] if isinstance(each, str)] if isinstance(error, list) else []
    return ": ".join(each for each in texts if each)


def _extend(ranges: Ranges, tag: int) -> None:
    if ranges and ranges[-1][1] == tag - 1:
        ranges[-1] = (ranges[-1][0], tag)
    else:
        ranges.append((tag, tag))

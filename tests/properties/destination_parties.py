"""Who and what the model of destinations knows: messages, their copies, lanes, subscriptions, consumers."""

from __future__ import annotations

import msgspec

from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId, text_of

QUEUE_LIST = 0  # a topic's lists go by the number of their subscription

EVERYTHING = ""
RED = "color = 'red'"
NOT_RED = "color <> 'red'"
URGENT = "JMSPriority > 4"
SELECTORS = (EVERYTHING, RED, NOT_RED, URGENT)


class Copy(msgspec.Struct):
    """A message in one list. `history` holds (tick, what, deliveries after it)."""

    holder: ConsumerId | None = None
    done: bool = False
    dying: bool = False  # came back too often, and is on its way to the dead
    deliveries: int = 0
    not_before: int = 0
    late: bool = False  # was set aside once, so that its place among the others is not what it was
    history: list[tuple[int, str, int]] = []

    @property
    def waits(self) -> bool:
        return self.holder is None and not self.done and not self.dying

    def note(self, tick: int, what: str) -> None:
        self.history.append((tick, what, self.deliveries))

    def restore(self, kept: int, *, lost_machine: bool) -> None:
        """As it was at the end of tick `kept`, with one delivery more if somebody had it then."""
        self.history = [entry for entry in self.history if entry[0] <= kept]
        _, what, self.deliveries = self.history[-1] if self.history else (0, "", 0)
        self.holder, self.done, self.dying = None, what == "done", False
        self.not_before, self.late = 0, False
        if what == "dispatched":
            self.deliveries += 1
        if lost_machine:
            self.deliveries = max(self.deliveries, 1)
        if not self.done:
            self.note(kept, "restarted")


class Letter(msgspec.Struct):
    """A message as its sender knows it. `lsn`: the record that must be stored before anybody may see it."""

    address: Address
    lane: LaneId
    sequence: int
    priority: int
    persistent: bool
    body: bytes
    number: int
    tick: int
    color: str
    expiry: int
    due: int
    timestamp: int
    lsn: int = 0
    added: bool = False  # it waits, or did
    of_transaction: bool = False
    copies: dict[int, Copy] = {}

    def __repr__(self) -> str:
        return f"{text_of(self.lane)}-{self.sequence}"

    def is_expired(self, now: int) -> bool:
        return 0 < self.expiry <= now

    def is_late_in(self, of: int) -> bool:
        return self.due > 0 or self.copies[of].late


def matches(selector: str, letter: Letter) -> bool:
    """What SQL says: where there is no colour, both questions about it are neither true nor false."""
    if selector == RED:
        return letter.color == "red"
    if selector == NOT_RED:
        return letter.color not in ("", "red")
    return letter.priority > 4 if selector == URGENT else True


class Sent(msgspec.Struct, frozen=True):
    """A block that a client keeps until it is confirmed. `staged`: it stands and falls with a transaction."""

    first: int
    last: int
    buffer: bytes
    staged: bool = False

    def __repr__(self) -> str:
        return f"{self.first}..{self.last}"


class Lane(msgspec.Struct):
    """A client's lane, and what the server must make of it."""

    identity: LaneId
    address: Address
    user: str
    opened: int  # the tick
    mark: int = 0
    confirmed: int = 0
    sent: list[Sent] = []
    refused: bool = False
    fresh: bool = True  # opened or resumed, and nothing new was accepted since
    cut_off: bool = False  # the server stopped: it has to be resumed first
    closed: bool = False
    expects_refusal_of: int = 0

    def __repr__(self) -> str:
        return f"{text_of(self.identity)} to {self.address}"

    @property
    def unconfirmed(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.last > self.confirmed and not sent.staged]

    @property
    def next_sequence(self) -> int:
        return self.sent[-1].last + 1 if self.sent else 1


class Subscriber(msgspec.Struct):
    """A subscription. `number` is what the topic calls its list; `ended` the tick in which it was."""

    address: Address
    client: str
    name: str
    durable: bool
    shared: bool
    selector: str
    identity: int = 0
    number: int = 0
    since: int = 0
    ended: int = 0

    def is_there_for(self, address: Address) -> bool:
        return self.address == address and not self.ended

    def wants(self, letter: Letter) -> bool:
        return matches(self.selector, letter)

    def survives(self, kept: int) -> bool:
        if not self.durable or self.since > kept or 0 < self.ended <= kept:
            return False
        self.ended = 0  # that it had ended is forgotten with the rest
        return True


Letters = list[Letter]


class Taker(msgspec.Struct):
    """A consumer or browser, and what it has by tag."""

    identity: ConsumerId
    address: Address
    session: SessionId
    credit: int
    list: int = QUEUE_LIST
    selector: str = EVERYTHING
    held: dict[int, Letter] = {}
    next_tag: int = 1
    browses: bool = False
    may_see: Letters = []  # what had been accepted when the browser came, and was not shown yet
    on_its_way: Letters = []  # of that, what did not wait yet: it may be shown, and need not

    def __repr__(self) -> str:
        return f"{text_of(self.identity)} of {self.address} {self.selector}, has {sorted(self.held)}"

"""A link by which a client sends: to one destination, to whatever each message names, or to the coordinator of
transactions.

A message is accepted when it is stored. In a transaction it is accepted at once, as part of it, and stored when the
transaction is discharged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from heliograph.frontends.alert_desk import AlertDesk
from heliograph.frontends.alert_messages import is_channel
from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.addresses import address_of
from heliograph.frontends.amqp.alerts import AlertOutlet
from heliograph.frontends.amqp.bodies import BYTES, Body
from heliograph.frontends.amqp.conditions import condition_of, error_of
from heliograph.frontends.amqp.content_reader import ContentReader
from heliograph.frontends.amqp.engine import ACCEPTED, DECLARED, TRANSACTIONAL, Engine, Link
from heliograph.frontends.amqp.messages import Arrived, arrived, parse
from heliograph.frontends.amqp.outlets import Outlet
from heliograph.frontends.amqp.transfers import Transfers, Upload
from heliograph.frontends.amqp.values import Described
from heliograph.frontends.held_transactions import OpenTransactions, Transaction
from heliograph.frontends.proxy import Answer, Proxy, Sending
from heliograph.model.block import BodyKind
from heliograph.model.destination import Kind
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault
from heliograph.model.large import LargeReference, encode_reference
from heliograph.model.limits import (
    AMQP_CREDIT,
    AMQP_LOW_CREDIT,
    MAX_ALERT_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_MESSAGE_BYTES,
)
from heliograph.sessions.commands import Done, Fail

_DECLARE: Final = (0x31, "amqp:declare:list")
_DISCHARGE: Final = (0x32, "amqp:discharge:list")
_ACCEPTED: Final = b"\x00\x53\x24\x45"
# All before the body of a large message is in so much of it: it has to fit the head of a message of ours.
_BEGINNING_BYTES: Final = 4 * MAX_HEAD_BYTES
Transactions = OpenTransactions[Outlet]


class Large(msgspec.Struct):
    """A message whose content goes on to the disk as it comes."""

    reader: ContentReader
    upload: Upload


class Inlet:
    """A link to a destination, or, without an address, to whatever its messages name."""

    def __init__(
        self,
        engine: Engine,
        proxy: Proxy,
        transfers: Transfers,
        link: Link,
        transactions: Transactions,
        alerts: AlertDesk[AlertOutlet],
        *,
        kind: Kind | None,
    ) -> None:
        self._engine = engine
        self._proxy = proxy
        self._transfers = transfers
        self._transactions = transactions
        self._alerts = alerts
        self.link = link
        self.kind = kind
        self.address = ""
        self.temporary = ""  # the node that was made for it
        self.is_open = False
        self._pieces: list[bytes] = []
        self._size = 0
        self._large: Large | None = None

    @property
    def size(self) -> int:
        """What is here of a message that is not complete."""
        return self._size

    def replenish(self) -> None:
        """The client may go on sending, unless the destination asked to wait."""
        if self.is_open and not (self.address and self._proxy.asks_to_wait(self.address)):
            self._engine.allow(self.link, AMQP_LOW_CREDIT, AMQP_CREDIT)

    def receive(self, delivery: Any) -> None:
        """More of a message, or all of it."""
        engine = self._engine
        piece = engine.read(self.link, delivery)
        if engine.is_aborted(delivery):
            self.left()
            engine.settle(delivery)
            return
        if piece:
            self._take(piece)
        if engine.is_partial(delivery):
            return
        pieces, large = self._pieces, self._large
        self._forget()
        engine.advance(self.link)
        if large is None:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._answering(delivery, lambda: self._complete(delivery, arrived(data, self._proxy.now)))
        else:
            self._answering(delivery, lambda: self._complete_large(delivery, large))

    def _forget(self) -> None:
        self._pieces, self._size, self._large = [], 0, None

    def left(self) -> None:
        """What is here of a message is nothing."""
        large = self._large
        self._forget()
        if large is not None:
            large.upload.drop()

    def _take(self, piece: bytes) -> None:
        """What is too large to be in memory goes on to the disk."""
        if self._large is not None:
            self._large.upload.feed(self._large.reader.feed(piece))
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > MAX_MESSAGE_BYTES:
            self._begin_large()

    def _begin_large(self) -> None:
        pieces = deque(self._pieces)
        self._forget()
        beginning = b""
        while pieces and len(beginning) < _BEGINNING_BYTES:
            beginning += pieces.popleft()
        reader = ContentReader(beginning)
        address = self._address(arrived(reader.head, self._proxy.now, body=Body(b"", BodyKind.BYTES, BYTES)))
        if is_channel(address):
            raise ClientFault(
                f"the body of an alert has at most {MAX_ALERT_BODY_BYTES} bytes", code="alert-invalid"
            )
        self._large = Large(reader, Upload(self._transfers, address))
        self._large.upload.feed(reader.feed(b""))
        while pieces:
            self._large.upload.feed(reader.feed(pieces.popleft()))

    def _address(self, found: Arrived) -> str:
        return self.address or self._named(found.to, found.kind or self.kind)

    def _answering(self, delivery: Any, work: Callable[[], None]) -> None:
        """What is wrong with a message is its outcome."""
        try:
            work()
        except HeliographError as error:
            if self._engine.is_settled(delivery):  # there is no other way to say no
                self._engine.settle(delivery)
                raise
            self._engine.reject(delivery, condition_of(error), str(error))

    def _complete(self, delivery: Any, found: Arrived) -> None:
        address, is_settled = self._address(found), self._engine.is_settled(delivery)
        if self._engine.state_of(delivery) == TRANSACTIONAL:
            self._stage(delivery, address, found.message)
            return
        put = self._alerts.put if is_channel(address) else self._proxy.put
        put(address, found.message, None if is_settled else (self.link, delivery))
        if is_settled:
            self._engine.settle(delivery)
        else:
            self.link.unanswered += 1

    def _complete_large(self, delivery: Any, large: Large) -> None:
        """The message is there when its content is. Nothing that comes behind it is looked at meanwhile."""
        try:
            rest, footer = large.reader.finish()
        except ClientFault:
            large.upload.drop()
            raise

        def stored(outcome: LargeReference | Fail) -> None:
            if isinstance(outcome, Fail):
                raise error_of(outcome)
            body = Body(encode_reference(outcome), BodyKind.LARGE, BYTES, large.reader.kept)
            self._complete(delivery, arrived(large.reader.head + footer, self._proxy.now, body=body))

        def ended(outcome: LargeReference | Fail) -> None:
            if not self.link.is_there:
                return
            try:
                self._answering(delivery, lambda: stored(outcome))
            except HeliographError as error:
                self.is_open = False
                self._engine.refuse(self.link, condition_of(error), str(error))

        large.upload.feed(rest)
        large.upload.end(ended)

    def _named(self, to: str, kind: Kind | None) -> str:
        if not to:
            raise ClientFault(
                "on a link without an address each message says where it goes: to", code="invalid-destination"
            )
        return address_of(to, kind)

    def _stage(self, delivery: Any, address: str, message: Any) -> None:
        name, raw = transaction_of(self._engine.details_of(delivery))
        if is_channel(address):
            raise ClientFault("alerts are not sent in a transaction", code="alerts-only")
        self._transactions.add(name, address, message)
        state = values.compound(0xC0, 2, values.variable("v", raw) + _ACCEPTED)
        self._engine.answer(delivery, TRANSACTIONAL, details=state)


def transaction_of(details: Any) -> tuple[str, bytes]:
    """The name of a transaction, and its id as the client knows it. Raises ClientFault."""
    if isinstance(details, list) and details and isinstance(details[0], bytes):
        return details[0].hex(), details[0]
    raise ClientFault("a transaction is named by its id", code="transaction-unknown")


class Coordinator:
    """A link on which transactions are declared and discharged."""

    address = ""
    temporary = ""
    is_open = True
    size = 0

    def __init__(self, engine: Engine, proxy: Proxy, link: Link, transactions: Transactions) -> None:
        self._engine = engine
        self._proxy = proxy
        self._transactions = transactions
        self.link = link
        self._declared: dict[str, None] = {}
        self._pieces = b""
        self.on_ended: Callable[[Transaction[Outlet]], None] = lambda _: None

    def replenish(self) -> None:
        self._engine.allow(self.link, AMQP_LOW_CREDIT, AMQP_CREDIT)

    def receive(self, delivery: Any) -> None:
        engine = self._engine
        self._pieces += engine.read(self.link, delivery)
        if len(self._pieces) > MAX_HEAD_BYTES:
            raise ProtocolFault("this is no word to a coordinator", code="frame-too-long")
        if engine.is_aborted(delivery):
            self._pieces = b""
            engine.settle(delivery)
            return
        if engine.is_partial(delivery):
            return
        data, self._pieces = self._pieces, b""
        engine.advance(self.link)
        try:
            self._handle(delivery, data)
        except ClientFault as fault:
            engine.reject(delivery, condition_of(fault), str(fault))

    def _handle(self, delivery: Any, data: bytes) -> None:
        bodies = parse(data).bodies
        word = bodies[0][1] if bodies else None
        if isinstance(word, Described) and word.descriptor in _DECLARE:
            self._declare(delivery)
        elif isinstance(word, Described) and word.descriptor in _DISCHARGE:
            name, _ = transaction_of(word.value)
            fails = len(word.value) > 1 and word.value[1] is True
            self._discharge(delivery, name, fails=fails)
        else:
            raise ProtocolFault("a coordinator is told to declare or to discharge", code="frame-malformed")

    def _declare(self, delivery: Any) -> None:
        name = self._transactions.new_name()
        self._transactions.begin(name)
        self._declared[name] = None
        raw = bytes.fromhex(name)
        self._engine.answer(delivery, DECLARED, details=values.compound(0xC0, 1, values.variable("v", raw)))

    def _discharge(self, delivery: Any, name: str, *, fails: bool) -> None:
        transaction = self._transactions.end(name)
        self._declared.pop(name, None)
        if fails:
            self._roll_back(transaction)
            self._engine.answer(delivery, ACCEPTED)
            return

        def answered(answer: Answer | Fail) -> None:
            if isinstance(answer, Fail):
                self._roll_back(transaction)
                self._refuse(delivery, error_of(answer))
                return
            for outlet, ranges in transaction.acknowledged:
                outlet.committed(ranges)
            self.on_ended(transaction)
            if self.link.is_there:
                self._engine.answer(delivery, ACCEPTED)

        taken = [(outlet, ranges) for outlet, ranges in transaction.acknowledged if outlet.takes(ranges)]
        if transaction.messages or taken:
            consumed = Transaction(transaction.messages, taken).consumed
            self._proxy.commit(Sending(transaction.messages, consumed, answered))
        else:
            answered(Done(0))

    def _refuse(self, delivery: Any, error: HeliographError) -> None:
        if self.link.is_there:
            self._engine.reject(delivery, "amqp:transaction:rollback", str(error))

    def _roll_back(self, transaction: Transaction[Outlet]) -> None:
        for outlet, ranges in transaction.acknowledged:
            outlet.rolled_back(ranges)
        self.on_ended(transaction)

    def left(self) -> None:
        """What was declared here and not discharged is rolled back."""
        for name in list(self._declared):
            self._roll_back(self._transactions.end(name))
        self._declared.clear()

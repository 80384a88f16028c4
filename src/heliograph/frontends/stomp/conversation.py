"""The server's side of a STOMP connection as a state machine.

    greeting ──CONNECT──▶ proving ──admitted, session opened──▶ open ──DISCONNECT──▶ leaving ──all is stored──▶
    closed    └──────────── anything that is wrong: ERROR
    ──────────────────────────────────────────────────────────▶ closed

A receipt is given when what it was asked for is done: for SEND when the message is stored, for ACK when that
is, for COMMIT when it is decided. As the protocol demands, whatever a client does wrong ends the connection,
with an ERROR that says how (`message`, `code`, and `receipt-id` if there was to be one).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from heliograph.bus.commands import BY_POLICY
from heliograph.frontends.alert_desk import AlertDesk
from heliograph.frontends.alert_messages import ALERT_ID, is_channel
from heliograph.frontends.conversation import (
    NOTHING,
    Answered,
    AnyHappening,
    Broken,
    Greeted,
    Parts,
)
from heliograph.frontends.fetching import Fetching
from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.held_transactions import OpenTransactions, Transaction
from heliograph.frontends.native import frames as native
from heliograph.frontends.prepared import id_of, opened, sent_at
from heliograph.frontends.proxied import ProxiedConversation, State
from heliograph.frontends.proxy import Answer, Sending
from heliograph.frontends.stomp.addresses import address_of, kind_of_temporary
from heliograph.frontends.stomp.alerts import AlertSubscription
from heliograph.frontends.stomp.frames import (
    V1_0,
    VERSIONS,
    Frame,
    FrameReader,
    encode,
    encode_connected,
    escape,
)
from heliograph.frontends.stomp.headers import prepared
from heliograph.frontends.stomp.subscriptions import (
    Subscription,
    Subscriptions,
    fate_of,
    is_durable,
    subscribe_command,
    subscription_name,
)
from heliograph.model.alert import text_of_alert
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault, from_code
from heliograph.model.ids import text_of
from heliograph.model.limits import (
    HEARTBEAT_SECONDS,
    HEARTBEATS_MISSED,
    MAX_EARLY_FRAMES,
    MAX_GREETING_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_STOMP_HEAD_BYTES,
    STOMP_PULSE_SECONDS,
)
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Fail

_MILLISECONDS: Final = 1000


class StompConversation(ProxiedConversation):
    """One connection. `receive` is fed whatever arrives, in whatever pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = FrameReader(MAX_GREETING_BYTES, MAX_GREETING_BYTES)
        self._frame_limit = MAX_MESSAGE_BYTES
        self._fetching = Fetching(self._proxy, self._address_of, self._deliver_fetched)
        self._subscriptions = Subscriptions(self._proxy.new_consumer)
        self._alerts: AlertDesk[AlertSubscription] = AlertDesk(
            self._proxy, on_stored=self._alert_stored, on_refused=self._refused
        )
        self._transactions: OpenTransactions[Subscription] = OpenTransactions()
        self._retired: dict[int, Subscription] = {}  # unsubscribed from, and needed for a transaction
        self._temporaries: dict[str, str] = {}
        self._waiting: deque[Frame] = deque()  # frames behind one that waits for an answer
        self._is_held = False
        self._version = V1_0
        self._heartbeats = (0, 0)
        self._server = self._user = ""
        self._goodbye = ""  # the receipt that a leaving client wants
        self._receipt = ""  # of the frame that is being looked at
        self._handlers: dict[str, Callable[[Frame], None]] = {
            "SEND": self._send,
            "ACK": self._ack,
            "NACK": self._nack,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
            "BEGIN": self._begin,
            "COMMIT": self._commit,
            "ABORT": self._abort,
            "DISCONNECT": self._disconnect,
        }

    # ---- what the shell asks

    @property
    def _is_deaf(self) -> bool:
        return self._state is State.PROVING or self._is_held

    @property
    def is_waiting(self) -> bool:
        return super().is_waiting or self._alerts.is_full

    @property
    def patience_seconds(self) -> float:
        """What the client promised, and as much again: a busy network is no death."""
        promised = self._heartbeats[0] / _MILLISECONDS
        return max(promised, HEARTBEAT_SECONDS) * HEARTBEATS_MISSED if promised else 0.0

    @property
    def pulse(self) -> bytes:
        return b"\n"

    @property
    def pulse_seconds(self) -> float:
        wanted = self._heartbeats[1] / _MILLISECONDS
        return max(wanted, STOMP_PULSE_SECONDS) / 2 if wanted else 0.0

    # ---- in

    def _feed(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if self._is_held:
                self._waiting.append(frame)
            elif self._state is State.PROVING:
                if len(self._waiting) >= MAX_EARLY_FRAMES:
                    raise ProtocolFault("wait for CONNECTED with the rest", code="not-greeted")
                self._waiting.append(frame)
            elif self._state is State.OPEN:
                self._handle(frame)
            elif self._state is State.GREETING:
                self._greet(frame)

    def _handle(self, frame: Frame) -> None:
        self._receipt = frame.headers.get("receipt", "")
        handler = self._handlers.get(frame.command)
        if handler is None:
            raise ProtocolFault("you have connected already", code="greeted-twice")
        handler(frame)
        self._receipt = ""

    def _go_on(self) -> None:
        """What waited is looked at."""
        self._is_held = False
        while self._waiting and not self._is_held:
            self._handle(self._waiting.popleft())
        if not self._is_held and self._early:
            early, self._early = self._early, b""
            self._feed(early)

    # ---- the beginning

    def _greet(self, frame: Frame) -> None:
        if frame.command not in ("CONNECT", "STOMP"):
            raise ProtocolFault("the first frame is CONNECT", code="not-greeted")
        headers = frame.headers
        offered = [version.strip() for version in headers.get("accept-version", V1_0).split(",")]
        spoken = [version for version in VERSIONS if version in offered]
        if not spoken:
            raise ProtocolFault(f"versions {', '.join(VERSIONS)} are spoken here", code="version-unknown")
        self._version = spoken[0]
        self._heartbeats = _heartbeats(headers.get("heart-beat", "0,0")) if self._version != V1_0 else (0, 0)
        self._state = State.PROVING
        login = headers.get("login", "")
        self._proxy.add(
            Greeted(
                native.Hello(
                    client=f"STOMP {self._version}",
                    mechanism="plain" if login else "anonymous",
                    user=login,
                    password=headers.get("passcode", ""),
                    client_id=headers.get("client-id", ""),
                )
            )
        )

    def admit(self, welcome: native.Welcome) -> bytes:
        self._server, self._user = welcome.server.replace(" ", "/"), welcome.user
        self._frame_limit = min(MAX_MESSAGE_BYTES, welcome.max_frame_bytes)
        return b""

    def begin(self) -> Sequence[AnyHappening]:
        if self._state is not State.PROVING:
            return NOTHING
        self._proxy.open_session()
        return self._proxy.take()

    def say(self, message: native.Control, into: Parts) -> Sequence[AnyHappening]:
        if isinstance(message, native.SessionOpened) and self._state is State.PROVING:
            self._proxy.opened(message)
            self._state = State.OPEN
            self._reader.limit, self._reader.head_limit = self._frame_limit, MAX_STOMP_HEAD_BYTES
            self._reader.version = self._version
            into.append(self._connected(message))
            return self._act(self._go_on)
        if isinstance(message, native.Failed):
            return [self.break_off(from_code(message.code, message.sentence))]
        return NOTHING

    def _connected(self, message: native.SessionOpened) -> bytes:
        headers = {"version": self._version, "session": text_of(message.session), "server": self._server}
        if self._version != V1_0:
            headers["heart-beat"] = (
                f"{STOMP_PULSE_SECONDS * _MILLISECONDS:.0f},{HEARTBEAT_SECONDS * _MILLISECONDS:.0f}"
            )
        headers["user-name"] = self._user
        return encode_connected(headers)

    # ---- sending

    def _send(self, frame: Frame) -> None:
        headers = frame.headers
        address = self._address(headers, frame)
        if address is None:
            return
        reply_to = headers.get("reply-to", "")
        if kind_of_temporary(reply_to) and self._temporary(reply_to, frame) is None:
            return
        message = prepared(headers, frame.body, self._proxy.now, self._translate)
        transaction = headers.get("transaction")
        if is_channel(address):
            if transaction is not None:
                raise ClientFault("alerts are not sent in a transaction", code="alerts-only")
            self._alerts.put(address, message, self._receipt or None)
        elif transaction is None:
            self._proxy.put(address, message, self._receipt or None)
        else:
            self._transactions.add(transaction, address, sent_at(message, self._proxy.now))
            self._give_receipt(self._receipt)

    def _address(self, headers: dict[str, str], frame: Frame) -> str | None:
        """The address of a frame's destination; None: the frame has to wait for it."""
        destination = headers.get("destination")
        if destination is None:
            raise ProtocolFault(f"{frame.command} has a destination", code="frame-malformed")
        if kind_of_temporary(destination):
            return self._temporary(destination, frame)
        return address_of(destination)

    def _translate(self, destination: str) -> str:
        return self._temporaries.get(destination) or address_of(destination)

    def _temporary(self, destination: str, frame: Frame) -> str | None:
        """A temporary destination, made when it is first named; until then the frame and all behind it wait."""
        found = self._temporaries.get(destination)
        kind = kind_of_temporary(destination)
        if found is not None or kind is None:
            return found

        def made(answer: Answer) -> None:
            self._check(answer)
            assert isinstance(answer, commands.Tell)
            self._temporaries[destination] = answer.body["destination"]
            self._go_on()

        self._is_held = True
        self._waiting.appendleft(frame)
        self._proxy.command(commands.MakeTemporary(self._proxy.ask(made), kind))
        return None

    def _stored(self, receipts: list[Any]) -> None:
        version = self._version
        frames = [f"RECEIPT\nreceipt-id:{escape(receipt, version)}\n\n\0" for receipt in receipts]
        self._proxy.add(Answered("".join(frames).encode()))

    def _alert_stored(self, receipts: list[Any], identity: bytes | None) -> None:
        """The receipt of an alert says what it is called."""
        said = {} if identity is None else {ALERT_ID: text_of_alert(identity)}
        for receipt in receipts:
            frame = encode("RECEIPT", {"receipt-id": receipt, **said}, version=self._version)
            self._proxy.add(Answered(frame))

    def _refused(self, receipts: list[Any], why: Fail) -> None:
        self._receipt = receipts[0] if receipts else ""
        raise from_fail(why)

    def _give_receipt(self, receipt: str) -> None:
        if receipt:
            frame = encode("RECEIPT", {"receipt-id": receipt}, version=self._version)
            self._proxy.add(Answered(frame))

    def _check(self, answer: Answer, receipt: str = "") -> None:
        """Raises what was refused; otherwise a receipt is given."""
        if isinstance(answer, Fail):
            self._receipt = receipt
            raise from_fail(answer)
        self._give_receipt(receipt)

    # ---- subscriptions

    def _subscribe(self, frame: Frame) -> None:
        headers, receipt = frame.headers, self._receipt
        address = self._address(headers, frame)
        if address is None:
            return
        subscription = self._subscriptions.add(headers, self._version)
        subscription.address = address
        if is_channel(address):
            alerts = self._alerts.outlets[subscription.number] = AlertSubscription(self._proxy, subscription)
            alerts.attach(headers, lambda answer: self._check(answer, receipt))
            return
        request = self._proxy.ask(lambda answer: self._check(answer, receipt))
        self._proxy.command(subscribe_command(request, subscription, headers, address))

    def _unsubscribe(self, frame: Frame) -> None:
        headers, receipt = frame.headers, self._receipt
        name = subscription_name(headers) if is_durable(headers) else ""
        if name and not self._subscriptions.has(headers):
            self._end_subscription(name, receipt)  # nobody consumes from it here
            return
        subscription = self._subscriptions.remove(headers)
        alerts = self._alerts.outlets.pop(subscription.number, None)
        if alerts is not None:
            alerts.leave(lambda answer: self._check(answer, receipt), ends=is_durable(headers))
            return
        if is_durable(headers):
            name = subscription.name or name

        def left(answer: Answer) -> None:
            if isinstance(answer, Fail) or not name:
                self._check(answer, receipt)
            else:
                self._end_subscription(name, receipt)

        if self._transactions.acknowledged_of(subscription):
            self._retire(subscription, left)
        else:
            seen = subscription.last_seen(headers)
            self._proxy.command(commands.Unsubscribe(self._proxy.ask(left), subscription.number, seen))

    def _end_subscription(self, name: str, receipt: str) -> None:
        request = self._proxy.ask(lambda answer: self._check(answer, receipt))
        self._proxy.command(commands.EndSubscription(request, name))

    def _retire(self, subscription: Subscription, on_answer: Callable[[Answer], None]) -> None:
        """It takes nothing more, and keeps what it acknowledged in a transaction until that ends."""
        number = subscription.number
        self._retired[number] = subscription
        last = max(last for _, last in self._transactions.acknowledged_of(subscription))
        self._proxy.command(commands.Retire(self._proxy.ask(on_answer), number, last))
        self._proxy.settle(number, subscription.held.take_up_to(last), returned=True, replenish=False)

    def _release_retired(self, transaction: Transaction[Subscription]) -> None:
        """A transaction has ended: subscriptions that stayed for it go, and what they still have goes back."""
        for number in dict.fromkeys(subscription.number for subscription, _ in transaction.acknowledged):
            subscription = self._retired.get(number)
            if subscription is not None and not self._transactions.acknowledged_of(subscription):
                del self._retired[number]
                request = self._proxy.ask(lambda _: None)
                self._proxy.command(commands.Unsubscribe(request, number))

    def _ack(self, frame: Frame) -> None:
        self._acknowledge(frame, returned=False)

    def _nack(self, frame: Frame) -> None:
        self._acknowledge(frame, returned=True)

    def _acknowledge(self, frame: Frame, *, returned: bool) -> None:
        receipt = self._receipt
        transaction = frame.headers.get("transaction")
        found = self._subscriptions.acknowledged(
            frame.headers, self._version, is_final=returned or transaction is None
        )
        if found is not None and found[0].number in self._alerts.outlets:
            self._acknowledge_alerts(frame, *found, returned=returned)
        elif transaction is not None and not returned:
            consumed = self._transactions.named(transaction).acknowledged
            if found is not None and found[1]:
                consumed.append(found)
            self._give_receipt(receipt)
        elif found is None or not found[1]:
            self._give_receipt(receipt)
        else:
            settled = (lambda: self._give_receipt(receipt)) if receipt else None
            fate = fate_of(frame.headers) if returned else BY_POLICY
            self._proxy.settle(found[0].number, found[1], returned=returned, on_settled=settled, fate=fate)

    def _acknowledge_alerts(
        self, frame: Frame, subscription: Subscription, ranges: Ranges, *, returned: bool
    ) -> None:
        receipt = self._receipt
        if "transaction" in frame.headers and not returned:
            raise ClientFault("alerts are not received in a transaction", code="alerts-only")
        alerts = self._alerts.outlets[subscription.number]
        stored = alerts.settle(
            frame.headers, ranges, lambda answer: self._check(answer, receipt), returned=returned
        )
        if not stored:
            self._give_receipt(receipt)

    # ---- transactions

    def _begin(self, frame: Frame) -> None:
        self._transactions.begin(_transaction(frame))
        self._give_receipt(self._receipt)

    def _commit(self, frame: Frame) -> None:
        receipt = self._receipt
        transaction = self._transactions.end(_transaction(frame))
        consumed = transaction.consumed
        for number, ranges in consumed:
            if number in self._subscriptions.by_number:
                self._subscriptions.by_number[number].committed(ranges)
        if not transaction.messages and not consumed:
            self._give_receipt(receipt)
            return

        def decided(answer: Answer) -> None:
            self._release_retired(transaction)
            self._check(answer, receipt)

        self._proxy.commit(Sending(transaction.messages, consumed, decided))

    def _abort(self, frame: Frame) -> None:
        transaction = self._transactions.end(_transaction(frame))
        for subscription, ranges in transaction.acknowledged:
            subscription.put_back(ranges)
        self._release_retired(transaction)
        self._give_receipt(self._receipt)

    # ---- out

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        if type(effect) is commands.Deliver or type(effect) is commands.DeliverParcel:
            if self._fetching.takes(effect):
                return self._act(lambda: None)
            self._deliver(effect, into)
            return NOTHING
        return self._act(lambda: self._tell(effect, into))

    def _tell(self, effect: AnySessionEffect, into: Parts) -> None:
        if self._proxy.tell(effect) or self._fetching.handle(effect) or self._alerts.tell(effect):
            return
        match effect:
            case commands.TellRecalled(number, tags):
                subscription = self._subscriptions.by_number.get(number)
                if subscription is not None:
                    subscription.recalled(tags)
                self._fetching.recalled(number, tags)
            case commands.EndBrowse(number):
                if not self._fetching.takes(effect):
                    self._end_browse(number, into)
            case commands.EndConsumer(number, code, sentence) if number in self._subscriptions.by_number:
                raise from_fail(Fail(0, code, sentence))
            case _:
                pass

    def _deliver(self, effect: commands.Deliver | commands.DeliverParcel, into: Parts) -> None:
        subscription = self._subscriptions.by_number.get(effect.consumer)
        if subscription is None or self._state is State.CLOSED:
            return
        destination = subscription.address
        if type(effect) is commands.Deliver and effect.destination:
            destination = effect.destination
        for first, earlier, contents in opened(effect):
            for index in range(contents.count):
                frame = subscription.encoder.encode(
                    contents,
                    index,
                    destination=destination,
                    tag=f"{subscription.number}-{first + index}",
                    earlier=earlier,
                    user=effect.user,
                )
                into.append(frame)
                if subscription.tags is not None:
                    subscription.tags[id_of(contents, index)] = first + index
            subscription.sent(first, first + contents.count - 1)

    def _deliver_fetched(self, effect: commands.Deliver | commands.EndBrowse) -> None:
        parts: Parts = []
        if isinstance(effect, commands.EndBrowse):
            self._end_browse(effect.consumer, parts)
        else:
            self._deliver(effect, parts)
        self._proxy.add(Answered(b"".join(parts)))

    def _address_of(self, number: int) -> str:
        subscription = self._subscriptions.by_number.get(number)
        return subscription.address if subscription is not None else ""

    def _end_browse(self, number: int, into: Parts) -> None:
        """There is nothing more to see: as other servers say it, by a message that is none."""
        subscription = self._subscriptions.by_number.get(number)
        if subscription is not None:
            into.append(end_of_browse(subscription, self._version))

    def written(self) -> Sequence[AnyHappening]:
        """What clients in mode auto were sent is theirs now."""
        handed = [each for each in self._subscriptions.by_number.values() if each.handed]
        for subscription in handed:
            alerts = self._alerts.outlets.get(subscription.number)
            if alerts is not None:
                alerts.written()
            else:
                self._proxy.settle(subscription.number, subscription.take_handed())
        return self._proxy.take() if handed else NOTHING

    def time_passed(self, now: int) -> Sequence[AnyHappening]:
        if not self._fetching.is_refused:
            return NOTHING
        self._proxy.now = now
        return self._act(self._fetching.ask_again)

    # ---- the end

    def _disconnect(self, _frame: Frame) -> None:
        self._goodbye = self._receipt
        self._state = State.LEAVING

    def _part(self) -> None:
        self._give_receipt(self._goodbye)

    def break_off(self, error: HeliographError) -> Broken:
        if self._state is State.CLOSED:
            return Broken(error, b"")
        self._state = State.CLOSED
        headers = {"message": error.sentence, "code": error.code, "content-type": "text/plain"}
        if self._receipt:
            headers["receipt-id"] = self._receipt
        if error.code == "version-unknown":
            headers["version"] = ",".join(reversed(VERSIONS))
        return Broken(error, encode("ERROR", headers, str(error).encode(), version=self._version))


def end_of_browse(subscription: Subscription, version: str) -> bytes:
    key = subscription.key.partition(":")[2]
    return encode(
        "MESSAGE",
        {"subscription": key, "browser": "end", "message-id": "", "destination": ""},
        version=version,
    )


def from_fail(fail: Fail) -> ClientFault:
    """What the server refused, for the client that asked for it."""
    error = from_code(fail.code, fail.sentence)
    return error if isinstance(error, ClientFault) else ClientFault(fail.sentence, code=fail.code)


def _transaction(frame: Frame) -> str:
    name = frame.headers.get("transaction")
    if not name:
        raise ProtocolFault(f"{frame.command} names a transaction", code="frame-malformed")
    return name


def _heartbeats(text: str) -> tuple[int, int]:
    """How often the client says something, and wants to hear something, in milliseconds; 0: not at all."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() and len(part) < 12 for part in parts):
        raise ProtocolFault("heart-beat is two numbers of milliseconds", code="frame-malformed")
    return int(parts[0]), int(parts[1])

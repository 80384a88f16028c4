"""The server's side of an MQTT connection as a state machine.

    greeting ──CONNECT──▶ proving ──admitted, name claimed, session opened, subscriptions found──▶ open
       └───── anything that is wrong: CONNACK or DISCONNECT with the reason ────▶ closed ◀──DISCONNECT──┘

A message of quality 1 or 2 is answered when it is stored. A client that says that its session outlives the
connection has durable subscriptions under its client id; what else is kept of it (`SessionState`) is with the
client manager. A will is sent when a client is gone without a DISCONNECT, and not before it is back or as much
time has passed as it said.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

from heliograph.frontends.alert_consumer import AlertConsumer
from heliograph.frontends.conversation import (
    NOTHING,
    Answered,
    AnyHappening,
    Broken,
    Claimed,
    Conversation,
    Greeted,
    Keepsake,
    Left,
    Parts,
    Requested,
    Responded,
)
from heliograph.frontends.fetching import Fetching
from heliograph.frontends.held_tags import Ranges
from heliograph.frontends.mqtt import packets
from heliograph.frontends.mqtt.alerts import outgoing_alert
from heliograph.frontends.mqtt.delivering import NO_TAG, Delivering
from heliograph.frontends.mqtt.messages import Outgoing, are_plain
from heliograph.frontends.mqtt.packets import (
    PINGRESP_PACKET,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V3,
    V5,
    Connect,
    PacketReader,
    acknowledgement,
)
from heliograph.frontends.mqtt.properties import Properties
from heliograph.frontends.mqtt.publishing import Publishing
from heliograph.frontends.mqtt.reading import protocol_error
from heliograph.frontends.mqtt.reasons import PACKET_UNKNOWN, connack_reason, is_lasting, reason_of
from heliograph.frontends.mqtt.retained import Retained
from heliograph.frontends.mqtt.subscribing import Subscribing
from heliograph.frontends.mqtt.subscriptions import (
    Options,
    SessionState,
    Subscription,
    parse_name,
)
from heliograph.frontends.mqtt.topics import Meaning, parse_channel, parse_filter
from heliograph.frontends.native import frames as native
from heliograph.frontends.prepared import id_of, opened
from heliograph.frontends.proxy import Answer
from heliograph.model.alert import AlertView
from heliograph.model.block import Contents
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault, from_code
from heliograph.model.limits import (
    MAX_EARLY_BYTES,
    MAX_GREETING_BYTES,
    MAX_MQTT_PACKET_BYTES,
    MAX_NAME_BYTES,
    MAX_WILL_DELAY_SECONDS,
    MQTT_TOPIC_ALIASES,
)
from heliograph.security.sasl import SCRAM
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Fail

_PUBACK_BEGIN: Final = bytes((PUBACK << 4,))
_FOREVER: Final = 0xFFFFFFFF
_FOREVER_SECONDS: Final = 10 * 366 * 24 * 3600.0
_OWN_SUBSCRIPTIONS: Final = "client.subscriptions"
_RECEIVE_MAXIMUM: Final = 0xFFFF
_WITH_WILL: Final = 0x04
_ALL: Final = [(1, 1 << 62)]


class _State(enum.Enum):
    GREETING = "greeting"
    PROVING = "proving"
    CHALLENGED = "challenged"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


class MqttConversation(Conversation):
    """One connection. `receive` is fed whatever arrives, in whatever pieces."""

    def __init__(self) -> None:
        self._state = _State.GREETING
        self._reader = PacketReader(MAX_GREETING_BYTES)
        self._packet_limit = MAX_MQTT_PACKET_BYTES
        self._publishing = Publishing(self._say)
        self._proxy = self._publishing.proxy
        self._connect: Connect | None = None
        self._method = ""  # by which the client authenticates, if not by its password
        self._proof = b""
        self._version = V3
        self._name = ""
        self._expiry = 0  # of the session, in seconds
        self._early: list[bytes] = []  # what came before it may be looked at
        self._early_bytes = 0
        self._kept_options: dict[str, Options] = {}
        self._was_kept = False
        self._unclaimed: list[str] = []  # durable subscriptions that were kept and are not found again yet
        self._is_resumed = False  # what was kept is there again
        self._asked = 0  # the question for the client's subscriptions
        self._delivering = Delivering(V3, receive_maximum=_RECEIVE_MAXIMUM, packet_limit=_FOREVER, aliases=0)
        self._fetching = Fetching(self._proxy, self._address_of, self._deliver_fetched)
        self._retained = Retained(self._proxy, self._found_retained)
        self._subscribing = Subscribing(
            self._proxy,
            say=self._say_now,
            look_for_retained=self._retained.look_for,
            consumer_of=self._consumer_of_alerts,
            alerts=self._publishing.alerts.outlets,
        )
        self._has_will = False
        self._handlers: dict[int, Callable[[int, bytes], None]] = {
            packets.PUBLISH: self._publishing.publish,
            PUBACK: self._puback,
            PUBREC: self._pubrec,
            PUBREL: self._publishing.release,
            PUBCOMP: self._pubcomp,
            packets.SUBSCRIBE: self._subscribing.subscribe,
            packets.UNSUBSCRIBE: self._unsubscribe,
            packets.PINGREQ: lambda _, body: self._say_alive(body),
            packets.DISCONNECT: self._disconnect,
        }

    # ---- what the shell asks

    @property
    def is_open(self) -> bool:
        return self._state in (_State.OPEN, _State.LEAVING)

    @property
    def is_waiting(self) -> bool:
        return self._state is _State.PROVING or self._proxy.is_full or self._publishing.alerts.is_full

    @property
    def patience_seconds(self) -> float:
        return self._connect.keep_alive * 1.5 if self._connect is not None else 0.0

    @property
    def linger_seconds(self) -> float:
        """As long as a will waits, and never longer than the session lasts."""
        if not self._has_will or self._connect is None or self._connect.will is None:
            return 0.0
        delay = self._connect.will.properties.get("will_delay", 0)
        return float(min(delay, self._expiry, MAX_WILL_DELAY_SECONDS))

    @property
    def is_busy(self) -> bool:
        """A client that comes back will ask again for what is not known to be stored."""
        return self._expiry > 0 and not all(self._publishing.received.values())

    @property
    def keepsake(self) -> Keepsake | None:
        if not self._expiry or not self._name:
            return None
        subscriptions = self._subscribing.by_filter
        # A client that is cut while it resumes has all that it had.
        options = {text: each.options for text, each in subscriptions.items()}
        session = SessionState(
            options if self._is_resumed else self._kept_options,
            {number: True for number, is_stored in self._publishing.received.items() if is_stored},
            self._delivering.under_way(),
        )
        named = [each.name for each in subscriptions.values() if each.name]
        names = named if self._is_resumed else self._unclaimed
        if self._expiry == _FOREVER:
            return Keepsake(session, _FOREVER_SECONDS, names, is_for_ever=True)
        return Keepsake(session, float(self._expiry), names)

    # ---- in

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        self._proxy.now = now
        if self._state is _State.PROVING:
            return self._act(lambda: self._keep_early(data, MAX_EARLY_BYTES))
        if self._state in (_State.CLOSED, _State.LEAVING):
            return NOTHING
        return self._act(lambda: self._feed(data))

    def _act(self, work: Callable[[], None]) -> Sequence[AnyHappening]:
        """What is to be done after some work; a fault ends the conversation, and what came before it counts."""
        fault: ClientFault | None = None
        try:
            work()
        except ClientFault as error:
            fault = error
        self._settle()
        self._flush()
        if self._state is _State.LEAVING and fault is None:
            self._leave_if_done()
        happenings = self._proxy.take()
        if fault is not None and self._state is not _State.CLOSED:
            happenings.append(self.break_off(fault))
        return happenings

    def _settle(self) -> None:
        for consumer, ranges in self._delivering.take_settled():
            self._settle_of(consumer, ranges)

    def _settle_of(self, consumer: int, ranges: Ranges) -> None:
        alerts = self._publishing.alerts.outlets.get(consumer)
        if alerts is not None:
            alerts.take(ranges)
        else:
            self._proxy.settle(consumer, ranges)

    def _flush(self) -> None:
        out = self._delivering.out
        if out:
            self._proxy.add(Answered(b"".join(out)))
            out.clear()

    def _say(self, packet: bytes) -> None:
        self._delivering.out.append(packet)

    def _say_now(self, packet: bytes) -> None:
        """Before whatever is asked for next."""
        self._say(packet)
        self._flush()

    def _feed(self, data: bytes) -> None:
        if data[:1] == _PUBACK_BEGIN and self._state is _State.OPEN and not self._reader.buffered:
            numbers = packets.read_pubacks(data)
            if numbers:
                self._delivering.acknowledged_all(numbers)
                return
        for kind, flags, body in self._reader.feed(data):
            if self._state is _State.OPEN:
                handler = self._handlers.get(kind)
                if handler is None:
                    raise protocol_error("a client connects once, and authenticates while it does")
                handler(flags, body)
            elif self._state is _State.GREETING:
                self._greet(kind, body)
            elif self._state is _State.CHALLENGED:
                if kind != packets.AUTH:
                    raise protocol_error("the challenge is to be answered first")
                self._state = _State.PROVING
                self._proxy.add(Responded(packets.read_authentication(body)))
            elif self._state is _State.PROVING:
                self._keep_early(packets.packet(kind, flags, body), MAX_GREETING_BYTES)

    def _keep_early(self, data: bytes, most: int) -> None:
        self._early.append(data)
        self._early_bytes += len(data)
        if self._early_bytes > most:
            raise protocol_error("wait for CONNACK with the rest")

    # ---- the beginning

    def _greet(self, kind: int, body: bytes) -> None:
        if kind != packets.CONNECT:
            raise ProtocolFault("the first packet is CONNECT", code="not-greeted")
        connect = self._connect = packets.read_connect(body)
        self._version = connect.version
        said = connect.properties
        self._method = said.get("authentication_method", "")
        if self._method not in ("", SCRAM):
            raise ClientFault(
                f"only {SCRAM} is known here as a way to authenticate", code="authentication-unknown"
            )
        if not connect.client_id and connect.version == V3 and not connect.clean_start:
            raise ClientFault(
                "a session that outlives its connection needs a client id", code="client-id-missing"
            )
        if len(connect.client_id.encode()) > MAX_NAME_BYTES:
            raise ClientFault(f"a client id has at most {MAX_NAME_BYTES} bytes", code="client-id-missing")
        if connect.version == V3:
            self._expiry = 0 if connect.clean_start else _FOREVER
        else:
            self._expiry = said.get("session_expiry", 0)
        self._delivering = Delivering(
            connect.version,
            receive_maximum=said.get("receive_maximum", _RECEIVE_MAXIMUM),
            packet_limit=said.get("maximum_packet_size", _FOREVER),
            aliases=said.get("topic_alias_maximum", 0),
        )
        self._publishing.version = self._subscribing.version = connect.version
        self._publishing.tells = self._subscribing.tells = said.get("request_problem", 1) == 1
        self._publishing.packet_limit = self._subscribing.packet_limit = said.get(
            "maximum_packet_size", _FOREVER
        )
        self._subscribing.receive_maximum = self._delivering.receive_maximum
        self._subscribing.is_durable = self._expiry > 0
        if connect.will is not None:
            self._publishing.check(connect.will)
        self._state = _State.PROVING
        self._proxy.add(
            Greeted(
                native.Hello(
                    client="MQTT 5" if connect.version == V5 else "MQTT 3.1.1",
                    mechanism=self._method.lower() or ("plain" if connect.user is not None else "anonymous"),
                    user="" if self._method else connect.user or "",
                    password="" if self._method else connect.password.decode(errors="replace"),
                    client_id=connect.client_id,
                    initial=said.get("authentication_data", b""),
                )
            )
        )

    def challenge(self, data: bytes) -> bytes:
        if self._state is not _State.PROVING:
            return b""
        self._state = _State.CHALLENGED
        return packets.authentication(self._method, data)

    def admit(self, welcome: native.Welcome) -> bytes:
        self._proof = welcome.proof
        self._packet_limit = min(MAX_MQTT_PACKET_BYTES, welcome.max_frame_bytes)
        return b""

    def begin(self) -> Sequence[AnyHappening]:
        assert self._connect is not None
        return [Claimed(self._connect.client_id)] if self._state is _State.PROVING else NOTHING

    def claimed(self, name: str, keepsake: Keepsake | None) -> Sequence[AnyHappening]:
        assert self._connect is not None
        self._name = name
        if keepsake is not None:
            self._unclaimed = list(keepsake.subscriptions)
        if keepsake is not None and not self._connect.clean_start:
            self._was_kept = True
            session: SessionState = keepsake.content
            self._kept_options = session.options
            self._publishing.received = session.received
            self._delivering.known = session.sent
        self._proxy.open_session()
        return self._proxy.take()

    def say(self, message: native.Control, into: Parts) -> Sequence[AnyHappening]:
        if isinstance(message, native.SessionOpened):
            return self._act(lambda: self._opened(message))
        if isinstance(message, native.Answer) and message.request == self._asked:
            return self._act(lambda: self._found_own(message.body["subscriptions"]))
        if isinstance(message, native.Failed):
            return [self.break_off(from_code(message.code, message.sentence))]
        return NOTHING

    def _opened(self, message: native.SessionOpened) -> None:
        self._proxy.opened(message)
        assert self._connect is not None
        if not self._connect.client_id:
            self._ready(session_present=False)  # nobody can have left anything under a name that is new
            self._go_on()
            return
        self._asked = self._proxy.ask(lambda _: None)
        self._proxy.answered_elsewhere(self._asked)
        self._proxy.add(Requested(native.Ask(self._asked, _OWN_SUBSCRIPTIONS)))

    def _found_own(self, names: list[str]) -> None:
        assert self._connect is not None
        found = [parsed for parsed in map(parse_name, names) if parsed is not None]
        own = list(
            {parsed[0]: parsed for parsed in found}.values()
        )  # each sub-cluster names those to patterns
        if not self._connect.clean_start:
            self._ready(session_present=bool(own) or self._was_kept)
            for text, meaning, options, name in own:
                kept = self._kept_options.get(text, options)
                self._subscribing.attach(text, meaning, kept, name, self._resumed)
            self._attach_shared()
            self._go_on()
            return
        left = [name for _, _, _, name in own]
        if not left:
            self._ready(session_present=False)
            self._go_on()

        def ended(_answer: Answer) -> None:
            left.pop()
            if not left:
                self._ready(session_present=False)
                self._go_on()

        for name in list(left):
            self._proxy.command(commands.EndSubscription(self._proxy.ask(ended), name))

    def _attach_shared(self) -> None:
        """Those that are nobody's own, and by which nothing is kept for a client that is away: to queues, and shared
        ones."""
        for text, options in self._kept_options.items():
            if text in self._subscribing.by_filter or parse_channel(text) is not None:
                continue
            meaning = parse_filter(text)
            if meaning.share or meaning.is_queue:
                self._attach_one_shared(text, meaning, options)

    def _attach_one_shared(self, text: str, meaning: Meaning, options: Options) -> None:
        def answered(answer: Answer) -> None:
            if isinstance(answer, Fail) and is_lasting(answer.code):
                self._subscribing.forget(subscription)  # the client is told, and comes again without it
            self._resumed(answer)

        subscription = self._subscribing.attach(text, meaning, options, "", answered)

    def _resumed(self, answer: Answer) -> None:
        """A client that does not subscribe again must not go on without its subscriptions: it has to come again. Its
        old connection may not be known to be lost yet, at another client manager."""
        if isinstance(answer, Fail):
            raise ClientFault(answer.sentence, code=answer.code)

    def _ready(self, *, session_present: bool) -> None:
        connect = self._connect
        assert connect is not None
        self._state = _State.OPEN
        self._reader.limit = self._packet_limit
        offer = self._offer(connect)
        self._say_now(packets.connack(self._version, 0, session_present=session_present, properties=offer))
        if connect.will is not None:
            self._has_will = True
            self._publishing.prepare_for(connect.will)

    def _go_on(self) -> None:
        """What the client had is there, and counts for what it said meanwhile."""
        self._is_resumed = True
        if self._early:
            early, self._early, self._early_bytes = b"".join(self._early), [], 0
            self._feed(early)

    def _offer(self, connect: Connect) -> Properties:
        offer: Properties = {
            "maximum_packet_size": self._packet_limit,
            "topic_alias_maximum": MQTT_TOPIC_ALIASES,
        }
        if not connect.client_id:
            offer["assigned_client_id"] = self._name
        if self._method:
            offer["authentication_method"] = self._method
            offer["authentication_data"] = self._proof
        return offer

    def _say_alive(self, body: bytes) -> None:
        if body:
            raise protocol_error("PINGREQ has no body")
        self._say(PINGRESP_PACKET)

    # ---- messages to the client

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        if type(effect) is commands.Deliver or type(effect) is commands.DeliverParcel:
            subscription = self._subscribing.by_number.get(effect.consumer)
            if subscription is not None:
                if self._fetching.takes(effect):
                    return self._act(lambda: None)
                self._deliver(subscription, effect)
                out = self._delivering.out
                into.extend(out)
                out.clear()
                return NOTHING
        return self._act(lambda: self._tell(effect))

    def _tell(self, effect: AnySessionEffect) -> None:
        if self._retained.handle(effect) or self._proxy.tell(effect) or self._fetching.handle(effect):
            return
        if self._publishing.alerts.tell(effect):
            return
        match effect:
            case commands.TellRecalled(number, tags):
                self._delivering.dropped(number, tags)
                self._fetching.recalled(number, tags)
            case commands.EndConsumer(number, code, sentence) if number in self._subscribing.by_number:
                if self._version != V5 or number in self._publishing.alerts.outlets:
                    raise ClientFault(sentence, code=code)
                self._subscribing.forget(self._subscribing.by_number[number])
            case _:
                pass

    def _deliver(self, subscription: Subscription, effect: commands.Deliver | commands.DeliverParcel) -> None:
        destination = subscription.meaning.address
        if type(effect) is commands.Deliver and effect.destination:
            destination = effect.destination
        delivering, version, now = self._delivering, self._version, self._proxy.now
        needs_identity = subscription.options.qos == 2
        for first, earlier, contents in opened(effect):
            if are_plain(contents, version) and delivering.deliver_plain(
                subscription, first, contents.bodies, destination
            ):
                continue
            for index in range(contents.count):
                delivering.deliver(
                    subscription,
                    first + index,
                    Outgoing(contents, index, version=version, now=now),
                    destination=destination,
                    identity=id_of(contents, index) if needs_identity else "",
                    earlier=earlier,
                )

    def _consumer_of_alerts(self, subscription: Subscription) -> AlertConsumer:
        number = subscription.number

        def send(tag: int, view: AlertView) -> None:
            message = outgoing_alert(view, version=self._version, now=self._proxy.now)
            self._delivering.deliver(subscription, tag, message, destination=subscription.text, identity="")

        def forget(tag: int, _view: AlertView) -> bool:
            was_sent = not self._delivering.is_waiting(number, tag)
            self._delivering.dropped(number, [(tag, tag)])
            return was_sent

        assert subscription.wishes is not None
        name = subscription.wishes.name
        address = subscription.meaning.address
        return AlertConsumer(self._proxy, number, address, name=name, send=send, forget=forget)

    def _deliver_fetched(self, effect: commands.Deliver | commands.EndBrowse) -> None:
        subscription = self._subscribing.by_number.get(effect.consumer)
        if subscription is not None and isinstance(effect, commands.Deliver):
            self._deliver(subscription, effect)

    def _address_of(self, number: int) -> str:
        subscription = self._subscribing.by_number.get(number)
        return subscription.meaning.address if subscription is not None else ""

    def _found_retained(self, subscription: Subscription, topic: str, contents: Contents, index: int) -> None:
        message = Outgoing(contents, index, version=self._version, now=self._proxy.now)
        if message.payload and self._subscribing.by_number.get(subscription.number) is subscription:
            self._delivering.deliver(
                subscription, NO_TAG, message, destination=topic, identity="", is_retained=True
            )

    def _puback(self, _flags: int, body: bytes) -> None:
        packet_id, _ = packets.read_acknowledgement(PUBACK, body, self._version)
        self._delivering.acknowledged(packet_id, 1)

    def _pubrec(self, _flags: int, body: bytes) -> None:
        packet_id, reason = packets.read_acknowledgement(PUBREC, body, self._version)
        if not self._delivering.received(packet_id, reason) and reason < 0x80:
            self._say(acknowledgement(PUBREL, packet_id, self._version, PACKET_UNKNOWN))

    def _pubcomp(self, _flags: int, body: bytes) -> None:
        packet_id, _ = packets.read_acknowledgement(PUBCOMP, body, self._version)
        self._delivering.acknowledged(packet_id, 2)

    def written(self) -> Sequence[AnyHappening]:
        """What was sent with quality 0 is the client's now."""
        handed = [each for each in self._subscribing.by_number.values() if each.handed]
        for subscription in handed:
            self._settle_of(subscription.number, subscription.take_handed())
        return self._proxy.take() if handed else NOTHING

    def time_passed(self, now: int) -> Sequence[AnyHappening]:
        if not self._fetching.is_refused:
            return NOTHING
        self._proxy.now = now
        return self._act(self._fetching.ask_again)

    def _unsubscribe(self, flags: int, body: bytes) -> None:
        for subscription in self._subscribing.unsubscribe(flags, body):
            if subscription.wishes is not None:
                self._delivering.dropped(subscription.number, _ALL)  # nobody asks what became of them
            else:
                self._delivering.unsubscribed(subscription.number)

    # ---- the end

    def _disconnect(self, _flags: int, body: bytes) -> None:
        reason, said = packets.read_disconnect(body, self._version)
        expiry = said.get("session_expiry")
        if expiry is not None:
            if expiry and not self._expiry:
                raise protocol_error("a session that ends with its connection cannot be prolonged")
            self._expiry = expiry
        if reason != _WITH_WILL:
            self._has_will = False
        self._state = _State.LEAVING
        if not self._expiry:
            self._subscribing.end_durable()

    def _leave_if_done(self) -> None:
        """A client that leaves is let go when all that it sent is stored."""
        self._proxy.flush()
        if self._proxy.is_idle:
            self._state = _State.CLOSED
            self._proxy.add(Left("closed"))

    def lost(self) -> Sequence[AnyHappening]:
        self._state = _State.CLOSED
        will = self._connect.will if self._connect is not None else None
        if not self._has_will or will is None:
            return NOTHING
        self._has_will = False
        self._publishing.carry_out(will)
        return self._proxy.take()

    def break_off(self, error: HeliographError) -> Broken:
        was, self._state = self._state, _State.CLOSED
        if was is _State.CLOSED or (
            was is _State.GREETING and self._connect is None and error.code != "version-unknown"
        ):
            return Broken(error, b"")
        if was in (_State.GREETING, _State.PROVING, _State.CHALLENGED):
            version = self._version
            return Broken(error, packets.connack(version, connack_reason(error, version)))
        farewell = packets.disconnect(reason_of(error), error.sentence) if self._version == V5 else b""
        return Broken(error, farewell)

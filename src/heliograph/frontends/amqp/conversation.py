"""The server's side of an AMQP 1.0 connection as a state machine.

    greeting ──SASL──▶ proving ──admitted──▶ beginning ──open, session opened──▶ open ──close──▶ leaving ──all is
    stored──▶ closed

Proton (`engine.py`) turns bytes into events of connection, sessions, links and deliveries, and ours into bytes; what
a link is for is decided in `attaching.py`, and what is said on it in `outlets.py` and `inlets.py`.

What is wrong with a message is said with its outcome, what is wrong with a link ends the link, and only what is wrong
with the protocol ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from heliograph.frontends.alert_desk import AlertDesk
from heliograph.frontends.amqp import sasl, values
from heliograph.frontends.amqp.alerts import AlertOutlet, correlate
from heliograph.frontends.amqp.attaching import Attaching, Ending
from heliograph.frontends.amqp.conditions import condition_of, error_of
from heliograph.frontends.amqp.engine import ACCEPTED, EVENTS, Engine, Link
from heliograph.frontends.amqp.inlets import Coordinator, Inlet, Transactions
from heliograph.frontends.amqp.outlets import Outlet
from heliograph.frontends.amqp.transfers import Download, Transfers
from heliograph.frontends.conversation import (
    NOTHING,
    Answered,
    AnyHappening,
    Broken,
    Greeted,
    Named,
    Parts,
    Requested,
    Responded,
    Wondered,
)
from heliograph.frontends.held_transactions import OpenTransactions
from heliograph.frontends.native import frames as native
from heliograph.frontends.prepared import opened
from heliograph.frontends.proxied import ProxiedConversation, State
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault, from_code
from heliograph.model.large import decode_reference
from heliograph.model.limits import (
    AMQP_IDLE_SECONDS,
    AMQP_MIN_IDLE_SECONDS,
    AMQP_UNFINISHED_BYTES,
    MAX_AMQP_CONTENT_BYTES,
    MAX_AMQP_LINKS,
    MAX_NAME_BYTES,
)
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Fail

_OWN_SUBSCRIPTIONS: Final = "client.subscriptions"
_SOLE: Final = "sole-connection-for-container"
_CAPABILITIES: Final = values.array(
    [values.variable("k", name) for name in ("ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", _SOLE)]
)

# A connection that breaks is made again by every client; one that is closed in due form is over for some.
_COMES_AGAIN: Final = ("server-stopping",)


class AmqpConversation(ProxiedConversation):
    """One connection. `receive` is fed whatever arrives, in whatever pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._reader = sasl.SaslReader()
        self._has_sasl = False
        self._is_chosen = False  # a mechanism is
        self._engine: Engine | None = None
        self._transactions: Transactions = OpenTransactions()
        self._attaching: Attaching | None = None
        self._alerts: AlertDesk[AlertOutlet] | None = None
        self._transfers = Transfers(self._proxy)
        self._endings: dict[int, Ending] = {}
        self._is_opening = False
        self._idle_seconds = 0.0
        self._server = ""
        self._handlers: dict[int, Callable[[Any], None]] = {}

    # ---- what the shell asks

    @property
    def is_waiting(self) -> bool:
        return super().is_waiting or self._transfers.is_full or self._transfers.is_finishing

    @property
    def _is_deaf(self) -> bool:
        return self._state is State.PROVING or self._is_opening

    @property
    def patience_seconds(self) -> float:
        return AMQP_IDLE_SECONDS

    @property
    def pulse_seconds(self) -> float:
        return self._idle_seconds / 2

    @property
    def pulse(self) -> bytes:
        """An empty frame."""
        return b"\x00\x00\x00\x08\x02\x00\x00\x00"

    # ---- in

    def _said(self, into: Parts | None) -> list[AnyHappening]:
        """What Proton has to say comes first: whatever is done next may make it say more, which must not overtake
        it."""
        said = b"" if self._engine is None or self._engine.is_over else self._engine.pull()
        if not said:
            return []
        if into is None:
            return [Answered(said)]
        into.append(said)
        return []

    def _feed(self, data: bytes) -> None:
        if self._state is State.GREETING and self._early:
            data, self._early = self._early + data, b""
        if self._engine is not None:
            self._push(data)
            return
        self._reader.feed(data)
        self._prove()

    # ---- the beginning

    def _prove(self) -> None:
        """What comes before Proton is needed."""
        while self._state is State.GREETING or self._state is State.BEGINNING:
            if self._engine is not None:
                return
            if self._state is State.GREETING and self._has_sasl:
                said = self._reader.frame()
                if said is None:
                    break
                self._mechanism(said)
                continue
            header = self._reader.header()
            if header is None:
                break
            self._begun_with(header)
        if self._state is State.GREETING:
            self._reader.check()

    def _begun_with(self, header: bytes) -> None:
        if self._state is State.BEGINNING:
            if header != sasl.HEADER:
                raise ProtocolFault("you have proved who you are already", code="greeted-twice")
            self._start()
        elif header == sasl.SASL_HEADER:
            self._has_sasl = True
            self._proxy.add(Wondered())
        else:
            self._state = State.PROVING
            self._early = self._reader.rest
            self._proxy.add(Greeted(native.Hello(client="AMQP 1.0")))

    def _mechanism(self, said: sasl.Init | sasl.Response) -> None:
        if isinstance(said, sasl.Init) is self._is_chosen:
            raise ProtocolFault("first sasl-init, then sasl-response", code="not-greeted")
        self._state = State.PROVING
        self._early = self._reader.rest
        if isinstance(said, sasl.Response):
            self._proxy.add(Responded(said.response))
            return
        self._is_chosen = True
        mechanism = said.mechanism.lower()
        initial = b"" if mechanism == "anonymous" else said.response
        self._proxy.add(Greeted(native.Hello(client="AMQP 1.0", mechanism=mechanism, initial=initial)))

    def offer(self, mechanisms: Sequence[str]) -> bytes:
        return sasl.SASL_HEADER + sasl.mechanisms(list(mechanisms))

    def challenge(self, data: bytes) -> bytes:
        if self._state is not State.PROVING:
            return b""
        self._state = State.GREETING
        return sasl.challenge(data)

    def admit(self, welcome: native.Welcome) -> bytes:
        self._server = welcome.server.replace(" ", "/")
        return sasl.outcome(sasl.OK, welcome.proof) if self._has_sasl else b""

    def begin(self) -> Sequence[AnyHappening]:
        if self._state is not State.PROVING:
            return NOTHING
        self._state = State.BEGINNING
        early, self._early = self._early, b""
        if not self._has_sasl:
            return self._act(lambda: self._start(early))
        return self._act(lambda: self._feed(early))

    def _start(self, early: bytes = b"") -> None:
        """Proton takes over, from the header on."""
        self._engine = engine = Engine(self._server)
        self._alerts = AlertDesk(
            self._proxy,
            on_stored=lambda receipts, _: self._stored(receipts),
            on_refused=self._refused,
            correlate=correlate,
        )
        self._attaching = Attaching(
            engine, self._proxy, self._transactions, self._transfers, self._alerts, self._find
        )
        self._handlers = {
            EVENTS.PN_CONNECTION_REMOTE_OPEN: self._connection_opened,
            EVENTS.PN_CONNECTION_REMOTE_CLOSE: self._connection_closed,
            EVENTS.PN_SESSION_REMOTE_OPEN: engine.open_session,
            EVENTS.PN_SESSION_REMOTE_CLOSE: self._session_closed,
            EVENTS.PN_LINK_REMOTE_OPEN: self._link_attached,
            EVENTS.PN_LINK_REMOTE_CLOSE: self._link_closed,
            EVENTS.PN_LINK_REMOTE_DETACH: self._link_detached,
            EVENTS.PN_LINK_FLOW: self._flow,
            EVENTS.PN_DELIVERY: self._delivery,
            EVENTS.PN_TRANSPORT_ERROR: self._failed,
        }
        self._push(sasl.HEADER + (early or self._reader.rest))

    def _push(self, data: bytes) -> None:
        assert self._engine is not None
        if not self._engine.push(data) and self._engine.fault:
            raise ProtocolFault(self._engine.fault, code="frame-malformed")
        self._happen()

    # ---- events

    def _happen(self) -> None:
        """All that Proton has to tell, as far as it may be looked at now."""
        engine, handlers = self._engine, self._handlers
        assert engine is not None
        while not engine.is_over and not self._is_opening and not self._transfers.is_finishing:
            kind, event = engine.next_event()
            if event is None:
                break
            try:
                handler = handlers.get(kind)
                if handler is not None:
                    handler(event)
            finally:
                engine.pop_event()
        self._round_off()

    def _round_off(self) -> None:
        """What was said in one go is settled in one go, also by who leaves with it; and who sent may send more."""
        if not self.is_open or self._attaching is None:
            return
        for outlet in self._outlets():
            outlet.flush()
        for inlet in self._attaching.inlets if self._state is State.OPEN else ():
            if inlet.link.is_there:
                inlet.replenish()

    def _outlets(self) -> list[Outlet | AlertOutlet]:
        if self._attaching is None or self._alerts is None:
            return []
        return [*self._attaching.outlets.values(), *self._alerts.outlets.values()]

    def _connection_opened(self, _event: Any) -> None:
        engine = self._engine
        assert engine is not None
        if self._state is not State.BEGINNING:
            return
        name = engine.client_id
        if not name or len(name.encode()) > MAX_NAME_BYTES:
            raise ClientFault(f"a container id has 1 to {MAX_NAME_BYTES} bytes", code="client-id-missing")
        self._idle_seconds = engine.idle_seconds
        if 0 < self._idle_seconds < AMQP_MIN_IDLE_SECONDS:
            sentence = f"an idle time-out is {AMQP_MIN_IDLE_SECONDS:g} s or longer"
            raise ClientFault(sentence, code="header-invalid")
        self._is_opening = True
        self._proxy.add(Named(name, _SOLE in engine.wanted_capabilities))
        self._proxy.open_session()

    def say(self, message: native.Control, into: Parts) -> Sequence[AnyHappening]:
        if isinstance(message, native.SessionOpened) and self._is_opening:
            self._proxy.opened(message)
            return self._act(self._open, into)
        if isinstance(message, native.Answer) and message.request in self._endings:
            names = message.body.get("subscriptions", [])
            return self._act(lambda: self._found(message.request, names), into)
        if isinstance(message, native.Failed):
            if message.request in self._endings:
                return self._act(lambda: self._found(message.request, []), into)
            return [self.break_off(from_code(message.code, message.sentence))]
        return NOTHING

    def _open(self) -> None:
        engine = self._engine
        assert engine is not None
        self._state, self._is_opening = State.OPEN, False
        product, _, version = self._server.partition("/")
        texts = [values.variable("k", "product"), values.variable("s", product)]
        texts += [values.variable("k", "version"), values.variable("s", version)]
        engine.open(_CAPABILITIES, values.compound(0xC1, len(texts), b"".join(texts)))
        self._happen()
        early, self._early = self._early, b""
        if early:
            self._push(early)

    def _failed(self, _event: Any) -> None:
        assert self._engine is not None
        raise ProtocolFault(self._engine.fault or "the peer broke the protocol", code="frame-malformed")

    # ---- links

    def _link_attached(self, event: Any) -> None:
        engine, attaching = self._engine, self._attaching
        assert engine is not None
        assert attaching is not None
        link, is_new = engine.link_of(event)
        if engine.link_count > MAX_AMQP_LINKS:
            raise ClientFault(f"a connection has at most {MAX_AMQP_LINKS} links", code="too-many-links")
        if is_new:
            self._on_link(link, lambda: attaching.attach(link))

    def _on_link(self, link: Link, work: Callable[[], None]) -> None:
        """What is wrong there ends the link."""
        assert self._attaching is not None
        try:
            work()
        except ClientFault as fault:
            self._attaching.refuse(link, fault)

    def _link_closed(self, event: Any) -> None:
        self._detached(event, closed=True)

    def _link_detached(self, event: Any) -> None:
        self._detached(event, closed=False)

    def _detached(self, event: Any, *, closed: bool) -> None:
        assert self._engine is not None
        assert self._attaching is not None
        link, is_new = self._engine.link_of(event)
        if is_new:
            self._engine.end(link, closed=closed)
        else:
            self._attaching.detach(link, closed=closed)

    def _session_closed(self, event: Any) -> None:
        assert self._engine is not None
        assert self._attaching is not None
        for link in self._engine.close_session(event):
            self._attaching.vanish(link)

    def _flow(self, event: Any) -> None:
        assert self._engine is not None
        link, is_new = self._engine.link_of(event)
        if not is_new and isinstance(link.role, Outlet | AlertOutlet):
            link.role.balance()

    def _delivery(self, event: Any) -> None:
        engine = self._engine
        assert engine is not None
        delivery, link = engine.delivery_of(event)
        if link is None:
            return
        role = link.role
        if isinstance(role, Outlet):
            self._on_link(link, lambda: self._disposed(role, delivery))
        elif isinstance(role, AlertOutlet):
            self._on_link(link, lambda: role.disposed(delivery))
        elif isinstance(role, Inlet | Coordinator) and role.is_open and engine.is_current(link, delivery):
            self._on_link(link, lambda: self._received(role, delivery))
        elif not link.is_sender and engine.is_current(link, delivery):
            engine.discard(link, delivery)  # nobody asked for it: it must not pile up
        elif not link.is_sender and engine.is_settled(delivery) and not engine.is_current(link, delivery):
            engine.settle(delivery)  # of mode second: the client has our word

    def _received(self, inlet: Inlet | Coordinator, delivery: Any) -> None:
        inlet.receive(delivery)
        if inlet.size and self._attaching is not None:
            unfinished = sum(each.size for each in self._attaching.inlets)
            if unfinished > AMQP_UNFINISHED_BYTES:
                sentence = f"messages that are not complete take at most {AMQP_UNFINISHED_BYTES} bytes"
                raise ClientFault(sentence, code="message-too-large")

    def _disposed(self, outlet: Outlet, delivery: Any) -> None:
        found = outlet.disposed(delivery)
        if found is not None:
            name, tag = found
            self._transactions.named(name).acknowledged.append((outlet, [(tag, tag)]))

    def _find(self, ending: Ending) -> None:
        """Whether a client has a subscription is asked of the server."""
        request = self._proxy.ask(lambda _: None)
        self._proxy.answered_elsewhere(request)
        self._endings[request] = ending
        if ending.common:
            self._found(request, [ending.name])
        else:
            self._proxy.add(Requested(native.Ask(request, _OWN_SUBSCRIPTIONS)))

    def _found(self, request: int, names: list[str]) -> None:
        assert self._attaching is not None
        ending = self._endings.pop(request)
        self._attaching.found(ending, is_there=ending.name in names)

    # ---- messages of the client's

    def _stored(self, receipts: list[Any]) -> None:
        engine = self._engine
        if engine is None or engine.is_over:
            return
        for link, delivery in receipts:
            if link.is_there:
                engine.answer(delivery, ACCEPTED, settle=not link.second)
                self._answered(link)

    def _refused(self, receipts: list[Any], why: Fail) -> None:
        engine, error = self._engine, error_of(why)
        if engine is None or engine.is_over:
            return
        for link, delivery in receipts:
            if link.is_there:
                engine.reject(delivery, condition_of(error), str(error))
                self._answered(link)

    def _answered(self, link: Link) -> None:
        link.unanswered -= 1
        if link.leaves_closed is not None and not link.unanswered:
            assert self._engine is not None
            self._engine.end(link, closed=link.leaves_closed)

    # ---- out

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        if self._engine is None or self._engine.is_over or self._state is State.CLOSED:
            return NOTHING
        if type(effect) is commands.Deliver or type(effect) is commands.DeliverParcel:
            self._deliver(effect)
            if said := self._engine.pull():
                into.append(said)
            return self._proxy.take()
        was_finishing = self._transfers.is_finishing
        return self._act(lambda: self._tell(effect, was_finishing=was_finishing), into)

    def _tell(self, effect: AnySessionEffect, *, was_finishing: bool) -> None:
        if self._proxy.tell(effect):
            if isinstance(effect, commands.TellBlocked) and not effect.reason:
                self._round_off()
        else:
            self._tell_rarer(effect)
        if was_finishing and not self._transfers.is_finishing:
            self._happen()  # what came behind a large message

    def _tell_rarer(self, effect: AnySessionEffect) -> None:
        assert self._attaching is not None
        assert self._alerts is not None
        if self._transfers.handle(effect) or self._alerts.tell(effect):
            return
        outlets = self._attaching.outlets
        match effect:
            case commands.TellRecalled(number, tags):
                if number in outlets:
                    outlets[number].recalled(tags)
            case commands.EndBrowse(number):
                if number in outlets:
                    outlets[number].browsed()
            case commands.EndConsumer(number, code, sentence):
                outlet = outlets.pop(number, None) or self._alerts.outlets.pop(number, None)
                if outlet is not None:
                    outlet.is_open = False
                    self._proxy.forget(number)
                    self._attaching.refuse(outlet.link, from_code(code, sentence))
            case _:
                pass

    def _deliver(self, effect: commands.Deliver | commands.DeliverParcel) -> None:
        assert self._attaching is not None
        outlet = self._attaching.outlets.get(effect.consumer)
        if outlet is None or not outlet.is_open:
            return
        destination = outlet.address
        if type(effect) is commands.Deliver and effect.destination:
            destination = effect.destination
        encode, give, now = outlet.encoder.encode, outlet.give, self._proxy.now
        for first, earlier, contents in opened(effect):
            if contents.kind == BodyKind.LARGE:
                self._deliver_large(outlet, first, contents, destination, earlier, effect.user)
                continue
            for index in range(contents.count):
                data = encode(
                    contents, index, destination=destination, earlier=earlier, user=effect.user, now=now
                )
                give(first + index, data)

    def _deliver_large(
        self, outlet: Outlet, tag: int, contents: Contents, destination: str, earlier: int, user: str
    ) -> None:
        """What is more than AMQP can say, or cannot be read, goes back, and in the end to the dead."""
        try:
            reference = decode_reference(contents.bodies[0])
            if reference.size > MAX_AMQP_CONTENT_BYTES:
                sentence = f"its {reference.size} bytes are too many for this protocol: use another"
                raise ClientFault(sentence, code="message-too-large")
        except ClientFault as fault:
            self._proxy.settle(outlet.number, [(tag, tag)], returned=True, error=fault.sentence)
            return
        before, after = outlet.encoder.enclose(
            contents,
            size=reference.size,
            destination=destination,
            earlier=earlier,
            user=user,
            now=self._proxy.now,
        )
        outlet.give(tag, Download(reference, destination, before, after))

    def written(self) -> Sequence[AnyHappening]:
        """What is settled by us is the client's now."""
        if self._attaching is None or self._engine is None or self._engine.is_over:
            return NOTHING
        for outlet in self._outlets():
            outlet.written()
        return self._proxy.take()

    def time_passed(self, now: int) -> Sequence[AnyHappening]:
        if not self._transfers.has_refused or self._engine is None or self._engine.is_over:
            return NOTHING
        self._proxy.now = now
        return self._act(self._transfers.ask_again)

    # ---- the end

    def _connection_closed(self, _event: Any) -> None:
        if self._state is State.OPEN:
            self._state = State.LEAVING

    def _part(self) -> None:
        assert self._engine is not None
        self._engine.close()

    def lost(self) -> Sequence[AnyHappening]:
        if self._engine is not None:
            self._engine.release()
        return super().lost()

    def break_off(self, error: HeliographError) -> Broken:
        if self._state is State.CLOSED:
            return Broken(error, b"")
        state, self._state = self._state, State.CLOSED
        if self._engine is None or self._engine.is_over:
            if self._has_sasl and state in (State.GREETING, State.PROVING):
                is_who = error.code == "not-authenticated"
                return Broken(error, sasl.outcome(sasl.WRONG if is_who else sasl.BROKEN))
            if isinstance(error, ProtocolFault):
                return Broken(error, sasl.SASL_HEADER)
            return Broken(error, sasl.goodbye(condition_of(error), str(error)))
        if error.code in _COMES_AGAIN:
            return Broken(error, self._engine.pull())
        info = b""
        if error.code == "client-id-in-use":
            pair = values.variable("k", "invalid-field"), values.variable("k", "container-id")
            info = values.compound(0xC1, 2, b"".join(pair))
        if state is State.BEGINNING:
            failed = values.variable("k", "amqp:connection-establishment-failed") + b"\x41"
            self._engine.open(b"", values.compound(0xC1, 2, failed))
        self._engine.close(condition_of(error), str(error), info)
        return Broken(error, self._engine.pull())

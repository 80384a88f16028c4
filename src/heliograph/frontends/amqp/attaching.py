"""What becomes of a link that a client attaches, as AMQP and its mapping for JMS have it.

    to receive   from an address, or a channel of alerts; from a node that is made for it (dynamic); or without any
                 source, to learn of a subscription by its name, and to end it by closing the link
    to send      to an address; to a node that is made for it; to none (each message names its own); to the
                 coordinator

A subscription is durable if its source never expires or keeps its state, shared if the link says so with a
capability, and the same for all clients with another (`global`). Its name is the link's, up to a `|`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from heliograph.frontends.alert_desk import AlertDesk
from heliograph.frontends.alert_messages import is_channel
from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.addresses import address_of, kind_wanted
from heliograph.frontends.amqp.alerts import AlertOutlet, wishes_of
from heliograph.frontends.amqp.conditions import condition_of, error_of
from heliograph.frontends.amqp.engine import COORDINATOR, Engine, Link, Terminus
from heliograph.frontends.amqp.inlets import Coordinator, Inlet, Transactions
from heliograph.frontends.amqp.kept import ID
from heliograph.frontends.amqp.outlets import Outlet
from heliograph.frontends.amqp.transfers import Transfers
from heliograph.frontends.amqp.values import Described, Symbol
from heliograph.frontends.held_transactions import Transaction
from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.destination import Kind
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.model.limits import MAX_LARGE_BYTES
from heliograph.model.patterns import parse_pattern
from heliograph.sessions import commands
from heliograph.sessions.commands import Fail

_SELECTOR: Final = (0x0000468C00000004, "apache.org:selector-filter:string")
_NO_LOCAL: Final = (0x0000468C00000003, "apache.org:no-local-filter:list")
_BEHIND_NAME: Final = "|"
_UNKNOWN: Final = -1  # what a client saw
_MESSAGE_ID: Final = re.compile(r"\bJMSMessageID\b")


class Ending:
    """A link that a client attached to learn of a durable subscription, and closes to end it."""

    def __init__(self, link: Link, name: str, *, common: bool) -> None:
        self.link = link
        self.name = name
        self.common = common
        self.is_open = False


class Attaching:
    """The links of one connection."""

    def __init__(
        self,
        engine: Engine,
        proxy: Proxy,
        transactions: Transactions,
        transfers: Transfers,
        alerts: AlertDesk[AlertOutlet],
        find: Callable[[Ending], None],
    ) -> None:
        """`find`: ask whether there is a subscription; `found` is called then."""
        self._engine = engine
        self._proxy = proxy
        self._transactions = transactions
        self._transfers = transfers
        self._alerts = alerts
        self._find = find
        self.outlets: dict[int, Outlet] = {}
        self.inlets: dict[Inlet | Coordinator, None] = {}

    def attach(self, link: Link) -> None:
        """Raises ClientFault, with which the link is refused."""
        if link.is_sender:
            self._attach_outlet(link)
        else:
            self._attach_inlet(link)

    # ---- to receive

    def _attach_outlet(self, link: Link) -> None:
        source = link.source
        name = link.name.partition(_BEHIND_NAME)[0]
        if source.address is None and not source.dynamic:
            link.role = Ending(
                link, name, common="global" in link.target.capabilities or link.name.endswith("|global")
            )
            self._find(link.role)
            return
        kind = kind_wanted(source.capabilities)
        if not source.dynamic and is_channel(address := address_of(source.address or "", kind)):
            self._subscribe_to_alerts(link, address, name)
            return
        outlet = Outlet(
            self._engine,
            self._proxy,
            self._transfers,
            link,
            self._proxy.new_consumer(),
            jms=bool(source.capabilities),
        )
        link.role = self.outlets[outlet.number] = outlet
        if source.dynamic:
            self._make(kind or Kind.QUEUE, link, outlet, lambda: self._subscribe(outlet, name))
            return
        outlet.address = address_of(source.address or "", kind)
        self._subscribe(outlet, name)

    def _make(self, kind: Kind, link: Link, role: Outlet | Inlet, then: Callable[[], None]) -> None:
        """A node that ends with the link."""

        def made(answer: Answer) -> None:
            if isinstance(answer, Fail):
                self._refuse(link, error_of(answer))
                return
            assert isinstance(answer, commands.Tell)
            role.temporary = role.address = answer.body["destination"]
            if link.is_there:
                then()
            else:
                self._unmake(role.temporary)

        self._proxy.command(commands.MakeTemporary(self._proxy.ask(made), kind))

    def _unmake(self, address: str) -> None:
        if address:
            self._proxy.command(commands.DeleteTemporary(self._proxy.ask(lambda _: None), address))

    def _subscribe(self, outlet: Outlet, name: str) -> None:
        link, source = outlet.link, outlet.link.source
        is_topic = outlet.address.startswith(f"{Kind.TOPIC}:")
        is_shared = is_topic and "shared" in source.capabilities
        outlet.is_durable = is_topic and (source.durable > 0 or source.never_expires)
        outlet.is_common = is_shared and "global" in source.capabilities
        outlet.subscription = name if outlet.is_durable or is_shared else ""
        outlet.is_browser = source.copies and not is_topic
        outlet.is_pattern = parse_pattern(outlet.address) is not None
        selector, no_local, held = filters_of(source)
        if source.capabilities:
            selector = by_own_id(selector)

        def answered(answer: Answer) -> None:
            if isinstance(answer, Fail):
                self.outlets.pop(outlet.number, None)
                self._refuse(link, error_of(answer))
            elif not link.is_there or link.role is not outlet:
                self._let_go(outlet, closed=False)
            else:
                outlet.is_open = True
                self._engine.accept(link, address=outlet.temporary, filters=held, keeps=outlet.is_durable)
                outlet.balance()

        self._proxy.command(
            commands.Subscribe(
                self._proxy.ask(answered),
                outlet.number,
                outlet.address,
                0,
                selector,
                outlet.subscription,
                outlet.is_durable,
                is_shared,
                no_local,
                outlet.is_browser,
                prompt=False,
                common=outlet.is_common,
            )
        )

    def _subscribe_to_alerts(self, link: Link, address: str, name: str) -> None:
        source = link.source
        if source.copies and kind_wanted(source.capabilities) is not Kind.TOPIC:  # JMS has topics copied
            raise ClientFault("a channel of alerts is not browsed", code="alerts-only")
        selector, _, held = filters_of(source)
        topics, acknowledgements = wishes_of(selector)
        outlet = AlertOutlet(self._engine, self._proxy, link, address, jms=bool(source.capabilities))
        outlet.name = name if source.durable > 0 or source.never_expires else ""
        link.role = self._alerts.outlets[outlet.number] = outlet

        def answered(answer: Answer) -> None:
            if isinstance(answer, Fail):
                self._alerts.outlets.pop(outlet.number, None)
                self._refuse(link, error_of(answer))
            elif not link.is_there or link.role is not outlet:
                self._alerts.outlets.pop(outlet.number, None)
                outlet.leave(closed=False)
            else:
                outlet.is_open = True
                self._engine.accept(link, filters=held, keeps=bool(outlet.name))
                outlet.balance()

        outlet.attach(topics, acknowledgements, answered)

    def found(self, ending: Ending, *, is_there: bool) -> None:
        """Whether there is such a subscription."""
        link = ending.link
        if not link.is_there:
            return
        if is_there:
            ending.is_open = True
            self._engine.remake_source(link, f"{Kind.TOPIC}:{ending.name}")
        else:
            sentence = f"there is no durable subscription {ending.name[:80]!r} of this client"
            self._refuse(link, ClientFault(sentence, code="subscription-unknown"))

    # ---- to send

    def _attach_inlet(self, link: Link) -> None:
        target = link.target
        if target.kind == COORDINATOR:
            coordinator = Coordinator(self._engine, self._proxy, link, self._transactions)
            coordinator.on_ended = self._transaction_ended
            link.role = coordinator
            self.inlets[coordinator] = None
            self._engine.accept(link)
            coordinator.replenish()
            return
        kind = kind_wanted(target.capabilities)
        inlet = Inlet(
            self._engine, self._proxy, self._transfers, link, self._transactions, self._alerts, kind=kind
        )
        link.role = inlet
        self.inlets[inlet] = None
        if target.dynamic:
            self._make(kind or Kind.QUEUE, link, inlet, lambda: self._opened(inlet, None))
        elif target.address is not None:
            inlet.address = address_of(target.address, kind)
            if is_channel(inlet.address):
                self._opened(inlet, None)
                return
            self._proxy.open_lane(inlet.address, lambda fail: self._opened(inlet, fail))
        else:
            self._opened(inlet, None)

    def _opened(self, inlet: Inlet, fail: Fail | None) -> None:
        link = inlet.link
        if fail is not None:
            self.inlets.pop(inlet, None)
            self._refuse(link, error_of(fail))
        elif link.is_there:
            inlet.is_open = True
            self._engine.accept(link, address=inlet.temporary, limit=MAX_LARGE_BYTES)
            inlet.replenish()

    # ---- the end

    def refuse(self, link: Link, error: HeliographError) -> None:
        self._drop(link.role, closed=False)
        self._refuse(link, error)

    def _refuse(self, link: Link, error: HeliographError) -> None:
        link.role = None
        self._engine.refuse(link, condition_of(error), str(error))

    def detach(self, link: Link, *, closed: bool) -> None:
        """The client is through with a link; `closed`: for good."""
        role, link.role = link.role, None
        self._drop(role, closed=closed)
        if link.unanswered:
            link.leaves_closed = closed
        else:
            self._engine.end(link, closed=closed)

    def vanish(self, link: Link) -> None:
        """A link went with its session."""
        role, link.role = link.role, None
        self._drop(role, closed=False, seen=_UNKNOWN)

    def _drop(self, role: Any, *, closed: bool, seen: int = 0) -> None:
        if isinstance(role, Outlet):
            if role.is_open:
                self._let_go(role, closed=closed, seen=0 if role.says_what_failed else seen)
        elif isinstance(role, AlertOutlet):
            if role.is_open:
                self._alerts.outlets.pop(role.number, None)
                role.leave(closed=closed)
        elif isinstance(role, Ending):
            if role.is_open and closed:
                request = self._proxy.ask(lambda _: None)
                self._proxy.command(commands.EndSubscription(request, role.name, role.common))
        elif role is not None:
            self.inlets.pop(role, None)
            role.left()
            self._unmake(role.temporary)

    def _let_go(self, outlet: Outlet, *, closed: bool, seen: int = 0) -> None:
        """End a consumer, unless a transaction has something of it.

        What was sent ahead and not settled goes back as if nobody had seen it (`seen`) when a client closes a link:
        of everything else it has said what becomes of it, and consumers that come and go must not cost messages their
        lives. Who closes a session, or the connection, may have seen any of it.
        """
        keeps = any(outlet is other for other in self._transactions.holders())
        outlet.left(keeps=keeps)
        if keeps:
            request = self._proxy.ask(lambda _: None)
            self._proxy.command(commands.Retire(request, outlet.number, 1 << 62))
        else:
            self._unsubscribe(outlet, closed=closed, seen=seen)

    def _unsubscribe(self, outlet: Outlet, *, closed: bool, seen: int = 0) -> None:
        if self.outlets.pop(outlet.number, None) is None:
            return

        def gone(_answer: Answer) -> None:
            self._proxy.forget(outlet.number)
            if closed and outlet.is_durable:
                request = self._proxy.ask(lambda _: None)
                name = outlet.subscription
                self._proxy.command(commands.EndSubscription(request, name, outlet.is_common))
            self._unmake(outlet.temporary)

        self._proxy.command(commands.Unsubscribe(self._proxy.ask(gone), outlet.number, seen))

    def _transaction_ended(self, transaction: Transaction[Outlet]) -> None:
        """Consumers whose links are gone and that only waited for this end too."""
        for outlet, _ in transaction.acknowledged:
            is_over = not outlet.is_open and outlet.number in self.outlets
            if is_over and not any(outlet is other for other in self._transactions.holders()):
                self._unsubscribe(outlet, closed=False)


def by_own_id(selector: str) -> str:
    """A JMS client knows a message by the id that its sender gave it, which is kept in a property."""
    parts = selector.split("'")
    parts[::2] = [_MESSAGE_ID.sub(ID, part) for part in parts[::2]]
    return "'".join(parts)


def filters_of(source: Terminus) -> tuple[str, bool, bytes]:
    """Selector, no local, and those filters that hold, as they were sent. Raises ClientFault."""
    selector, no_local = "", False
    parts: list[bytes] = []
    for name, value in source.filters.items() if isinstance(source.filters, dict) else ():
        if not isinstance(value, Described) or not isinstance(name, str):
            continue
        if value.descriptor in _SELECTOR:
            if not isinstance(value.value, str):
                raise ClientFault("a selector is a text", code="selector-invalid")
            selector = value.value
        elif value.descriptor in _NO_LOCAL:
            no_local = True
        else:
            continue  # whoever asked sees from the answer that it does not hold
        parts += (values.variable("k", name), _described(value))
    held = values.compound(0xC1, len(parts), b"".join(parts)) if parts else b""
    return selector, no_local, held


def _described(value: Described) -> bytes:
    descriptor = value.descriptor
    if isinstance(descriptor, str):
        return b"\x00" + values.write(Symbol(descriptor)) + values.write(value.value)
    return b"\x00\x80" + int(descriptor).to_bytes(8, "big") + values.write(value.value)

"""Proton's engine: the one room that touches its objects.

Proton is written in C, and an object that is used after it is gone ends the process. So one `Engine` owns a
transport, a connection and the events between them; sessions, links and deliveries are only reached through it; and
the rules are few:

- what belongs to a link is not touched after the link was freed, nor anything after `release`;
- an event's object is used while the event is at the head of the collector and not later;
- all is given back in one place, once, in one order: transport, collector, connection.

Proton is fed after the peer has proved who it is, so strangers never reach it (`sasl.py`).
"""

from __future__ import annotations

from typing import Any, Final

from heliograph.frontends.amqp.values import read_whole
from heliograph.model.errors import ClientFault
from heliograph.model.limits import AMQP_FRAME_BYTES, AMQP_IDLE_SECONDS, AMQP_WINDOW_BYTES, MAX_AMQP_CHANNEL

try:
    from cproton import ffi, lib
except ImportError:  # pragma: no cover - the extra `amqp` is not installed
    ffi = lib = None

IS_THERE: Final = lib is not None
"""Whether AMQP can be spoken."""
EVENTS: Any = lib
"""Names of the kinds of events."""
_SCRATCH_BYTES: Final = 256 * 1024
_MILLISECONDS: Final = 1000
ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34
COORDINATOR: Final = 3
UNSPECIFIED: Final = 0
SETTLED_BY_SENDER: Final = 1
SETTLED_SECOND: Final = 1


class Terminus:
    """What one end of a link says of the node there."""

    __slots__ = (
        "address",
        "capabilities",
        "copies",
        "durable",
        "dynamic",
        "filters",
        "kind",
        "never_expires",
    )

    def __init__(self, pointer: Any) -> None:
        self.kind: int = lib.pn_terminus_get_type(pointer)
        self.address = _text(lib.pn_terminus_get_address(pointer))
        self.dynamic = bool(lib.pn_terminus_is_dynamic(pointer))
        self.durable: int = lib.pn_terminus_get_durability(pointer)
        self.never_expires = lib.pn_terminus_get_expiry_policy(pointer) == lib.PN_EXPIRE_NEVER
        self.copies = lib.pn_terminus_get_distribution_mode(pointer) == lib.PN_DIST_MODE_COPY
        self.capabilities = _words(_data(lib.pn_terminus_capabilities(pointer)))
        self.filters = _data(lib.pn_terminus_filter(pointer))


class Link:
    """A link. `role` is whoever minds it, once it is open. A link that the client closed stays until all that it sent
    there is answered."""

    __slots__ = (
        "is_sender",
        "leaves_closed",
        "name",
        "pointer",
        "presettled",
        "role",
        "second",
        "source",
        "target",
        "unanswered",
    )

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.is_sender = bool(lib.pn_link_is_sender(pointer))
        self.name = _text(lib.pn_link_name(pointer)) or ""
        self.source = Terminus(lib.pn_link_remote_source(pointer))
        self.target = Terminus(lib.pn_link_remote_target(pointer))
        self.presettled = lib.pn_link_remote_snd_settle_mode(pointer) == SETTLED_BY_SENDER
        self.second = lib.pn_link_remote_rcv_settle_mode(pointer) == SETTLED_SECOND
        self.role: Any = None
        self.unanswered = 0
        self.leaves_closed: bool | None = None

    @property
    def is_there(self) -> bool:
        return self.pointer is not None


class Engine:
    """One connection's Proton."""

    def __init__(self, container: str) -> None:
        self._scratch = ffi.new("char[]", _SCRATCH_BYTES)
        self._connection = lib.pn_connection()
        self._transport = lib.pn_transport()
        self._collector = lib.pn_collector()
        self._links: dict[Any, Link] = {}
        self.is_over = False
        lib.pn_transport_set_server(self._transport)
        lib.pn_transport_set_max_frame(self._transport, AMQP_FRAME_BYTES)
        lib.pn_transport_set_channel_max(self._transport, MAX_AMQP_CHANNEL)
        lib.pn_transport_set_idle_timeout(self._transport, int(AMQP_IDLE_SECONDS * _MILLISECONDS))
        lib.pn_connection_set_container(self._connection, container.encode())
        lib.pn_connection_collect(self._connection, self._collector)
        lib.pn_transport_bind(self._transport, self._connection)

    def release(self) -> None:
        """Give everything back. Nothing may be asked of it afterwards."""
        if self.is_over:
            return
        self.is_over = True
        for link in self._links.values():
            link.pointer = link.role = None
        self._links.clear()
        lib.pn_transport_unbind(self._transport)
        lib.pn_decref(self._transport)
        lib.pn_collector_free(self._collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._connection)
        self._transport = self._collector = self._connection = None

    # ---- bytes

    def push(self, data: bytes) -> bool:
        """Whatever arrived. False: the peer broke the protocol, and there is no more to be heard from it."""
        view = ffi.from_buffer(data)
        position, size = 0, len(data)
        while position < size:
            room = lib.pn_transport_capacity(self._transport)
            if room <= 0:
                return False
            taken = lib.pn_transport_push(self._transport, view + position, min(room, size - position))
            if taken <= 0:
                return False
            position += taken
        return True

    def pull(self) -> bytes:
        """Whatever is to be said."""
        pieces: list[bytes] = []
        transport, scratch = self._transport, self._scratch
        while (pending := lib.pn_transport_pending(transport)) > 0:
            size = lib.pn_transport_peek(transport, scratch, min(pending, _SCRATCH_BYTES))
            if size <= 0:
                break
            pieces.append(ffi.unpack(scratch, size))
            lib.pn_transport_pop(transport, size)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def fault(self) -> str:
        """What the peer did wrong in Proton's eyes; empty: nothing."""
        condition = lib.pn_transport_condition(self._transport)
        if not lib.pn_condition_is_set(condition):
            return ""
        return _text(lib.pn_condition_get_description(condition)) or "the peer broke the protocol"

    # ---- events

    def next_event(self) -> tuple[int, Any]:
        """The kind of the event at the head, and what it is about; (0, None): there is none."""
        event = lib.pn_collector_peek(self._collector)
        if event == ffi.NULL:
            return 0, None
        return lib.pn_event_type(event), event

    def pop_event(self) -> None:
        if not self.is_over:
            lib.pn_collector_pop(self._collector)

    # ---- connection and sessions

    @property
    def client_id(self) -> str:
        return _text(lib.pn_connection_remote_container(self._connection)) or ""

    @property
    def wanted_capabilities(self) -> list[str]:
        return _words(_data(lib.pn_connection_remote_desired_capabilities(self._connection)))

    @property
    def idle_seconds(self) -> float:
        """How often the peer wants to hear something; 0: it does not care."""
        return float(lib.pn_transport_get_remote_idle_timeout(self._transport)) / _MILLISECONDS

    def open(self, capabilities: bytes, properties: bytes) -> None:
        _fill(lib.pn_connection_offered_capabilities(self._connection), capabilities)
        _fill(lib.pn_connection_properties(self._connection), properties)
        lib.pn_connection_open(self._connection)

    def close(self, condition: str = "", description: str = "", info: bytes = b"") -> None:
        if condition:
            _condemn(lib.pn_connection_condition(self._connection), condition, description, info)
        lib.pn_connection_close(self._connection)

    def open_session(self, event: Any) -> None:
        session = lib.pn_event_session(event)
        lib.pn_session_set_incoming_capacity(session, AMQP_WINDOW_BYTES)
        lib.pn_session_open(session)

    def close_session(self, event: Any) -> list[Link]:
        """The client has closed a session. The links of it that are gone with it."""
        session = lib.pn_event_session(event)
        gone = [link for link in self._links.values() if lib.pn_link_session(link.pointer) == session]
        for link in gone:
            self._forget(link)
        lib.pn_session_close(session)
        lib.pn_session_free(session)
        return gone

    # ---- links

    @property
    def link_count(self) -> int:
        return len(self._links)

    def link_of(self, event: Any) -> tuple[Link, bool]:
        """The link that an event is about, and whether it is new."""
        pointer = lib.pn_event_link(event)
        link = self._links.get(pointer)
        if link is not None:
            return link, False
        link = self._links[pointer] = Link(pointer)
        return link, True

    def accept(
        self,
        link: Link,
        *,
        address: str = "",
        filters: bytes = b"",
        limit: int = 0,
        keeps: bool = False,
    ) -> None:
        """Open our end of a link, as the peer has it; `address`: of a node that was made for it. `filters`: those of
        the peer's that hold. `limit`: how large a message may be. `keeps`: the source outlives the link, though
        not what is unsettled of it: Proton has no words for that, and so the peer is told not to count on it."""
        pointer = link.pointer
        source, target = lib.pn_link_source(pointer), lib.pn_link_target(pointer)
        lib.pn_terminus_copy(source, lib.pn_link_remote_source(pointer))
        lib.pn_terminus_copy(target, lib.pn_link_remote_target(pointer))
        if link.is_sender:
            _fill(lib.pn_terminus_filter(source), filters)
        own = source if link.is_sender else target
        if address:
            lib.pn_terminus_set_type(own, lib.PN_SOURCE if link.is_sender else lib.PN_TARGET)
            lib.pn_terminus_set_address(own, address.encode())
        if lib.pn_terminus_get_type(own) in (lib.PN_SOURCE, lib.PN_TARGET):
            lib.pn_terminus_set_durability(own, lib.PN_CONFIGURATION if keeps else lib.PN_NONDURABLE)
            lib.pn_terminus_set_expiry_policy(own, lib.PN_EXPIRE_NEVER if keeps else lib.PN_EXPIRE_WITH_LINK)
        lib.pn_link_set_snd_settle_mode(pointer, lib.pn_link_remote_snd_settle_mode(pointer))
        lib.pn_link_set_rcv_settle_mode(pointer, lib.pn_link_remote_rcv_settle_mode(pointer))
        if limit:
            lib.pn_link_set_max_message_size(pointer, limit)
        lib.pn_link_open(pointer)

    def remake_source(self, link: Link, address: str) -> None:
        """Tell a client that asked for a subscription by its name alone what it is of."""
        source = lib.pn_link_source(link.pointer)
        lib.pn_terminus_copy(lib.pn_link_target(link.pointer), lib.pn_link_remote_target(link.pointer))
        lib.pn_terminus_set_type(source, lib.PN_SOURCE)
        lib.pn_terminus_set_address(source, address.encode())
        lib.pn_terminus_set_durability(source, lib.PN_CONFIGURATION)
        lib.pn_terminus_set_expiry_policy(source, lib.PN_EXPIRE_NEVER)
        lib.pn_link_open(link.pointer)

    def refuse(self, link: Link, condition: str, description: str) -> None:
        """Close a link, saying why. One that was not open yet is opened for that, onto nothing."""
        if not link.is_there:
            return
        if lib.pn_link_state(link.pointer) & lib.PN_LOCAL_UNINIT:
            own = lib.pn_link_source(link.pointer) if link.is_sender else lib.pn_link_target(link.pointer)
            lib.pn_terminus_set_type(own, UNSPECIFIED)
            lib.pn_link_open(link.pointer)
        _condemn(lib.pn_link_condition(link.pointer), condition, description, b"")
        lib.pn_link_close(link.pointer)

    def end(self, link: Link, *, closed: bool) -> None:
        """The client is through with a link, and so are we."""
        if not link.is_there:
            return
        pointer = link.pointer
        if lib.pn_link_state(pointer) & lib.PN_LOCAL_ACTIVE:
            if closed:
                lib.pn_link_close(pointer)
            else:
                lib.pn_link_detach(pointer)
        self._forget(link)
        lib.pn_link_free(pointer)

    def _forget(self, link: Link) -> None:
        self._links.pop(link.pointer, None)
        link.pointer = None

    # ---- what comes in

    def allow(self, link: Link, low: int, credit: int) -> None:
        """Let the client send up to `credit` messages if it may send fewer than `low`."""
        if link.is_there and (left := lib.pn_link_credit(link.pointer)) < low:
            # A peer that miscounts on purpose may be far below zero.
            lib.pn_link_flow(link.pointer, credit - max(left, 0))

    def delivery_of(self, event: Any) -> tuple[Any, Link | None]:
        delivery = lib.pn_event_delivery(event)
        return delivery, self._links.get(lib.pn_delivery_link(delivery))

    def is_current(self, link: Link, delivery: Any) -> bool:
        return bool(lib.pn_link_current(link.pointer) == delivery)

    def read(self, link: Link, delivery: Any) -> bytes:
        """What has come of a message since the last time."""
        pieces: list[bytes] = []
        while lib.pn_delivery_pending(delivery) > 0:
            size = lib.pn_link_recv(link.pointer, self._scratch, _SCRATCH_BYTES)
            if size <= 0:
                break
            pieces.append(ffi.unpack(self._scratch, size))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def discard(self, link: Link, delivery: Any) -> None:
        """What came of a message on a link that nobody minds is forgotten."""
        self.read(link, delivery)
        if not lib.pn_delivery_partial(delivery):
            lib.pn_link_advance(link.pointer)
            lib.pn_delivery_update(delivery, RELEASED)
            lib.pn_delivery_settle(delivery)

    def is_partial(self, delivery: Any) -> bool:
        return bool(lib.pn_delivery_partial(delivery))

    def is_aborted(self, delivery: Any) -> bool:
        return bool(lib.pn_delivery_aborted(delivery))

    def advance(self, link: Link) -> None:
        """A message is complete."""
        lib.pn_link_advance(link.pointer)

    def is_settled(self, delivery: Any) -> bool:
        """Whether the peer is through with a delivery."""
        return bool(lib.pn_delivery_settled(delivery))

    def state_of(self, delivery: Any) -> int:
        """The peer's word on a delivery; 0: none yet."""
        return int(lib.pn_delivery_remote_state(delivery))

    def details_of(self, delivery: Any) -> Any:
        """What the peer says with a state that Proton has no word for."""
        return _data(lib.pn_disposition_data(lib.pn_delivery_remote(delivery)))

    def failing(self, delivery: Any) -> tuple[bool, bool]:
        """Of the state `modified`: whether delivery failed, and whether it is of no use here."""
        remote = lib.pn_delivery_remote(delivery)
        return bool(lib.pn_disposition_is_failed(remote)), bool(lib.pn_disposition_is_undeliverable(remote))

    def reason(self, delivery: Any) -> str:
        """Why the peer rejected it."""
        condition = lib.pn_disposition_condition(lib.pn_delivery_remote(delivery))
        if not lib.pn_condition_is_set(condition):
            return ""
        name = _text(lib.pn_condition_get_name(condition)) or ""
        said = _text(lib.pn_condition_get_description(condition)) or ""
        return f"{name}: {said}" if said else name

    def answer(self, delivery: Any, state: int, *, details: bytes = b"", settle: bool = True) -> None:
        """Our word on a delivery."""
        if details:
            _fill(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), details)
        lib.pn_delivery_update(delivery, state)
        if settle:
            lib.pn_delivery_settle(delivery)

    def reject(self, delivery: Any, condition: str, description: str) -> None:
        _condemn(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), condition, description, b"")
        lib.pn_delivery_update(delivery, REJECTED)
        lib.pn_delivery_settle(delivery)

    def settle(self, delivery: Any) -> None:
        lib.pn_delivery_settle(delivery)

    # ---- what goes out

    def credit(self, link: Link) -> int:
        return int(lib.pn_link_credit(link.pointer))

    def is_draining(self, link: Link) -> bool:
        return bool(lib.pn_link_get_drain(link.pointer))

    def drained(self, link: Link) -> None:
        """There is nothing more for a link that wants all there is."""
        lib.pn_link_drained(link.pointer)

    def has_unsent(self, link: Link) -> bool:
        """Whether the client's window keeps something here that was sent."""
        return bool(lib.pn_link_queued(link.pointer) > 0)

    def begin(self, link: Link, tag: int) -> Any:
        raw = tag.to_bytes(8, "big")
        return lib.pn_delivery(link.pointer, (8, ffi.from_buffer(raw)))

    def write(self, link: Link, data: bytes) -> None:
        lib.pn_link_send(link.pointer, ffi.from_buffer(data), len(data))

    def send(self, link: Link, tag: int, data: bytes) -> None:
        """A whole message under a delivery tag of ours."""
        delivery = self.begin(link, tag)
        self.write(link, data)
        self.finish(link, delivery)

    def finish(self, link: Link, delivery: Any) -> None:
        """All of a message was written."""
        lib.pn_link_advance(link.pointer)
        if link.presettled:
            lib.pn_delivery_settle(delivery)

    def abort(self, delivery: Any) -> None:
        """The rest of a message does not come, and what came of it is nothing."""
        lib.pn_delivery_abort(delivery)

    def has_unwritten(self, delivery: Any) -> bool:
        """Whether the client's window keeps something here that was written of a message."""
        return bool(lib.pn_delivery_pending(delivery) > 0)

    def tag_of(self, delivery: Any) -> int:
        tag = lib.pn_delivery_tag(delivery)
        return int.from_bytes(ffi.unpack(tag.start, tag.size), "big") if tag.size == 8 else -1


# ---- values


def _text(pointer: Any) -> str | None:
    return None if pointer == ffi.NULL else ffi.string(pointer).decode(errors="replace")


def _data(pointer: Any) -> Any:
    """What Proton has read, read again as ours; what cannot be read is nothing."""
    size = lib.pn_data_encoded_size(pointer)
    if size <= 0:
        return None
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(pointer, buffer, size)
    if written <= 0:
        return None
    try:
        return read_whole(ffi.unpack(buffer, written))
    except ClientFault:
        return None


def _fill(pointer: Any, encoded: bytes) -> None:
    lib.pn_data_clear(pointer)
    if encoded:
        lib.pn_data_decode(pointer, ffi.from_buffer(encoded), len(encoded))


def _words(value: Any) -> list[str]:
    """Capabilities are one symbol, or an array of them."""
    if isinstance(value, str):
        return [str(value)]
    return [str(each) for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _condemn(condition: Any, name: str, description: str, info: bytes) -> None:
    lib.pn_condition_set_name(condition, name.encode())
    lib.pn_condition_set_description(condition, description.encode(errors="replace").replace(b"\x00", b"?"))
    if info:
        _fill(lib.pn_condition_info(condition), info)

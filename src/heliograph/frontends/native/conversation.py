"""The server's side of a native connection as a state machine: bytes in, events out; effects in, bytes out.

    greeting ──Hello──▶ proving ⇄ challenged ──admitted──▶ open ──Goodbye or a fault──▶ closed
       └──── anything else ────────────────────────────────────────────────▶ closed

Nothing that a peer sends makes an exception leave this module: it becomes a `Broken` event, after a Goodbye
that says what was wrong. Before the peer has proved who it is, it gets 4 KiB of buffer and nothing else (X2).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from heliograph.frontends import conversation
from heliograph.frontends.conversation import (
    NOTHING,
    AnyHappening,
    Broken,
    Commanded,
    Greeted,
    Left,
    Parts,
    Requested,
    Responded,
)
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import (
    CONTROL,
    CREDIT,
    DELIVER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    PREAMBLE,
    PUBLISH,
    SETTLE,
    FrameReader,
    Goodbye,
    control_frame,
    pack_delivery,
    pack_header,
    pack_pair,
)
from heliograph.model import block as blocks
from heliograph.model.block import slice_span
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault
from heliograph.model.gathering import gather, parcels
from heliograph.model.limits import (
    HEARTBEAT_SECONDS,
    HEARTBEATS_MISSED,
    MAX_ACK_RANGES,
    MAX_CLAIM_RANGES,
    MAX_ERROR_LENGTH,
    MAX_GREETING_BYTES,
)
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect


class _State(enum.Enum):
    GREETING = "greeting"
    PROVING = "proving"
    CHALLENGED = "challenged"
    OPEN = "open"
    CLOSED = "closed"


class Conversation(conversation.Conversation):
    """One connection. `receive` is fed whatever arrives, in whatever pieces."""

    __slots__ = ("_heartbeat_seconds", "_preamble", "_reader", "_state")

    def __init__(self) -> None:
        self._heartbeat_seconds = HEARTBEAT_SECONDS
        self._state = _State.GREETING
        self._preamble = b""
        self._reader = FrameReader(MAX_GREETING_BYTES)

    @property
    def buffered(self) -> int:
        return self._reader.buffered + len(self._preamble)

    @property
    def _is_closed(self) -> bool:
        return self._state is _State.CLOSED

    @property
    def is_open(self) -> bool:
        return self._state is _State.OPEN

    @property
    def resumes(self) -> bool:
        return True

    @property
    def pulse(self) -> bytes:
        return HEARTBEAT_FRAME

    @property
    def patience_seconds(self) -> float:
        return self._heartbeat_seconds * HEARTBEATS_MISSED

    @property
    def pulse_seconds(self) -> float:
        return self._heartbeat_seconds / 2

    def receive(self, data: bytes, now: int = 0) -> list[AnyHappening]:
        if self._state is _State.CLOSED:
            return []
        happenings: list[AnyHappening] = []
        try:
            if len(self._preamble) < len(PREAMBLE):
                data = self._take_preamble(data)
                if not data:
                    return happenings
            for kind, flags, number, payload in self._reader.feed(data):
                if kind == PUBLISH and self._state is _State.OPEN:
                    block = blocks.parse(payload)
                    publish = commands.Publish(block, flags & frames.RESENT != 0, flags & frames.STAGED != 0)
                    happenings.append(Commanded(number, publish))
                else:
                    self._other_frame(kind, flags, number, payload, happenings)
                    if self._is_closed:
                        break
        except ClientFault as fault:
            happenings.append(self.break_off(fault))
        return happenings

    def _take_preamble(self, data: bytes) -> bytes:
        missing = len(PREAMBLE) - len(self._preamble)
        self._preamble += data[:missing]
        if not PREAMBLE.startswith(self._preamble):
            raise ProtocolFault(
                "this port speaks Heliograph's protocol, and that was not it", code="not-heliograph"
            )
        return data[missing:]

    def break_off(self, error: HeliographError) -> Broken:
        """End the conversation, saying why."""
        self._state = _State.CLOSED
        self._reader = FrameReader(0)
        return Broken(error, control_frame(Goodbye(error.code, error.sentence)))

    # ---- frames other than the hottest

    def _other_frame(
        self, kind: int, flags: int, number: int, payload: bytes, happenings: list[AnyHappening]
    ) -> None:
        if kind == CONTROL:
            self._control(frames.decode_from_client(payload), happenings)
        elif self._state is not _State.OPEN:
            raise ProtocolFault("the first frame must say who you are", code="not-greeted")
        elif kind == SETTLE:
            happenings.append(Commanded(number, _settlement(flags, payload)))
        elif kind == CREDIT:
            if len(payload) != frames.CREDIT_BODY.size:
                raise ProtocolFault("a credit frame has 8 bytes", code="frame-malformed")
            consumer, count = frames.CREDIT_BODY.unpack(payload)
            happenings.append(Commanded(number, commands.GrantCredit(consumer, count)))
        elif kind in (frames.CHUNK, frames.ADVANCE):
            happenings.append(Commanded(number, _piece(kind, payload)))
        elif kind != HEARTBEAT:
            raise ProtocolFault(f"frames of kind {kind} are not known", code="frame-unknown")

    def _control(self, message: frames.FromClient, happenings: list[AnyHappening]) -> None:
        if isinstance(message, Goodbye):
            self._state = _State.CLOSED
            happenings.append(Left(message.code))
        elif self._state is _State.GREETING:
            if not isinstance(message, frames.Hello):
                raise ProtocolFault("the first frame must say who you are", code="not-greeted")
            if message.version != frames.PROTOCOL_VERSION:
                raise ProtocolFault(
                    f"version {message.version} is not spoken here, only {frames.PROTOCOL_VERSION}",
                    code="version-unknown",
                )
            self._state = _State.PROVING
            happenings.append(Greeted(message))
        elif self._state is _State.CHALLENGED:
            if not isinstance(message, frames.Response):
                raise ProtocolFault("the challenge is to be answered first", code="not-greeted")
            self._state = _State.PROVING
            happenings.append(Responded(message.data))
        elif self._state is _State.PROVING:
            raise ProtocolFault("wait for the welcome before the next frame", code="not-greeted")
        else:
            happenings.append(_happening_of(message))

    # ---- what the shell decides

    def challenge(self, data: bytes) -> bytes:
        if self._state is not _State.PROVING:
            return b""
        self._state = _State.CHALLENGED
        return control_frame(frames.Challenge(data))

    def admit(self, welcome: frames.Welcome) -> bytes:
        """The peer is who it says it is. If it broke the protocol while that was found out, it stays out."""
        if self._state is not _State.PROVING:
            return b""
        self._state = _State.OPEN
        self._reader.limit = welcome.max_frame_bytes
        self._heartbeat_seconds = welcome.heartbeat_seconds
        return control_frame(welcome)

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        encode(number, effect, into)
        return NOTHING

    def say(self, message: frames.Control, into: Parts) -> Sequence[AnyHappening]:
        if isinstance(message, frames.Answer):
            into.append(frames.answer_frame(message))
        else:
            into.append(control_frame(message))
        return NOTHING


def _happening_of(message: Any) -> AnyHappening:
    if isinstance(message, frames.OpenLane):
        return Commanded(
            message.number, commands.OpenLane(message.request, message.lane, message.destination)
        )
    if isinstance(message, frames.Subscribe):
        return Commanded(message.number, _subscribe(message))
    if isinstance(message, frames.Unsubscribe):
        return Commanded(
            message.number, commands.Unsubscribe(message.request, message.consumer, message.seen)
        )
    match message:
        case frames.FindPath(request, number, destination, unit):
            return Commanded(number, commands.FindPath(request, destination, unit))
        case frames.EndSubscription(request, number, subscription):
            return Commanded(number, commands.EndSubscription(request, subscription))
        case frames.Return(number, consumer, ranges, error, seen):
            if len(ranges) > MAX_ACK_RANGES:
                raise ProtocolFault(
                    f"at most {MAX_ACK_RANGES} ranges are returned at once", code="frame-malformed"
                )
            return Commanded(
                number, commands.Settle(consumer, True, ranges, True, False, error[:MAX_ERROR_LENGTH], seen)
            )
        case frames.Retire(request, number, consumer, seen):
            return Commanded(number, commands.Retire(request, consumer, seen))
        case frames.Recover(request, number, last_seen):
            return Commanded(number, commands.Recover(request, last_seen))
        case frames.Commit(request, number, transaction, messages, consumed):
            return Commanded(number, commands.Commit(request, transaction, messages, consumed))
        case frames.Rollback(request, number, transaction, last_seen):
            return Commanded(number, commands.Rollback(request, transaction, last_seen))
        case frames.MakeTemporary(request, number, kind):
            return Commanded(number, commands.MakeTemporary(request, kind))
        case frames.DeleteTemporary(request, number, destination):
            return Commanded(number, commands.DeleteTemporary(request, destination))
        case frames.BeginUpload(request, number, transfer, destination, resume):
            return Commanded(number, commands.BeginUpload(request, transfer, destination, resume))
        case frames.EndUpload(request, number, transfer, size, checksum):
            return Commanded(number, commands.EndUpload(request, transfer, size, checksum))
        case frames.DropUpload(number, transfer):
            return Commanded(number, commands.DropUpload(transfer))
        case frames.BeginFetch(request, number, transfer, destination, file, offset, allowed):
            return Commanded(
                number, commands.BeginFetch(request, transfer, destination, file, offset, allowed)
            )
        case frames.EndFetch(number, transfer):
            return Commanded(number, commands.EndFetch(transfer))
    if type(message) in _OF_ALERTS:
        return _of_alerts(message)
    if isinstance(message, frames.Hello | frames.Response):
        raise ProtocolFault("you have greeted already", code="greeted-twice")
    return Requested(message)


_OF_ALERTS: Final[dict[type, Any]] = {
    frames.PublishAlert: commands.PublishAlert,
    frames.AcknowledgeAlert: commands.AcknowledgeAlert,
    frames.CancelAlert: commands.CancelAlert,
    frames.AttachAlerts: commands.AttachAlerts,
    frames.ChangeAlerts: commands.ChangeAlerts,
    frames.DetachAlerts: commands.DetachAlerts,
    frames.TakeAlerts: commands.TakeAlerts,
    frames.ListAlerts: commands.ListAlerts,
    frames.AuditAlert: commands.AuditAlert,
}


def _of_alerts(message: Any) -> Commanded:
    """The command has the fields of the frame, but for the number of the session."""
    fields = msgspec.structs.asdict(message)
    number = fields.pop("number")
    return Commanded(number, _OF_ALERTS[type(message)](**fields))


def _subscribe(message: frames.Subscribe) -> commands.Subscribe:
    claim = message.claim
    if claim is not None and len(claim.held) + len(claim.settled) > MAX_CLAIM_RANGES:
        raise ProtocolFault(f"a claim has at most {MAX_CLAIM_RANGES} ranges", code="frame-malformed")
    return commands.Subscribe(
        message.request,
        message.consumer,
        message.destination,
        message.credit,
        message.selector,
        message.subscription,
        message.durable,
        message.shared,
        message.no_local,
        message.browse,
        message.prompt,
        claim,
    )


def _piece(kind: int, payload: bytes) -> commands.SendChunk | commands.AllowFetch:
    """A piece of an upload, or leave to send more of a download."""
    if kind == frames.CHUNK:
        head = frames.CHUNK_HEAD.size
        if len(payload) <= head:
            raise ProtocolFault("a chunk is a transfer, an offset and bytes", code="frame-malformed")
        transfer, offset = frames.CHUNK_HEAD.unpack_from(payload)
        return commands.SendChunk(transfer, offset, memoryview(payload)[head:])
    if len(payload) != frames.ADVANCE_BODY.size:
        raise ProtocolFault("an advance frame has 20 bytes", code="frame-malformed")
    transfer, allowed, _ = frames.ADVANCE_BODY.unpack(payload)
    return commands.AllowFetch(transfer, allowed)


def _settlement(flags: int, payload: bytes) -> commands.Settle:
    head = frames.SETTLEMENT.size
    if len(payload) < head or (len(payload) - head) % frames.PAIR.size:
        raise ProtocolFault(
            "a settlement is a consumer, an outcome and pairs of tags", code="frame-malformed"
        )
    if (len(payload) - head) // frames.PAIR.size > MAX_ACK_RANGES:
        raise ProtocolFault(f"a settlement has at most {MAX_ACK_RANGES} ranges", code="frame-malformed")
    consumer, outcome = frames.SETTLEMENT.unpack_from(payload)
    if outcome not in (frames.DONE, frames.RETURNED):
        raise ProtocolFault(f"outcome {outcome} is not known", code="frame-malformed")
    return commands.Settle(
        consumer,
        outcome == frames.RETURNED,
        list(frames.PAIR.iter_unpack(payload[head:])),
        flags & frames.REPLENISH != 0,
        flags & frames.CONFIRM_SETTLEMENT != 0,
    )


# ---- effects to bytes


def encode(number: int, effect: AnySessionEffect, into: Parts) -> int:
    """Append the frame that tells a client of this effect of session `number`. Returns its size."""
    if type(effect) is commands.Deliver:
        return _encode_delivery(number, effect, into)
    if type(effect) is commands.DeliverParcel:
        return _encode_parcel(number, effect, into)
    if type(effect) is commands.HandChunk:
        head = frames.chunk_header(number, effect.transfer, effect.offset, len(effect.data))
        into += (head, effect.data)
        return len(head) + len(effect.data)
    if type(effect) is commands.TellAdvance:
        frame = frames.advance_frame(number, effect.transfer, effect.written, effect.durable)
    elif type(effect) is commands.Confirm:
        frame = pack_header(16, frames.CONFIRM, 0, number) + pack_pair(effect.lane, effect.last)
    elif type(effect) is commands.Tell:
        frame = frames.answer_frame(frames.Answer(effect.request, effect.body))
    else:
        frame = control_frame(_control_of(number, effect))
    into.append(frame)
    return len(frame)


def _encode_delivery(number: int, effect: commands.Deliver, into: Parts) -> int:
    span = effect.span
    user = effect.user.encode()
    parts = slice_span(span)
    size = sum(map(len, parts)) if len(parts) > 1 else span.block.size
    head = pack_delivery(effect.consumer, span.deliveries, effect.tag, len(user))
    kind = DELIVER
    if effect.destination:
        kind = frames.DELIVER_FROM
        address = effect.destination.encode()
        head = frames.ADDRESS_LENGTH.pack(len(address)) + address + head
    length = len(head) + len(user) + size
    into.append(pack_header(length, kind, 0, number) + head + user)
    into += parts
    return length


def _encode_parcel(number: int, effect: commands.DeliverParcel, into: Parts) -> int:
    user = effect.user.encode()
    tag, total = effect.tag, 0
    for spans in parcels(effect.spans):
        parts = slice_span(spans[0]) if len(spans) == 1 else gather(spans)
        length = frames.DELIVERY.size + len(user) + sum(map(len, parts))
        head = pack_delivery(effect.consumer, spans[0].deliveries, tag, len(user))
        into.append(pack_header(length, DELIVER, 0, number) + head + user)
        into += parts
        tag += sum(span.stop - span.start for span in spans)
        total += length
    return total


def _control_of(number: int, effect: AnySessionEffect) -> frames.Control:
    match effect:
        case commands.LaneReady(request, last):
            return frames.LaneOpened(request, last)
        case commands.TellDistributed(request, how):
            return frames.Distributed(
                request,
                list(how.members),
                how.routing.value,
                how.version,
                how.unit_from,
                list(how.leaving),
            )
        case commands.Done(request):
            return frames.Completed(request)
        case commands.EndBrowse(consumer):
            return frames.BrowseEnded(number, consumer)
        case commands.Fail(request, code, sentence):
            return frames.Failed(request, code, sentence)
        case commands.RefuseLane(lane, first, code, sentence):
            return frames.Refused(number, lane, first, code, sentence)
        case commands.TellBlocked(destination, reason):
            return frames.Blocked(number, destination, reason)
        case commands.SettlementStored(consumer):
            return frames.Settled(number, consumer)
        case commands.EndTransfer(transfer, code, sentence):
            return frames.TransferFailed(number, transfer, code, sentence)
        case commands.TellRecalled(consumer, tags):
            return frames.Recalled(number, consumer, tags)
        case commands.HandAlert(consumer, alert):
            return frames.Alert(number, consumer, alert)
        case commands.WithdrawAlert(consumer, identity):
            return frames.AlertWithdrawn(number, consumer, identity)
        case commands.TellReceipt(destination, identity, user, name, at):
            return frames.AlertReceipt(number, destination, identity, user, name, at)
        case commands.EndConsumer(consumer, code, sentence):
            return frames.ConsumerClosed(number, consumer, code, sentence)
        case _:
            raise AssertionError(f"{type(effect).__name__} is not for the client")

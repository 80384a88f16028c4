"""A WebSocket as a state machine around another: the handshake, then frames, in which STOMP or MQTT is spoken.

    asking ──GET, upgraded──▶ open: frames ⇄ the conversation inside ──CLOSE──▶ closed
       └── anything else: an HTTP answer that says why ─────────────────────────▶ closed

Which protocol it is, the client says when it asks; if it does not, its first bytes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from heliograph.frontends.conversation import (
    NOTHING,
    Answered,
    AnyHappening,
    Broken,
    Conversation,
    Keepsake,
    Left,
    Parts,
    Recognised,
)
from heliograph.frontends.mqtt.conversation import MqttConversation
from heliograph.frontends.native import frames as native
from heliograph.frontends.prepared import is_text
from heliograph.frontends.stomp.conversation import StompConversation
from heliograph.frontends.websocket import frames
from heliograph.frontends.websocket.frames import FrameReader
from heliograph.frontends.websocket.handshake import MQTT, STOMP, NotUpgraded, upgrade
from heliograph.model.errors import ClientFault, HeliographError, ProtocolFault
from heliograph.model.limits import MAX_FRAME_BYTES, MAX_GREETING_BYTES
from heliograph.sessions.commands import AnySessionEffect

_END: Final = b"\r\n\r\n"


class WebSocketConversation(Conversation):
    """One connection. What is inside is told and asked as if it were alone."""

    def __init__(
        self,
        recognise: Callable[[bytes], Conversation | None],
        origins: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        """`recognise` finds out what a client speaks that does not say so. `origins`: from where pages may
        connect, besides those of this server, which has these `names`."""
        self._names = names
        self._recognise = recognise
        self._origins = origins
        self._inner: Conversation | None = None
        self._request: bytes | None = b""  # until it is answered
        self._reader = FrameReader(MAX_GREETING_BYTES)
        self._heard = b""  # while it is not known what is spoken
        self._is_closed = False

    # ---- what the shell asks

    @property
    def is_open(self) -> bool:
        return self._inner is not None and self._inner.is_open

    @property
    def is_waiting(self) -> bool:
        return self._inner is not None and self._inner.is_waiting

    @property
    def patience_seconds(self) -> float:
        return self._inner.patience_seconds if self._inner is not None else 0.0

    @property
    def pulse_seconds(self) -> float:
        return self._inner.pulse_seconds if self._inner is not None else 0.0

    @property
    def pulse(self) -> bytes:
        return self._wrapped(self._inner.pulse) if self._inner is not None else b""

    @property
    def linger_seconds(self) -> float:
        return self._inner.linger_seconds if self._inner is not None else 0.0

    @property
    def is_busy(self) -> bool:
        return self._inner is not None and self._inner.is_busy

    @property
    def keepsake(self) -> Keepsake | None:
        return self._inner.keepsake if self._inner is not None else None

    # ---- in

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        if self._is_closed:
            return NOTHING
        happenings: list[AnyHappening] = []
        try:
            if self._request is not None:
                data = self._asked(data, happenings)
            if data:
                self._feed(data, now, happenings)
        except NotUpgraded as refusal:
            self._is_closed = True
            happenings.append(Broken(refusal, refusal.answer))
        except ClientFault as fault:
            happenings.append(self.break_off(fault))
        return happenings

    def _asked(self, data: bytes, happenings: list[AnyHappening]) -> bytes:
        """What comes behind the request."""
        assert self._request is not None
        self._request += data
        end = self._request.find(_END)
        if end < 0:
            if len(self._request) > MAX_GREETING_BYTES:
                raise NotUpgraded("the request is too long", 400, code="frame-too-long")
            return b""
        if end > MAX_GREETING_BYTES:
            raise NotUpgraded("the request is too long", 400, code="frame-too-long")
        request, rest = self._request[: end + 2], self._request[end + len(_END) :]
        self._request = None
        agreed = upgrade(request, self._origins, self._names)
        if agreed.protocol:
            self._inner = _conversation_for(agreed.protocol)
        happenings.append(Answered(agreed.answer))
        return rest

    def _feed(self, data: bytes, now: int, happenings: list[AnyHappening]) -> None:
        payloads: list[bytes] = []
        for opcode, payload in self._reader.feed(data):
            if opcode == frames.PING:
                happenings.append(Answered(frames.frame(frames.PONG, payload)))
            elif opcode == frames.CLOSE:
                self._hand_in(payloads, now, happenings)
                self._is_closed = True
                happenings += (Answered(frames.frame(frames.CLOSE, payload[:2])), Left("closed"))
                return
            elif opcode != frames.PONG:
                payloads.append(payload)
        self._hand_in(payloads, now, happenings)

    def _hand_in(self, payloads: list[bytes], now: int, happenings: list[AnyHappening]) -> None:
        """What one read brought is one piece for the protocol inside."""
        data = b"".join(payloads)
        if not data:
            return
        if self._inner is None:
            self._heard += data
            self._inner = self._recognise(self._heard)
            if self._inner is None:
                return
            if not isinstance(self._inner, StompConversation | MqttConversation):
                raise ProtocolFault("STOMP and MQTT are spoken over WebSocket", code="protocol-unknown")
            data, self._heard = self._heard, b""
        happenings += self._outward(self._inner.receive(data, now))

    # ---- out

    def _wrapped(self, part: bytes | memoryview) -> bytes:
        """A frame of STOMP is text if it can be, as browsers expect."""
        if not part:
            return b""
        is_stomp = isinstance(self._inner, StompConversation)
        opcode = frames.TEXT if is_stomp and is_text(bytes(part)) else frames.BINARY
        return frames.frame(opcode, part)

    def _outward(self, happenings: Iterable[AnyHappening]) -> list[AnyHappening]:
        """What the conversation inside wants, in frames."""
        wrapped: list[AnyHappening] = []
        for happening in happenings:
            if isinstance(happening, Answered):
                wrapped.append(Answered(self._wrapped(happening.data)))
            elif isinstance(happening, Broken):
                wrapped.append(self._broken(happening))
            elif isinstance(happening, Left):
                self._is_closed = True
                wrapped += (Answered(frames.close(frames.NORMAL)), happening)
            else:
                assert not isinstance(happening, Recognised)
                wrapped.append(happening)
        return wrapped

    def _broken(self, broken: Broken) -> Broken:
        self._is_closed = True
        code = frames.TOO_BIG if broken.error.code == "frame-too-long" else frames.PROTOCOL_ERROR
        return Broken(broken.error, self._wrapped(broken.farewell) + frames.close(code))

    def challenge(self, data: bytes) -> bytes:
        assert self._inner is not None
        return self._wrapped(self._inner.challenge(data))

    def admit(self, welcome: native.Welcome) -> bytes:
        assert self._inner is not None
        return self._wrapped(self._inner.admit(welcome))

    def begin(self) -> Sequence[AnyHappening]:
        assert self._inner is not None
        return self._outward(self._inner.begin())

    def claimed(self, name: str, keepsake: Keepsake | None) -> Sequence[AnyHappening]:
        assert self._inner is not None
        return self._outward(self._inner.claimed(name, keepsake))

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        assert self._inner is not None
        parts: Parts = []
        happenings = self._outward(self._inner.tell(number, effect, parts))
        into += [self._wrapped(part) for part in parts]
        return happenings

    def say(self, message: native.Control, into: Parts) -> Sequence[AnyHappening]:
        assert self._inner is not None
        parts: Parts = []
        happenings = self._outward(self._inner.say(message, parts))
        into += [self._wrapped(part) for part in parts]
        if self.is_open:
            self._reader.limit = MAX_FRAME_BYTES
        return happenings

    def written(self) -> Sequence[AnyHappening]:
        return self._outward(self._inner.written()) if self._inner is not None else NOTHING

    def lost(self) -> Sequence[AnyHappening]:
        self._is_closed = True
        return self._inner.lost() if self._inner is not None else NOTHING

    def break_off(self, error: HeliographError) -> Broken:
        if self._is_closed:
            return Broken(error, b"")
        if self._request is not None:
            self._is_closed = True
            return Broken(error, NotUpgraded(error.sentence, 400).answer)
        inner = self._inner.break_off(error) if self._inner is not None else Broken(error, b"")
        return self._broken(inner)


def _conversation_for(protocol: str) -> Conversation:
    assert protocol in STOMP or protocol in MQTT
    return StompConversation() if protocol in STOMP else MqttConversation()

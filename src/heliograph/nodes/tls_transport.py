"""TLS between a socket and whatever is served on it: a protocol for the socket's transport, a transport for
the protocol within, which need not know.

What a peer has said before it was known that it speaks TLS comes along. What is written is encrypted at once,
so that the socket's buffer is the only one, and its marks are those of the protocol within.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from heliograph.model.limits import MAX_TLS_HANDSHAKE_BYTES
from heliograph.security.certificates import what_alert_means, why_refused

_READ_BYTES: Final = 256 * 1024
# Parts that are written together are joined up to this, so that a record has more than a header's worth in it.
_JOIN_BYTES: Final = 64 * 1024

Buffer = bytes | bytearray | memoryview


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One connection's."""

    def __init__(
        self,
        below: asyncio.Transport,
        context: ssl.SSLContext,
        protocol: asyncio.Protocol,
        on_refused: Callable[[str], None],
    ) -> None:
        """`on_refused` hears in words why there will be no connection."""
        super().__init__()
        self._below = below
        self._protocol = protocol
        self._on_refused = on_refused
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_ready = False
        self._is_over = False
        self._heard_bytes = 0

    def begin(self, heard: bytes) -> None:
        """Take the socket over from the protocol within, with what came so far."""
        self._below.set_protocol(self)
        self.data_received(heard)

    @property
    def certificate_user(self) -> str:
        """The common name in the client's certificate, which was found good; empty without one."""
        certificate: dict[str, Any] = (self._tls.getpeercert() if self._is_ready else None) or {}
        subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
        return str(subject.get("commonName", ""))

    # ---- what the socket tells

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._incoming.write(data)
        if not self._is_ready:
            self._heard_bytes += len(data)
            self._shake_hands()
        if self._is_ready:
            self._decrypt()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
            self._is_ready = True
        except ssl.SSLWantReadError:
            if self._heard_bytes > MAX_TLS_HANDSHAKE_BYTES:
                self._refuse(f"a handshake takes at most {MAX_TLS_HANDSHAKE_BYTES} bytes")
        except ssl.SSLCertVerificationError as fault:
            self._refuse(why_refused(fault.verify_code, fault.verify_message, "client"))
        except ssl.SSLError as fault:
            reason = str(fault.reason or fault)
            self._refuse(_heard_of(reason))
        self._flush()

    def _decrypt(self) -> None:
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(_READ_BYTES):
                pieces.append(piece)
            self._is_over = True  # the peer has said that it ends here
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as fault:
            if not isinstance(fault, ssl.SSLZeroReturnError):
                self._on_refused(_heard_of(str(fault.reason or fault)))
            self._is_over = True
        self._flush()  # a peer that changes keys is answered
        if pieces:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_over:
            self._below.close()

    def _refuse(self, sentence: str) -> None:
        self._is_over = True
        self._on_refused(sentence)
        self._flush()
        self._below.close()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_ready and not self._is_over:
            self._on_refused(
                "the client broke off while TLS began: perhaps it does not trust the server's certificate"
            )
        self._is_over = True
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # ---- what the protocol within asks

    def write(self, data: Buffer) -> None:
        self._encrypt(data)
        self._flush()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        waiting: list[Buffer] = []
        size = 0
        for part in list_of_data:
            waiting.append(part)
            size += len(part)
            if size >= _JOIN_BYTES:
                self._encrypt(waiting[0] if len(waiting) == 1 else b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self._encrypt(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        self._flush()

    def _encrypt(self, data: Buffer) -> None:
        """Before hands were shaken there is nobody to hear it."""
        if not self._is_ready or self._is_over or not data:
            return
        with memoryview(data) as view:
            start = 0
            while start < len(view):
                start += self._tls.write(view[start:])

    def close(self) -> None:
        if self._is_ready and not self._is_over:
            self._is_over = True
            with suppress(ssl.SSLError):  # it need not hear the same from the other side
                self._tls.unwrap()
            self._flush()
        self._below.close()

    def abort(self) -> None:
        self._is_over = True
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._below.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol


def _heard_of(reason: str) -> str:
    """What a client did not like about us, or we about it."""
    if "NO_CERTIFICATE" in reason or "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "the client showed no certificate, and tls.clients says that it needs one"
    if what_alert_means(reason):
        return f"the client refused the server's certificate, or the server the client's ({reason})"
    return f"TLS failed ({reason})"

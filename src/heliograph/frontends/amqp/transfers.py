"""Contents of very large messages on their way between a client of AMQP and the disk (M6): in chunks, as they come.

    in    transfers ──ContentReader──▶ Upload ──chunks, as far as the disk is──▶ EndUpload ──▶ an ordinary message
    out   BeginFetch ──chunks, as far as the network is──▶ Download ──▶ a delivery, written piece by piece

What is in memory of each is a window. A client whose upload is ahead of the disk is not read from; a download is
allowed more when the network has what came before. One that is refused for now is asked for again by and by: what is
behind it on its link does not come first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from crc32c import crc32c

from heliograph.frontends.proxy import Answer, Proxy
from heliograph.model.large import REFUSED_FOR_NOW, LargeReference
from heliograph.model.limits import (
    CHUNK_BYTES,
    FOREIGN_HELD_BYTES,
    MAX_TRANSFERS_PER_SESSION,
    TRANSFER_WINDOW_BYTES,
)
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Fail


class Content(Protocol):
    """One that is under way."""

    def failed(self, why: Fail) -> None:
        """Nothing more comes of it."""


class Transfers:
    """Those of one connection, by their numbers."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self._last = 0
        self._uploads: dict[int, Upload] = {}
        self._downloads: dict[int, Download] = {}
        self._wait_for_room: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        """An upload is ahead of the disk."""
        return bool(self._uploads) and any(upload.is_full for upload in self._uploads.values())

    @property
    def is_finishing(self) -> bool:
        """A message is here, and its content is not on the disk yet: what comes behind it comes later."""
        return bool(self._uploads) and any(upload.is_ended for upload in self._uploads.values())

    @property
    def has_refused(self) -> bool:
        """A download was refused for now."""
        return bool(self._downloads) and any(download.is_refused for download in self._downloads.values())

    def ask_again(self) -> None:
        """What was refused for now may be possible by now."""
        for download in list(self._downloads.values()):
            if download.is_refused:
                download.ask()

    def has_room(self, then: Callable[[], None]) -> bool:
        """Whether one more can be read; if not, `then` is called when it can."""
        if len(self._downloads) < MAX_TRANSFERS_PER_SESSION // 2:
            return True
        self._wait_for_room[then] = None
        return False

    def number(self, content: Upload | Download) -> int:
        self._last += 1
        if isinstance(content, Upload):
            self._uploads[self._last] = content
        else:
            self._downloads[self._last] = content
        return self._last

    def over(self, number: int) -> None:
        self._uploads.pop(number, None)
        if self._downloads.pop(number, None) is not None and self._wait_for_room:
            waiting, self._wait_for_room = self._wait_for_room, {}
            for then in waiting:
                then()

    def handle(self, effect: AnySessionEffect) -> bool:
        """Whether it was about a content."""
        if isinstance(effect, commands.HandChunk):
            if download := self._downloads.get(effect.transfer):
                download.chunk(effect)
        elif isinstance(effect, commands.TellAdvance):
            if upload := self._uploads.get(effect.transfer):
                upload.advanced(effect.written)
        elif isinstance(effect, commands.EndTransfer):
            content: Content | None = self._uploads.get(effect.transfer) or self._downloads.get(
                effect.transfer
            )
            if content is not None:
                content.failed(Fail(0, effect.code, effect.sentence))
        else:
            return False
        return True


class Upload:
    """The content of one message that a client sends."""

    def __init__(self, transfers: Transfers, address: str) -> None:
        self._transfers = transfers
        self._proxy = transfers.proxy
        self._transfer = transfers.number(self)
        self._file = b""  # once it is there
        self._buffer = bytearray()
        self._sent = self._written = self._checksum = 0
        self._then: Callable[[LargeReference | Fail], None] | None = None
        self._has_ended = False
        self._why: Fail | None = None
        request = self._proxy.ask(self._begun)
        self._proxy.command(commands.BeginUpload(request, self._transfer, address, b""))

    @property
    def is_full(self) -> bool:
        return len(self._buffer) > FOREIGN_HELD_BYTES

    @property
    def is_ended(self) -> bool:
        return self._then is not None

    def _begun(self, answer: Answer) -> None:
        if isinstance(answer, Fail):
            self.failed(answer)
        elif self._why is None:
            assert isinstance(answer, commands.Tell)
            self._file = answer.body["file"]
            self._go_on()

    def feed(self, data: bytes) -> None:
        if self._why is None:
            self._buffer += data
            self._go_on()

    def end(self, then: Callable[[LargeReference | Fail], None]) -> None:
        """All of it was fed. `then`: where it is, when it is on disk, or why it is not."""
        if self._why is not None:
            then(self._why)
            return
        self._then = then
        self._go_on()

    def advanced(self, written: int) -> None:
        self._written = written
        self._go_on()

    def _go_on(self) -> None:
        """Chunks go as far as the disk allows, and not before they are worth a write."""
        if not self._file or self._has_ended:
            return
        buffer, least = self._buffer, 1 if self.is_ended else CHUNK_BYTES
        while len(buffer) >= least and self._sent < self._written + TRANSFER_WINDOW_BYTES:
            chunk = bytes(buffer[:CHUNK_BYTES])
            del buffer[:CHUNK_BYTES]
            self._checksum = crc32c(chunk, self._checksum)
            self._proxy.command(commands.SendChunk(self._transfer, self._sent, memoryview(chunk)))
            self._sent += len(chunk)
        if self.is_ended and not buffer:
            self._has_ended = True
            request = self._proxy.ask(self._stored)
            self._proxy.command(commands.EndUpload(request, self._transfer, self._sent, self._checksum))

    def _stored(self, answer: Answer) -> None:
        if isinstance(answer, Fail):
            self.failed(answer)
        else:
            self._over(LargeReference(self._file, self._sent, self._checksum))

    def failed(self, why: Fail) -> None:
        if self._why is None:
            self._why = why
            self._buffer.clear()
            self._over(why)

    def drop(self) -> None:
        """Its message does not come."""
        if self._why is None:
            self._why = Fail(0, "upload-unknown", "the message was given up")
            self._then = None
            self._buffer.clear()
            self._transfers.over(self._transfer)
            self._proxy.command(commands.DropUpload(self._transfer))

    def _over(self, outcome: LargeReference | Fail) -> None:
        then, self._then = self._then, None
        self._transfers.over(self._transfer)
        if then is not None:
            then(outcome)


class Download:
    """The content of one message that a client gets, once it is its turn. `before` and `after` are the rest of it."""

    def __init__(self, reference: LargeReference, address: str, before: bytes, after: bytes) -> None:
        self.reference = reference
        self.before = before
        self.after = after
        self.delivery: Any = None
        self._address = address
        self._transfers: Transfers | None = None
        self._transfer = 0
        self._offset = self._allowed = self._checksum = 0
        self.is_refused = False  # for now
        self._on_chunk: Callable[[bytes], None] = lambda _: None
        self._on_end: Callable[[str], None] = lambda _: None

    def begin(
        self, transfers: Transfers, on_chunk: Callable[[bytes], None], on_end: Callable[[str], None]
    ) -> None:
        """`on_end`: all of it was there; or why not."""
        self._transfers, self._on_chunk, self._on_end = transfers, on_chunk, on_end
        self._transfer = transfers.number(self)
        if not self.reference.size:
            self._over("")
            return
        self.ask()

    def ask(self) -> None:
        """For the rest of it."""
        assert self._transfers is not None, "it has begun, and is not over"
        self.is_refused = False
        self._allowed = self._offset + TRANSFER_WINDOW_BYTES
        proxy, file = self._transfers.proxy, self.reference.file
        request = proxy.ask(self._begun)
        proxy.command(
            commands.BeginFetch(request, self._transfer, self._address, file, self._offset, self._allowed)
        )

    def _begun(self, answer: Answer) -> None:
        if isinstance(answer, Fail):
            self.failed(answer)

    def chunk(self, chunk: commands.HandChunk) -> None:
        if chunk.offset != self._offset:
            return
        data = bytes(chunk.data)
        self._offset += len(data)
        self._checksum = crc32c(data, self._checksum)
        self._on_chunk(data)
        if self._offset >= self.reference.size:
            self.stop()
            whole = (self._offset, self._checksum) == (self.reference.size, self.reference.checksum)
            self._on_end("" if whole else "its content is damaged")

    def allow_more(self) -> None:
        """The network has all that came so far."""
        if self._transfers is None or self._allowed - self._offset > TRANSFER_WINDOW_BYTES // 2:
            return
        self._allowed = self._offset + TRANSFER_WINDOW_BYTES
        self._transfers.proxy.command(commands.AllowFetch(self._transfer, self._allowed))

    def stop(self) -> None:
        """No more of it is wanted."""
        transfers, self._transfers = self._transfers, None
        if transfers is not None:
            transfers.proxy.command(commands.EndFetch(self._transfer))
            transfers.over(self._transfer)

    def failed(self, why: Fail) -> None:
        if why.code in REFUSED_FOR_NOW:
            self.is_refused = True
        else:
            self._over(why.sentence)

    def _over(self, why: str) -> None:
        transfers, self._transfers = self._transfers, None
        if transfers is not None:
            transfers.over(self._transfer)
            self._on_end(why)

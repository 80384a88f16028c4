"""The large store of a message manager (M6): carries out what uploads and downloads want done with files.

A shell around `Uploads`, `Fetches` and `LargeReferences`. What it adds is the order on disk: a message
refers to a file only after the file is durable, and a file goes only after the log that ended its last
message is durable. A crash therefore leaves files without messages, which the next start removes, and never
a message without its file.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

from heliograph.bus.commands import (
    ChunkSent,
    Command,
    FetchAllowed,
    FetchBegun,
    FetchEnded,
    UploadBegun,
    UploadDropped,
    UploadEnded,
)
from heliograph.bus.interface import Bus
from heliograph.destinations.effects import Multicast
from heliograph.destinations.large_effects import (
    AnyLargeEffect,
    CloseFile,
    FileFailed,
    FileRead,
    FileReopened,
    FileStored,
    FileWritten,
    MakeFile,
    ReadFailed,
    ReadFile,
    RemoveFile,
    ReopenFile,
    StoreFile,
    WriteFile,
)
from heliograph.destinations.large_fetches import Fetches
from heliograph.destinations.large_references import LargeReferences
from heliograph.destinations.large_uploads import Uploads
from heliograph.journal.workers import Worker
from heliograph.model.block import Block
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId, LargeReference, reference_of
from heliograph.nodes.awaiting import answer_to
from heliograph.nodes.large_files import LargeFiles, storage_fault
from heliograph.nodes.tick import Tick

log = logging.getLogger("heliograph.large")

_UPLOADS = (UploadBegun, ChunkSent, UploadEnded, UploadDropped)
FETCHES = (FetchBegun, FetchAllowed, FetchEnded)
# Stands for the session of a file that another manager brought, until its message is here.
_FROM_ANOTHER = SessionId(bytes(16))
_Outcome = FileWritten | FileReopened | FileStored
CONCERNED = (*_UPLOADS, *FETCHES)


class LargeStore:
    """Files, threads, and the machines that decide about them."""

    def __init__(
        self,
        files: LargeFiles,
        references: LargeReferences,
        *,
        bus: Bus,
        tick: Tick,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._files = files
        self._references = references
        self._bus = bus
        self._tick = tick
        self._uploads = Uploads()
        self._fetches = Fetches(references.is_referenced)
        self._examiner = files.disk.worker("large-examiner", loop)
        self._writer = files.disk.worker("large-writer", loop)
        self._reader = files.disk.worker("large-reader", loop)
        self._remover = files.disk.worker("large-remover", loop)
        # Files that go when the log is stored up to the LSN beside them.
        self._doomed: deque[tuple[int, FileId]] = deque()
        # Content that messages refer to and that is not here yet, and who is told whether it came.
        self._awaited: dict[FileId, tuple[LargeReference, Callable[[bool], None]]] = {}
        self._stored_lsn = 0
        self._has_stopped = False
        self.has_lost_some = False  # files of messages that were there at the start

    # ---- life

    def start(
        self,
        is_remembered: Callable[[SessionId], bool],
        refers_to: Callable[[FileId], LargeReference | None] | None = None,
    ) -> None:
        """After recovery: keep what messages refer to, and what a client may go on with; the rest goes.

        `refers_to`: of a manager that may have had a message before its content; what it has of that is looked at.
        """
        found = self._files.open()
        for file, session in list(found.items()):
            if self._references.is_referenced(file):
                reference = refers_to(file) if session and refers_to is not None else None
                if reference is not None and not self._is_whole(reference):
                    self._files.is_not_whole(file, reference.size)
                    del found[file]
                    continue
                if file in self._references.kept:
                    self._files.is_known_whole(file)
                self._publish(file)
            elif is_remembered(session):
                self._uploads.found(file, session)
            else:
                self._carry_out([RemoveFile(file)])
        if self._files.halves():  # no thread starts before there is something to do for it
            self._remover.post(self._files.remove_halves, _ignore)
        missing = [file for file in self._references.files() if file not in found]
        if missing:
            self.has_lost_some = True
            log.error("%d large messages have lost their files", len(missing))

    def _is_whole(self, reference: LargeReference) -> bool:
        return self._files.is_whole(FileId(reference.file), reference.size, reference.checksum)

    def stop(self) -> None:
        """What was begun is finished; unfinished uploads stay for the next start."""
        self._has_stopped = True
        self._files.hurry()
        for worker in (self._examiner, self._writer, self._reader, self._remover):
            worker.stop()

    # ---- from the bus

    def on_command(self, command: Command) -> None:
        if isinstance(command, _UPLOADS):
            self._carry_out(self._uploads.handle(command))
        elif isinstance(command, FETCHES):
            self._carry_out(self._fetches.handle(command))

    def session_lost(self, session: SessionId) -> None:
        self._carry_out(self._fetches.session_gone(session))

    def session_closed(self, session: SessionId) -> None:
        self._carry_out([*self._fetches.session_gone(session), *self._uploads.session_ended(session)])

    def expire(self, is_awaited: Callable[[SessionId], bool]) -> None:
        """Drop the uploads of sessions that will not go on with them."""
        self._carry_out(self._uploads.expire(is_awaited))

    # ---- messages

    def knows(self, reference: LargeReference) -> bool:
        """Whether a message may refer to this: all of it is here."""
        return self._references.is_referenced(FileId(reference.file)) or self._uploads.is_complete(reference)

    def stored(self, block: Block) -> None:
        """A record with a reference was appended."""
        file = FileId(reference_of(block).file)
        self._references.persisted(block.position, file)
        if self._uploads.published(file):
            self._publish(file)

    def accepted(self, reference: LargeReference) -> None:
        """A message with this reference was taken; if nobody wants it, its content is not wanted either."""
        file = FileId(reference.file)
        if self._uploads.published(file) and not self._references.is_referenced(file):
            self._carry_out(self._fetches.remove(file))

    # ---- the same message elsewhere

    def refers(self, reference: LargeReference, then: Callable[[bool], None]) -> bool | None:
        """Another manager has a message that refers to a file. True: it is here. None: it is on its way to the disk,
        and `then` is told whether it came there. False: somebody has to bring it, and then `then` is told.

        What an upload left that was interrupted here, by a restart or a gap, is not it.
        """
        file = FileId(reference.file)
        is_complete, is_coming = self._uploads.is_complete(reference), self._uploads.is_coming(reference)
        was_upload = self._uploads.published(file)
        if is_complete or (not was_upload and self._files.has(file)):
            self._publish(file)
            return True
        self._awaited[file] = reference, then
        return None if is_coming else False

    async def bring(self, reference: LargeReference, pieces: AsyncIterator[bytes]) -> None:
        """Take in a file that another manager has. Raises StorageFull, OSError, and Unavailable if what came is not
        what the message refers to."""
        file = FileId(reference.file)
        self._uploads.published(file)  # whatever was sent of it here
        await answer_to(partial(self._examiner.post, _nothing))  # behind whatever it looks at
        await self._do(lambda: self._files.discard(file))
        await self._do(lambda: self._files.make(file, _FROM_ANOTHER))
        try:
            offset = 0
            async for piece in pieces:
                await self._do(partial(self._files.write, file, offset, piece))
                offset += len(piece)
            checksum = await self._do(lambda: self._files.store(file))
            if (offset, checksum) != (reference.size, reference.checksum):
                raise Unavailable("the content of a large message came damaged", code="large-damaged")
        except BaseException as error:
            if not self._has_stopped:  # else the folder is another's, who looks at what is there
                self._writer.post(lambda: self._files.discard(file), _ignore)  # before it is brought again
            if isinstance(error, KeyError):
                raise Unavailable("nobody refers to it any more", code="large-unknown") from None
            raise
        self._publish(file)
        self._came(file, reference.checksum)

    async def _do(self, job: Callable[[], object]) -> object:
        return await answer_to(partial(self._writer.post, job))

    async def read(self, file: FileId, offset: int, size: int) -> bytes:
        """For another manager. Raises OSError."""
        read: bytes = await answer_to(
            partial(self._reader.post, lambda: self._files.read(file, offset, size))
        )
        return read

    def lacks(self, files: Iterable[FileId]) -> list[FileId]:
        return [file for file in files if not self._files.has(file)]

    def _came(self, file: FileId, checksum: int | None) -> None:
        """A file is on disk, with this content, or will not be."""
        awaited = self._awaited.get(file)
        if awaited is None:
            return
        reference, then = awaited
        is_here = checksum == reference.checksum
        if is_here:
            del self._awaited[file]
            self._publish(file)
        then(is_here)

    def takes_over(self) -> None:
        """Whoever sends to us now hears how far it is."""
        self._carry_out(self._uploads.advances())

    def keep(self, files: dict[FileId, None]) -> None:
        """Whoever set aside a branch of the log needs these. What nobody does any more goes."""
        former, self._references.kept = self._references.kept, files
        self.counted_anew(list(former), 1)

    def references(self) -> list[FileId]:
        return self._references.files()

    def counted_anew(self, before: list[FileId], next_lsn: int) -> None:
        """Of these, which were referred to, some may be no more; the log says so up to here."""
        for file in before:
            if not self._references.is_referenced(file):
                self._doomed.append((next_lsn - 1, file))

    # ---- the order on disk

    def end_of_tick(self, next_lsn: int) -> None:
        """Files that lost their last message in this tick: the log says so up to here."""
        for file in self._references.take_unreferenced():
            self._doomed.append((next_lsn - 1, file))
        if self._doomed:
            self._remove_doomed()

    def log_stored(self, lsn: int) -> None:
        self._stored_lsn = lsn
        if self._doomed:
            self._remove_doomed()

    def _remove_doomed(self) -> None:
        while self._doomed and self._doomed[0][0] <= self._stored_lsn:
            self._carry_out(self._fetches.remove(self._doomed.popleft()[1]))

    # ---- carrying out

    def _carry_out(self, effects: list[AnyLargeEffect]) -> None:
        for effect in effects:
            if type(effect) is Multicast:
                self._bus.multicast(effect.command)
            else:
                self._post(effect)
        self._tick.ask()

    def _post(self, effect: AnyLargeEffect) -> None:
        files = self._files
        match effect:
            case WriteFile(file, offset, data):
                self._write(file, lambda: FileWritten(file, *files.write(file, offset, data)))
            case ReadFile(fetch, file, offset, size):
                self._read(fetch, lambda: files.read(file, offset, size))
            case MakeFile(file, session):
                self._write(file, lambda: files.make(file, session))
            case ReopenFile(file):
                # It reads all that is there, and gigabytes take long: no other upload waits for that.
                self._write(file, lambda: FileReopened(file, files.reopen(file)), self._examiner)
            case StoreFile(file):
                self._write(file, lambda: FileStored(file, files.store(file)))
            case CloseFile(file):
                self._reader.post(lambda: files.close_reading(file), _ignore)
            case RemoveFile(file):
                # The session of an upload may end when its message came another way, from another part.
                is_needed = self._references.is_referenced(file)
                self._publish(file) if is_needed else self._remove(file)

    def _write(self, file: FileId, job: Callable[[], _Outcome | None], worker: Worker | None = None) -> None:
        def then(result: _Outcome | Exception | None) -> None:
            if isinstance(result, Exception):
                if not isinstance(result, KeyError):  # else it was dropped, and this was still under way
                    self._carry_out(self._uploads.handle(FileFailed(file, *storage_fault(result))))
                    self._came(file, None)
            elif file in self._awaited:  # it is no upload any more
                if isinstance(result, FileStored):
                    self._came(file, result.checksum)
            elif result is not None:
                self._carry_out(self._uploads.handle(result))

        (worker or self._writer).post(job, then)

    def _read(self, fetch: int, job: Callable[[], bytes]) -> None:
        def then(result: bytes | Exception) -> None:
            if isinstance(result, Exception):
                self._carry_out(self._fetches.handle(ReadFailed(fetch, *storage_fault(result))))
            else:
                self._carry_out(self._fetches.handle(FileRead(fetch, result)))

        self._reader.post(job, then)

    def _publish(self, file: FileId) -> None:
        self._writer.post(lambda: self._files.publish(file), _report)

    def _remove(self, file: FileId) -> None:
        """Behind whatever the writer still has to do with it."""

        def then(result: Exception | None) -> None:
            name = self._files.name_of(file)
            self._remover.post(lambda: self._files.remove(file, name), _report)

        self._writer.post(lambda: self._files.close_writing(file), then)

    def stats(self) -> dict[str, int]:
        return {
            "large_bytes": self._files.used_bytes,
            "uploads": len(self._uploads),
            "downloads": len(self._fetches),
        }


def checked_reference(block: Block) -> LargeReference | None:
    """The reference of a large block, None where it has none that can be read."""
    try:
        return reference_of(block)
    except ClientFault:
        return None


def _ignore(_result: object) -> None:
    pass


def _nothing() -> None:
    """A job that takes its turn."""


def _report(result: object) -> None:
    if isinstance(result, Exception):
        log.error("a file of the large store could not be renamed or removed: %s", result)

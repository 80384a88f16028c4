"""When and where the disk is asked to make writes durable: in the loop while quick, else on one thread.

One sync runs at a time, for everything written before it began. Whatever is written meanwhile waits for the
next: that is the group commit. A sealed segment is synced and cut to its size in the same job that syncs its
successor, so durability is never claimed across a roll unless both are safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from heliograph.journal.directory import Directory

# The weight of one sync in the moving average of their times.
_WEIGHT: Final = 0.125


class Sealed(msgspec.Struct, frozen=True):
    """A segment that is written to no more."""

    descriptor: int
    number: int
    size: int


class Synced(msgspec.Struct):
    """What a sync made durable: everything up to this LSN and this position."""

    lsn: int
    position: int
    sealed: list[Sealed]
    seconds: float = 0.0


class Syncer:
    """Owns the descriptors of sealed segments until they are safe.

    Reports every sync, or what broke it, to `on_done`.
    """

    def __init__(
        self,
        directory: Directory,
        loop: asyncio.AbstractEventLoop,
        *,
        inline_bytes: int,
        inline_seconds: float,
        on_done: Callable[[Synced | Exception], None],
    ) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._worker = self._disk.worker("journal-sync", loop)
        self._inline_bytes = inline_bytes
        self._inline_seconds = inline_seconds
        self._on_done = on_done
        self._sealed: list[Sealed] = []
        self.running = False
        self._loop = loop
        self._began = 0.0
        self.average_seconds = 0.0
        self.inline_count = 0
        self.thread_count = 0

    @property
    def has_sealed(self) -> bool:
        return bool(self._sealed)

    @property
    def age(self) -> float:
        """For how many seconds the one that runs has gone on."""
        return self._loop.time() - self._began if self.running else 0.0

    def seal(self, descriptor: int, number: int, size: int) -> None:
        """This segment is written to no more and has this size. The next sync covers it."""
        self._sealed.append(Sealed(descriptor, number, size))

    def start(self, descriptor: int, size: int, lsn: int, position: int) -> None:
        """Make `size` bytes, written since the last sync began, durable."""
        assert not self.running
        job = Synced(lsn, position, self._sealed)
        if not self._sealed and size < self._inline_bytes and self.average_seconds < self._inline_seconds:
            self.inline_count += 1
            try:
                started = self._disk.seconds()
                self._disk.fdatasync(descriptor)
                job.seconds = self._disk.seconds() - started
            except OSError as error:
                self._on_done(error)
                return
            self._done(job)
            return
        self.thread_count += 1
        self.running = True
        self._began = self._loop.time()
        self._sealed = []
        self._worker.post(lambda: self._run(descriptor, job), self._returned)

    def stop(self) -> None:
        """Let the thread finish what it has."""
        self._worker.stop()

    def finish(self, descriptor: int) -> None:
        """After `stop`: make everything durable here and now."""
        sealed, self._sealed = self._sealed, []
        self._run(descriptor, Synced(0, 0, sealed))

    def _run(self, descriptor: int, job: Synced) -> Synced:
        started = self._disk.seconds()
        for sealed in job.sealed:
            self._disk.fdatasync(sealed.descriptor)
        self._disk.fdatasync(descriptor)
        if job.sealed:
            self._directory.sync()
        job.seconds = self._disk.seconds() - started
        for sealed in job.sealed:
            self._disk.truncate(sealed.descriptor, sealed.size)
            self._disk.close(sealed.descriptor)
        return job

    def _returned(self, result: Synced | Exception) -> None:
        self.running = False
        if isinstance(result, Synced):
            self._done(result)
        else:
            self._on_done(result)

    def _done(self, job: Synced) -> None:
        self.average_seconds += (job.seconds - self.average_seconds) * _WEIGHT
        self._on_done(job)

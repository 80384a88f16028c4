"""What the journal stories share: a journal on a real loop and disk, and a listener that takes notes."""

from __future__ import annotations

import asyncio
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from heliograph.journal.files import Journal, JournalSettings, RecoveryReport
from heliograph.journal.records import Record, RecordKind
from heliograph.model.block import pack_lone
from heliograph.model.errors import HeliographError, StorageFull
from heliograph.model.ids import LaneId

LANE = LaneId(bytes(range(16)))
PUBLISHED = RecordKind.PUBLISHED
DONE = RecordKind.DONE
KIB = 1024


def run(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition of the real world, with a deadline."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


def block(sequence: int, size: int = 40) -> bytes:
    """A block that differs from every other, as random as a body usually is."""
    body = (sequence.to_bytes(4, "little") + b"\x9d\xfe\x11") * (size // 7 + 1)
    return pack_lone(body[:size], lane=LANE, sequence=sequence)


class Notes:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.stored = 0
        self.heard: list[int] = []
        self.refused: list[int] = []
        self.failures: list[HeliographError | OSError] = []

    def journal_stored(self, lsn: int) -> None:
        assert lsn > self.stored, "stored marks climb"
        self.stored = lsn
        self.heard.append(lsn)

    def journal_refused(self, lsns: list[int], error: StorageFull) -> None:
        self.refused += lsns

    def journal_failed(self, error: HeliographError | OSError) -> None:
        self.failures.append(error)


class Opened:
    """A journal with all it handed over at its start."""

    def __init__(self, path: pathlib.Path, settings: JournalSettings | None = None) -> None:
        self.notes = Notes()
        self.state: bytes | None = None
        self.records: list[tuple[int, int, int, int, bytes]] = []
        self.positions: dict[int, int] = {}
        self.journal = Journal(
            path,
            # However busy the machine's disk is, small batches are synced in the loop.
            settings=settings or JournalSettings(segment_bytes=64 * KIB, inline_sync_seconds=60.0),
            listener=self.notes,
            loop=asyncio.get_running_loop(),
        )
        self.report: RecoveryReport = self.journal.recover(on_snapshot=self._snapshot, on_record=self._record)

    def _snapshot(self, state: memoryview) -> None:
        self.state = bytes(state)

    def _record(self, record: Record) -> None:
        self.records.append((record.kind, record.destination, record.list, record.lsn, bytes(record.payload)))
        self.positions[record.lsn] = record.position

    def put(self, payload: bytes, *, kind: int = PUBLISHED, bulky: bool = True, wait: bool = False) -> int:
        return self.journal.append(kind, 1, 2, (payload,), len(payload), bulky=bulky, wait=wait)

    async def load(self, positions: list[int]) -> Any:
        found = asyncio.get_running_loop().create_future()
        self.journal.load(positions, found.set_result)
        return await found

    async def store(self, payload: bytes) -> int:
        """Append one record and wait until it is stored."""
        lsn = self.journal.next_lsn
        position = self.put(payload)
        self.journal.end_of_tick()
        await until(lambda: self.notes.stored >= lsn)
        return position


def attempt(path: pathlib.Path, settings: JournalSettings) -> Opened | HeliographError:
    """Open a journal that may be damaged: what it handed over, or why it refused."""
    try:
        return Opened(path, settings)
    except HeliographError as error:
        return error


@contextmanager
def quick_directory() -> Iterator[pathlib.Path]:
    """A directory in memory where there is one: exhaustive tests open thousands of journals."""
    memory = pathlib.Path("/dev/shm")
    path = pathlib.Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def contents(path: pathlib.Path) -> dict[str, bytes]:
    """Everything in the directory: what a crash at this moment would leave, if the system survives it."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name != "lock"}


def restore(path: pathlib.Path, image: dict[str, bytes]) -> None:
    for file in path.iterdir():
        if file.name not in image:
            file.unlink()
    for name, raw in image.items():
        (path / name).write_bytes(raw)

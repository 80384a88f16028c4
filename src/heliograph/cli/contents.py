"""Contents of messages from files and to files, however large, with a bar where a person is watching."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.client import Message

# Below this a bar would flash by.
_WORTH_A_BAR_BYTES = 64 * 1024 * 1024
Advance = Callable[[int], None]


@contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Yields what is told how far it has come, in bytes. Total 0: nobody knows it."""
    if not sys.stderr.isatty() or 0 < total < _WORTH_A_BAR_BYTES:
        yield lambda _position: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total or None)
        yield lambda position: bar.update(task, completed=position)


class WatchedFile:
    """A file that says how far it was read; it may be read again from any place if the file may."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self._file = file
        self._advance = advance
        self.position = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.position += len(data)
        self._advance(self.position)
        return data

    def seekable(self) -> bool:
        return self._file.seekable()

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> int:
        self.position = self._file.seek(position)
        return self.position


@contextmanager
def opened_for_sending(name: str) -> Iterator[tuple[BinaryIO, int]]:
    """A file and its size; `-` is standard input, whose size nobody knows. Raises ClientFault."""
    if name == "-":
        yield sys.stdin.buffer, 0
        return
    try:
        size = Path(name).stat().st_size
        with Path(name).open("rb") as file:
            yield file, size
    except OSError as fault:
        raise ClientFault(f"{name} cannot be read: {fault.strerror}", code="usage") from None


class Output:
    """Where contents go: a folder, with a file for each message, or one file for one message."""

    def __init__(self, given: str) -> None:
        self.path = Path(given)
        self.is_folder = self.path.is_dir() or given.endswith(os.sep)

    def place_of(self, message: Message) -> Path:
        if not self.is_folder:
            return self.path
        return self.path / message.id.replace("/", "_")

    async def save(self, message: Message) -> Path:
        """Write the content of a message. It is on disk, and has its name, when this returns.

        Raises ClientFault where it cannot be written; half a file is never left under its name.
        """
        place = self.place_of(message)
        half = place.with_name(place.name + ".part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with half.open("wb") as file:
                await _copy(message, file)
                file.flush()
                os.fsync(file.fileno())
            half.replace(place)
        except OSError as fault:
            raise ClientFault(f"{place} cannot be written: {fault.strerror}", code="usage") from None
        finally:
            with suppress(OSError):
                half.unlink()
        return place


async def _copy(message: Message, file: BinaryIO) -> None:
    async with message.open() as stream:
        with progress("receiving", stream.size) as advance:
            written = 0
            async for data in stream:
                file.write(data)
                written += len(data)
                advance(written)


async def write_large(message: Message, write: Callable[[bytes], object]) -> None:
    """The content of a large message as it is, piece by piece."""
    async with message.open() as stream:
        async for data in stream:
            write(data)

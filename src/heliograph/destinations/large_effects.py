"""What uploads and downloads of very large messages want done with files, and what became of it."""

from __future__ import annotations

import msgspec

from heliograph.destinations.effects import Multicast
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId


class FileEffect(msgspec.Struct, gc=False):
    """Something to do with a file of the large store. Of one file they are carried out in order."""


class MakeFile(FileEffect):
    """Begin an empty file, named after its session too: a restart knows from that whose it may be."""

    file: FileId
    session: SessionId


class ReopenFile(FileEffect):
    """Go on with a file that an earlier run of the server began; `FileReopened` says how much there is."""

    file: FileId


class WriteFile(FileEffect):
    """Append at `offset`, which is where the file ends; `FileWritten` follows."""

    file: FileId
    offset: int
    data: bytes | memoryview


class StoreFile(FileEffect):
    """All of it was written: force it to disk, name included; `FileStored` follows."""

    file: FileId


class RemoveFile(FileEffect):
    """Nobody needs it."""

    file: FileId


class ReadFile(FileEffect):
    """Read up to `size` bytes; `FileRead` follows, with the same `fetch`."""

    fetch: int
    file: FileId
    offset: int
    size: int


class CloseFile(FileEffect):
    """Nobody reads it for now."""

    file: FileId


AnyLargeEffect = MakeFile | ReopenFile | WriteFile | StoreFile | RemoveFile | ReadFile | CloseFile | Multicast


class FileEvent(msgspec.Struct, gc=False):
    """What became of a file effect."""


class FileReopened(FileEvent):
    """An unfinished file is open again and has this many bytes."""

    file: FileId
    size: int


class FileWritten(FileEvent):
    """The file is written up to here, and forced to disk up to there."""

    file: FileId
    written: int
    durable: int


class FileStored(FileEvent):
    """The file is on disk, and this is the CRC-32C of what was written to it."""

    file: FileId
    checksum: int


class FileFailed(FileEvent):
    """Making, writing or storing a file failed."""

    file: FileId
    code: str
    sentence: str


class FileRead(FileEvent):
    """Bytes of a file; none at its end."""

    fetch: int
    data: bytes


class ReadFailed(FileEvent):
    """A file could not be read."""

    fetch: int
    code: str
    sentence: str

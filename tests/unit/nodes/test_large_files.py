"""Files of the large store as the disk has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crc32c import crc32c

from heliograph.journal.disk import Disk
from heliograph.model.errors import StorageFull
from heliograph.model.ids import SessionId
from heliograph.model.large import FileId
from heliograph.model.limits import LARGE_REMOVE_BYTES, LARGE_SYNC_BYTES
from heliograph.nodes.large_files import LargeFiles, storage_fault

pytestmark = pytest.mark.req("M6")

FILE = FileId(b"f" * 16)
SESSION = SessionId(b"s" * 16)


def files_in(folder: Path, *, quota_bytes: int = 0, reserve_bytes: int = 0) -> LargeFiles:
    files = LargeFiles(folder / "large", forces=True, quota_bytes=quota_bytes, reserve_bytes=reserve_bytes)
    files.open()
    return files


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "large"))


def test_what_is_written_is_read_and_its_checksum_is_that_of_all(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.make(FILE, SESSION)
    assert files.write(FILE, 0, b"abc")[0] == 3
    assert files.write(FILE, 3, memoryview(b"def"))[0] == 6
    assert files.store(FILE) == crc32c(b"abcdef")
    assert files.read(FILE, 2, 100) == b"cdef"
    assert files.read(FILE, 6, 100) == b""


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 300_000])
def test_any_part_of_a_file_can_be_read(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    files = files_in(tmp_path)
    files.make(FILE, SESSION)
    files.write(FILE, 0, content)
    files.store(FILE)
    for offset in (0, 1, 4095, 4096, 4097, size - 1, size, size + 5000):
        for length in (1, 100, 4096, 262_144):
            assert files.read(FILE, offset, length) == content[offset : offset + length]


def test_a_long_file_is_forced_to_disk_in_steps(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.make(FILE, SESSION)
    half = bytes(LARGE_SYNC_BYTES // 2)
    assert files.write(FILE, 0, half) == (len(half), 0)
    assert files.write(FILE, len(half), half) == (LARGE_SYNC_BYTES, LARGE_SYNC_BYTES)


def test_another_run_of_the_server_finds_a_file_with_its_session_and_goes_on(tmp_path: Path) -> None:
    first = files_in(tmp_path)
    first.make(FILE, SESSION)
    first.write(FILE, 0, b"abc")
    again = LargeFiles(tmp_path / "large", forces=True, quota_bytes=0, reserve_bytes=0)
    assert again.open() == {FILE: SESSION}
    assert again.reopen(FILE) == 3
    again.write(FILE, 3, b"def")
    assert again.store(FILE) == crc32c(b"abcdef")
    assert again.used_bytes == 6


def test_a_file_that_a_message_refers_to_is_nobodys_upload(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.make(FILE, SESSION)
    files.write(FILE, 0, b"abc")
    files.store(FILE)
    files.publish(FILE)
    files.publish(FILE)
    assert files.read(FILE, 0, 3) == b"abc"
    again = LargeFiles(tmp_path / "large", forces=True, quota_bytes=0, reserve_bytes=0)
    assert again.open() == {FILE: b""}


def test_a_reader_finds_a_file_that_is_just_being_given_its_other_name(tmp_path: Path) -> None:
    """The writer has renamed it, and has not come to note it: that is another thread's business."""
    found = []

    class Between(Disk):
        def rename(self, path: Path, to: Path) -> None:
            super().rename(path, to)
            found.append(files.read(FILE, 0, 10))

    files = LargeFiles(tmp_path / "large", forces=True, quota_bytes=0, reserve_bytes=0, disk=Between())
    files.open()
    files.make(FILE, SESSION)
    files.write(FILE, 0, b"abc")
    files.store(FILE)
    files.publish(FILE)
    assert found == [b"abc"]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "notes.txt").write_text("mine")
    files = files_in(tmp_path)
    files.remove_halves()
    assert names(tmp_path) == ["notes.txt"]


def test_a_removed_file_is_gone_however_large(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.make(FILE, SESSION)
    files.close_writing(FILE)
    (path,) = (tmp_path / "large").iterdir()
    os.truncate(path, 3 * LARGE_REMOVE_BYTES + 1)
    files.remove(FILE, files.name_of(FILE))
    files.remove(FILE, files.name_of(FILE))
    assert names(tmp_path) == []


def test_what_a_crash_left_of_a_removal_is_removed_and_never_taken_for_an_upload(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / f"{FILE.hex()}.removed").write_bytes(b"half")
    files = LargeFiles(folder, forces=True, quota_bytes=0, reserve_bytes=0)
    assert files.open() == {}
    files.remove_halves()
    assert names(tmp_path) == []


def test_a_full_quota_refuses_and_lets_nothing_more_be_written(tmp_path: Path) -> None:
    files = files_in(tmp_path, quota_bytes=LARGE_SYNC_BYTES + 1)
    files.make(FILE, SESSION)
    files.write(FILE, 0, bytes(LARGE_SYNC_BYTES))
    with pytest.raises(StorageFull):
        files.write(FILE, LARGE_SYNC_BYTES, b"x")
    with pytest.raises(KeyError):
        files.write(FILE, LARGE_SYNC_BYTES, b"x")
    files.remove(FILE, files.name_of(FILE))
    assert files.used_bytes == 0


def test_the_reserve_of_the_disk_is_not_touched(tmp_path: Path) -> None:
    files = files_in(tmp_path, reserve_bytes=2**60)
    files.make(FILE, SESSION)
    with pytest.raises(StorageFull) as refusal:
        files.write(FILE, 0, b"x")
    assert storage_fault(refusal.value)[0] == "storage-full"


def test_what_the_system_says_becomes_a_code() -> None:
    assert storage_fault(OSError(28, "No space left on device"))[0] == "storage-full"
    assert storage_fault(OSError(5, "Input/output error"))[0] == "disk-failed"

"""The folder of a store: every cut is recovered or refused, every flipped byte is refused, with the place."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest

from heliograph.client.forwarding.files import Record, StoreFiles
from heliograph.client.forwarding.ledger import Lane, Ledger, LedgerReplay
from heliograph.client.forwarding.records import (
    FRAME_HEADER_BYTES,
    SECTOR_BYTES,
    SEGMENT_HEADER_BYTES,
    RecordKind,
    offset_of,
)
from heliograph.model import block
from heliograph.model.errors import CorruptJournal, StorageFull, Unavailable
from heliograph.model.ids import ID_BYTES, LaneId

pytestmark = pytest.mark.req("U7")

NO_LANE = LaneId(bytes(ID_BYTES))


def a_block(first: int, count: int = 1, size: int = 10) -> bytes:
    bodies = [b"%08d" % sequence + b"." * size for sequence in range(first, first + count)]
    return block.pack(bodies, lane=NO_LANE, first=first)


def opened(folder: Path) -> tuple[StoreFiles, Ledger]:
    files = StoreFiles(folder)
    try:
        replay = LedgerReplay()
        files.recover(replay.frame, Ledger().state())
        return files, replay.finish(str(folder))
    except BaseException:
        files.close()
        raise


def new_lane(files: StoreFiles, ledger: Ledger, destination: str) -> Lane:
    lane = ledger.lane_to(destination)
    files.append([Record(RecordKind.LANE, 0, Ledger.lane_record(lane))])
    lane.is_recorded = True
    return lane


def store(files: StoreFiles, ledger: Ledger, lane: Lane, *counts: int, size: int = 10) -> None:
    """Blocks of so many messages, in one write."""
    firsts = [lane.stored + 1 + sum(counts[:index]) for index in range(len(counts))]
    payloads = [a_block(first, count, size) for first, count in zip(firsts, counts, strict=True)]
    positions = files.append([Record(RecordKind.BLOCK, lane.key, payload) for payload in payloads])
    for first, count, position, payload in zip(firsts, counts, positions, payloads, strict=True):
        ledger.added(lane, first, count, position, len(payload))


def a_store(folder: Path) -> list[int]:
    """Two lanes, some of it confirmed. Returns how long the file was after each write."""
    files, ledger = opened(folder)
    lengths = [files.current_bytes]
    one, two = new_lane(files, ledger, "queue:one"), new_lane(files, ledger, "queue:two")
    lengths.append(files.current_bytes)
    for lane, counts in ((one, (2, 1)), (two, (1,)), (one, (3,))):
        store(files, ledger, lane, *counts)
        lengths.append(files.current_bytes)
    ledger.confirm(one, 2)
    files.append([Record(RecordKind.CONFIRMED, 0, Ledger.confirmed_record([(one, 2)]))])
    lengths.append(files.current_bytes)
    files.close()
    return lengths


def segment(folder: Path, number: int = 1) -> Path:
    return folder / f"{number:08}.store"


def waiting(ledger: Ledger) -> dict[str, tuple[int, int]]:
    return {lane.destination: (lane.confirmed, lane.stored) for lane in ledger.lanes.values()}


def test_what_was_stored_is_there_again(tmp_path: Path) -> None:
    a_store(tmp_path)
    files, ledger = opened(tmp_path)
    assert waiting(ledger) == {"queue:one": (2, 6), "queue:two": (0, 1)}
    assert (ledger.messages, files.cut_bytes) == (5, 0)
    for lane in ledger.lanes.values():
        for entry in lane.entries_from(1):
            assert files.read(entry.position, entry.size) == a_block(entry.first, entry.messages)
    files.close()


@pytest.mark.slow
def test_a_file_cut_anywhere_is_recovered_to_its_last_whole_frame_or_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    lengths = a_store(whole)
    content = segment(whole).read_bytes()
    for length in range(len(content)):
        folder = tmp_path / f"{length}"
        folder.mkdir()
        segment(folder).write_bytes(content[:length])
        if length < lengths[0]:  # no crash leaves a segment without its state
            with pytest.raises(CorruptJournal) as refusal:
                opened(folder)
            assert refusal.value.position <= length
            continue
        files, ledger = opened(folder)
        stored = sum(lane.stored for lane in ledger.lanes.values())
        before = max(index for index, written in enumerate(lengths) if written <= length)
        # Whole writes are there; of the next one, perhaps its first frames.
        assert [0, 0, 3, 4, 7, 7][before] <= stored <= [0, 3, 4, 7, 7, 7][before]
        assert files.current_bytes <= length
        lane = ledger.lane_to("queue:new")
        files.append([Record(RecordKind.LANE, 0, Ledger.lane_record(lane))])
        store(files, ledger, lane, 1)
        expected = waiting(ledger)
        files.close()
        files, ledger = opened(folder)
        assert waiting(ledger) == expected
        assert files.cut_bytes == 0
        files.close()


def test_every_flipped_bit_is_refused_and_the_place_named(tmp_path: Path) -> None:
    a_store(tmp_path)
    path = segment(tmp_path)
    content = path.read_bytes()
    for place in range(len(content)):
        for bit in (1, 128):
            damaged = bytearray(content)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            with pytest.raises(CorruptJournal) as refusal:
                opened(tmp_path)
            assert refusal.value.path == str(path)
            assert refusal.value.position <= place
            assert path.read_bytes() == damaged, "what is refused is not touched"
    path.write_bytes(content)
    files, _ = opened(tmp_path)
    files.close()


def test_a_sector_that_was_never_written_is_cut_at_the_end_and_refused_before(tmp_path: Path) -> None:
    files, ledger = opened(tmp_path)
    lane = new_lane(files, ledger, "queue:one")
    for _ in range(3):
        store(files, ledger, lane, 1, size=4 * SECTOR_BYTES)
    end = files.current_bytes
    files.close()
    path = segment(tmp_path)
    content = path.read_bytes()
    entries = list(lane.entries_from(1))

    def zeroed(entry: int) -> bytes:
        start = (offset_of(entries[entry].position) // SECTOR_BYTES + 2) * SECTOR_BYTES
        return content[:start] + bytes(SECTOR_BYTES) + content[start + SECTOR_BYTES :]

    path.write_bytes(zeroed(1))
    with pytest.raises(CorruptJournal, match="had been stored") as refusal:
        opened(tmp_path)
    assert refusal.value.position == offset_of(entries[1].position)
    path.write_bytes(zeroed(2))
    files, ledger = opened(tmp_path)
    assert waiting(ledger) == {"queue:one": (0, 2)}
    assert files.cut_bytes == end - offset_of(entries[2].position)
    files.close()


def test_only_the_last_segment_may_be_torn_and_only_finished_ones_may_be_gone(tmp_path: Path) -> None:
    files, ledger = opened(tmp_path)
    lane = new_lane(files, ledger, "queue:one")
    for _ in range(3):
        store(files, ledger, lane, 2)
        files.begin_segment(ledger.state())
    files.close()
    content = segment(tmp_path, 2).read_bytes()
    segment(tmp_path, 2).write_bytes(content[:-1])
    with pytest.raises(CorruptJournal, match="was complete"):
        opened(tmp_path)
    segment(tmp_path, 2).unlink()
    with pytest.raises(CorruptJournal, match="message 3 to queue:one is missing"):
        opened(tmp_path)
    segment(tmp_path, 2).write_bytes(content)
    files, ledger = opened(tmp_path)
    lane = ledger.by_destination["queue:one"]
    ledger.confirm(lane, 4)
    files.append([Record(RecordKind.CONFIRMED, 0, Ledger.confirmed_record([(lane, 4)]))])
    assert [ledger.needed_bytes(number) > 0 for number in files.sizes()] == [False, False, True]
    files.remove(2)  # not the oldest
    files.close()
    files, ledger = opened(tmp_path)
    assert waiting(ledger) == {"queue:one": (4, 6)}
    files.close()


def test_a_segment_of_another_store_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        a_store(tmp_path / name)
    segment(tmp_path / "two").rename(segment(tmp_path / "one", 2))
    with pytest.raises(CorruptJournal, match="another store"):
        opened(tmp_path / "one")


def test_a_frame_taken_out_of_the_middle_is_noticed(tmp_path: Path) -> None:
    lengths = a_store(tmp_path)
    content = segment(tmp_path).read_bytes()
    for start, stop in pairwise(lengths[:-1]):
        segment(tmp_path).write_bytes(content[:start] + content[stop:])
        with pytest.raises(CorruptJournal) as refusal:
            opened(tmp_path)
        assert refusal.value.position == start


def test_bytes_that_look_like_a_frame_are_none(tmp_path: Path) -> None:
    """A message whose body is a store."""
    a_store(tmp_path / "inner")
    files, ledger = opened(tmp_path / "outer")
    lane = new_lane(files, ledger, "queue:one")
    payload = block.pack_lone(segment(tmp_path / "inner").read_bytes(), lane=NO_LANE, sequence=1)
    [position] = files.append([Record(RecordKind.BLOCK, lane.key, payload)])
    files.close()
    content = segment(tmp_path / "outer").read_bytes()
    segment(tmp_path / "outer").write_bytes(content[:-1])
    files, ledger = opened(tmp_path / "outer")
    assert ledger.messages == 0
    assert files.cut_bytes == len(content) - 1 - offset_of(position)
    files.close()


def test_a_full_disk_takes_nothing_and_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, ledger = opened(tmp_path)
    lane = new_lane(files, ledger, "queue:one")
    store(files, ledger, lane, 1)
    before = segment(tmp_path).read_bytes()
    write = os.pwrite

    def half(descriptor: int, data: bytes, offset: int) -> int:
        if offset > len(before):
            raise OSError(errno.ENOSPC, "no room")
        return write(descriptor, data[: len(data) // 2], offset)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(StorageFull) as refusal:
        store(files, ledger, lane, 1)
    assert refusal.value.code == "store-full"
    assert segment(tmp_path).read_bytes() == before
    monkeypatch.undo()
    store(files, ledger, lane, 1)
    files.close()
    files, ledger = opened(tmp_path)
    assert waiting(ledger) == {"queue:one": (0, 2)}
    files.close()


def test_a_disk_that_cannot_sync_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, ledger = opened(tmp_path)
    lane = new_lane(files, ledger, "queue:one")

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Unavailable) as refusal:
        store(files, ledger, lane, 1)
    assert refusal.value.code == "disk-failed"
    files.close()


def test_a_message_that_rotted_in_the_store_is_not_read(tmp_path: Path) -> None:
    files, ledger = opened(tmp_path)
    lane = new_lane(files, ledger, "queue:one")
    store(files, ledger, lane, 1)
    [entry] = lane.entries_from(1)
    content = bytearray(segment(tmp_path).read_bytes())
    content[offset_of(entry.position) + FRAME_HEADER_BYTES + 90] ^= 1
    segment(tmp_path).write_bytes(content)
    with pytest.raises(CorruptJournal) as refusal:
        files.read(entry.position, entry.size)
    assert refusal.value.position == offset_of(entry.position) > SEGMENT_HEADER_BYTES
    files.close()

"""What recovery makes of bytes it is given: a clean end, a tear, or corruption with its place."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from heliograph.journal.records import (
    PADDING,
    RECORD_HEADER,
    Record,
    offset_of,
    pack_frame_header,
    position_of,
    segment_of,
)
from heliograph.journal.recovery import LogEnd, LogScan
from heliograph.model.errors import CorruptJournal

SEED = 77
SEGMENT_BYTES = 4096


class Log:
    """Writes segments as a node would, frame by frame, in memory."""

    def __init__(self) -> None:
        self.segments: list[bytearray] = [bytearray()]
        self.lsn = 1
        self.durable = position_of(1, 0)

    @property
    def position(self) -> int:
        return position_of(len(self.segments), len(self.segments[-1]))

    def frame(self, *payloads: bytes, skipped: int = 0) -> int:
        """Returns where the frame stands."""
        records = b"".join(
            RECORD_HEADER.pack(len(payload), 1, 0, 0, 5, 6) + payload + PADDING[len(payload) % 8]
            for payload in payloads
        )
        self.lsn += skipped
        return self.frame_of(records, len(payloads), skipped)

    def frame_of(self, records: bytes, count: int, skipped: int = 0) -> int:
        """With right checksums, whatever is in it."""
        place = self.position
        self.segments[-1] += pack_frame_header(
            len(records), crc32c(records), self.lsn, count, skipped, self.durable, place, SEED
        )
        self.segments[-1] += records
        self.lsn += count
        return place

    def sync(self) -> None:
        self.durable = self.position

    def roll(self) -> None:
        self.segments.append(bytearray())


def recover(log: Log, start: int = position_of(1, 0), lsn: int = 1) -> tuple[list[tuple[int, bytes]], LogEnd]:
    found: list[tuple[int, bytes]] = []

    def note(record: Record) -> None:
        assert log.segments[segment_of(record.position) - 1][offset_of(record.position) :].startswith(
            record.payload
        )
        found.append((record.lsn, bytes(record.payload)))

    scan = LogScan(seed=SEED, start=start, lsn=lsn, on_record=note)
    for number, raw in enumerate(log.segments, start=1):
        if number >= segment_of(start):
            scan.feed(number, bytes(raw).ljust(SEGMENT_BYTES, b"\0"), f"segment {number}")
    return found, scan.finish()


def test_a_clean_end_is_where_the_zeros_begin() -> None:
    log = Log()
    log.frame(b"one", b"two")
    log.frame()
    log.frame(b"", b"four")
    found, end = recover(log)
    assert found == [(1, b"one"), (2, b"two"), (3, b""), (4, b"four")]
    assert (end.position, end.next_lsn, end.cut_bytes, end.frames) == (log.position, 5, 0, 3)


def test_an_empty_log_is_clean() -> None:
    assert recover(Log())[1] == LogEnd(position_of(1, 0), position_of(1, 0), 1, position_of(1, 0), 0, 0, 0, 0)


def test_a_missing_last_frame_with_zeros_in_its_header_is_cut() -> None:
    log = Log()
    log.frame(b"kept")
    place = log.frame(b"x" * 600)
    raw = log.segments[0]
    raw[offset_of(place) : 512] = bytes(512 - offset_of(place))
    found, end = recover(log)
    assert found == [(1, b"kept")]
    assert end.position == place
    assert end.cut_bytes == len(raw) - offset_of(place)


@pytest.mark.parametrize("synced", [False, True])
def test_the_same_damage_is_a_tear_before_the_sync_and_corruption_after(synced: bool) -> None:
    log = Log()
    log.frame(b"kept")
    place = log.frame(b"x" * 1500)
    if synced:
        log.sync()
    log.frame(b"a witness")
    log.segments[0][1024:1536] = bytes(512)
    if synced:
        with pytest.raises(CorruptJournal, match="had been stored") as caught:
            recover(log)
        assert (caught.value.path, caught.value.position) == ("segment 1", offset_of(place))
    else:
        assert recover(log)[1].position == place


def test_a_wrong_byte_with_all_sectors_there_is_refused() -> None:
    log = Log()
    log.frame(b"kept")
    place = log.frame(b"x" * 1500)
    log.segments[0][1000] ^= 4
    with pytest.raises(CorruptJournal, match="no tear explains it") as caught:
        recover(log)
    assert caught.value.position == offset_of(place)


def test_a_header_cut_by_a_sector_boundary_is_a_tear() -> None:
    for missing in (slice(0, 512), slice(512, 1024)):
        log = Log()
        log.frame(b"k" * 424)  # the next header begins at 488
        log.sync()
        place = log.frame(b"x" * 300)
        assert offset_of(place) == 488
        raw = log.segments[0]
        begin = max(missing.start, 488)
        raw[begin : min(missing.stop, len(raw))] = bytes(min(missing.stop, len(raw)) - begin)
        assert recover(log)[1].position == place


def test_a_message_whose_body_is_a_journal_is_no_witness() -> None:
    other = Log()
    other.frame(b"inner")
    other.sync()
    other.frame(b"inner witness")
    log = Log()
    log.frame(b"kept")
    place = log.frame(b"y" * 600 + b"\0" * (-offset_of(log.position) % 8) + bytes(other.segments[0]))
    log.segments[0][512:560] = bytes(48)
    log.segments[0][560:1024] = bytes(464)
    assert recover(log)[1].position == place


def test_frames_missing_at_the_end_of_a_segment_are_seen_from_the_next_one() -> None:
    for synced in (False, True):
        log = Log()
        log.frame(b"kept")
        place = log.frame(b"lost")
        if synced:
            log.sync()
        log.roll()
        log.frame(b"in the next segment")
        del log.segments[0][offset_of(place) :]
        if synced:
            with pytest.raises(CorruptJournal, match="had been stored"):
                recover(log)
        else:
            found, end = recover(log)
            assert (found, end.position) == ([(1, b"kept")], place)
            assert end.cut_bytes > 0


def test_empty_segments_in_between_and_at_the_end_are_passed_over() -> None:
    log = Log()
    log.frame(b"one")
    log.sync()
    log.roll()
    log.roll()
    log.frame(b"two")
    end_of_frames = log.position
    log.roll()
    found, end = recover(log)
    assert found == [(1, b"one"), (2, b"two")]
    assert (end.position, end.frames_end, end.cut_bytes) == (position_of(4, 0), end_of_frames, 0)


def test_a_lost_segment_after_a_roll_is_a_tear_when_nothing_in_it_was_durable() -> None:
    log = Log()
    log.frame(b"one")
    log.sync()  # the end of segment 1
    end_of_frames = log.position
    log.roll()
    log.frame(b"lost")
    log.roll()
    log.frame(b"not lost, but behind what is")
    log.segments[1] = bytearray()
    found, end = recover(log)
    assert (found, end.position) == ([(1, b"one")], end_of_frames)


def test_a_hole_in_the_lsns_must_be_explained() -> None:
    log = Log()
    log.frame(b"one")
    log.frame(b"four", skipped=2)
    assert recover(log)[0] == [(1, b"one"), (4, b"four")]
    log.lsn += 1
    log.frame(b"six?")
    with pytest.raises(CorruptJournal, match="LSN 5 follows"):
        recover(log)


@pytest.mark.parametrize("size", [4, 8, 15])
def test_a_frame_too_short_for_its_record_is_refused_with_its_place(size: int) -> None:
    """Wherever it stands: in the middle what follows is not read as its record; at the very end nothing follows."""
    log = Log()
    log.frame(b"one")
    place = log.frame_of(bytes(size), 1)
    at_the_end = SEGMENT_BYTES - len(log.segments[0])
    for behind in (b"", bytes(at_the_end)):
        scan = LogScan(seed=SEED, start=position_of(1, 0), lsn=1, on_record=lambda _: None)
        with pytest.raises(CorruptJournal, match="do not add up") as refused:
            scan.feed(1, bytes(log.segments[0]) + behind, "segment 1")
        assert refused.value.position == offset_of(place)


def test_a_record_that_reaches_beyond_its_frame_is_handed_to_nobody() -> None:
    log = Log()
    log.frame(b"one")
    log.frame_of(RECORD_HEADER.pack(40, 1, 0, 0, 5, 6) + b"8 bytes.", 1)
    found: list[bytes] = []
    scan = LogScan(
        seed=SEED,
        start=position_of(1, 0),
        lsn=1,
        on_record=lambda record: found.append(bytes(record.payload)),
    )
    with pytest.raises(CorruptJournal, match="do not add up"):
        scan.feed(1, bytes(log.segments[0]).ljust(SEGMENT_BYTES, b"\0"), "segment 1")
    assert found == [b"one"]


def test_a_frame_that_stands_where_it_was_not_written_is_refused() -> None:
    log = Log()
    log.frame(b"one")
    log.roll()
    log.frame(b"two")
    log.segments[0] += log.segments.pop()  # the right frame with the right LSN, in the wrong segment
    with pytest.raises(CorruptJournal, match="no tear explains it"):
        recover(log)


def test_replay_from_a_snapshot_reads_only_what_is_behind_it() -> None:
    log = Log()
    log.frame(b"covered")
    start = log.position
    log.frame(b"two")
    log.segments[0][20] ^= 1  # not read any more
    assert recover(log, start=start, lsn=2)[0] == [(2, b"two")]
    with pytest.raises(CorruptJournal, match="shorter than its snapshot"):
        recover(log, start=position_of(1, 5000), lsn=3)

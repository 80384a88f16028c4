"""Brings a journal back after a start: the newest snapshot, the records behind it, a clean place to go on.

`recovery` judges; this module maps the files for it and carries out the verdict.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.journal.directory import Directory
from heliograph.journal.records import Record, offset_of, position_of, segment_of
from heliograph.journal.recovery import LogEnd, LogScan
from heliograph.journal.segments import Segments
from heliograph.journal.snapshots import Snapshot
from heliograph.model.errors import CorruptJournal


def replay_log(
    directory: Directory,
    segments: Segments,
    snapshot: Snapshot | None,
    seed: int,
    on_record: Callable[[Record], None],
) -> LogEnd:
    """Hand over every record from the snapshot on; cut a torn tail and make durable what is there.

    Raises CorruptJournal.
    """
    start = snapshot.head.replay if snapshot else position_of(1, 0)
    lsn = snapshot.head.next_lsn if snapshot else 1
    numbers = [number for number in segments.sizes if number >= segment_of(start)]
    if not numbers:
        if snapshot is None and not segments.sizes:
            return LogEnd(start, start, lsn, start, 0, 0, 0, 0)
        path = directory.segment_path(segment_of(start))
        raise CorruptJournal("the segment where replay starts is missing", path=str(path), position=0)
    scan = LogScan(seed=seed, start=start, lsn=lsn, on_record=on_record)
    for number in numbers:
        with directory.disk.mapped(directory.segment_path(number)) as buffer:
            scan.feed(number, buffer, str(directory.segment_path(number)))
    end = scan.finish()
    _carry_out(directory, segments, end)
    return end


def _carry_out(directory: Directory, segments: Segments, end: LogEnd) -> None:
    """Cut behind the end, so that no rest of a write is ever mistaken for a frame; sync what was replayed."""
    last = segment_of(end.position)
    for number in [number for number in segments.sizes if number > last]:
        directory.disk.remove(directory.segment_path(number))
        segments.remove(number)
    if end.cut_bytes:
        descriptor = directory.open_segment(last)
        try:
            directory.disk.truncate(descriptor, offset_of(end.position))
            directory.disk.fsync(descriptor)
        finally:
            directory.disk.close(descriptor)
        segments.resize(last, offset_of(end.position))
    # The process may have died while its last writes were on their way: they are replayed, so they must stay.
    for number in segments.sizes:
        if number >= segment_of(end.durable):
            directory.sync_segment(number)
    directory.sync()

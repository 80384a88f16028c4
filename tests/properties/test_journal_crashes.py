"""Whatever a crash leaves of the last writes: all that was durable is there, and a prefix of the rest."""

from __future__ import annotations

import pathlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.files import JournalSettings
from heliograph.journal.records import FRAME_HEADER_BYTES
from heliograph.journal.recovery import SECTOR_BYTES
from heliograph.model.errors import CorruptJournal
from tests.unit.journal.stories import (
    DONE,
    KIB,
    Opened,
    attempt,
    block,
    contents,
    quick_directory,
    restore,
    run,
    until,
)

SEGMENT = "0000000001.segment"


def payloads(node: Opened) -> list[bytes]:
    return [record[4] for record in node.records]


def frames_end(raw: bytes) -> int:
    """Where the log ends in a segment: records are padded to 8."""
    return (len(raw.rstrip(b"\0")) + 7) // 8 * 8


@pytest.mark.req("J3")
def test_a_log_cut_at_any_byte_of_its_last_frame_loses_that_frame_and_no_other() -> None:
    async def story(path: pathlib.Path) -> None:
        settings = JournalSettings(segment_bytes=8 * KIB)
        node = Opened(path, settings)
        stored = [block(1), block(2, size=700)]
        for payload in stored:
            await node.store(payload)
        before = frames_end(contents(path)[SEGMENT])
        for payload in (block(3, size=300), b"acknowledged"):
            node.put(payload)
        node.journal.end_of_tick(quiet=True)
        image = contents(path)
        node.journal.close()
        raw = image[SEGMENT]
        after = frames_end(raw)
        whole = [*stored, block(3, size=300), b"acknowledged"]
        for cut in range(before, after + 1):
            restore(path, image | {SEGMENT: raw[:cut]})
            again = Opened(path, settings)
            # The last bytes may be padding: without them the frame is cut, too, for nobody was told of it.
            assert payloads(again) == (whole if cut == after else stored), cut
            assert again.report.cut_bytes == (len(raw[before:cut].rstrip(b"\0")) if cut < after else 0)
            # What is written next is found, and nothing of the torn frame with it.
            await again.store(block(9))
            again.journal.close()
            final = Opened(path, settings)
            assert payloads(final) == [*payloads(again), block(9)]
            final.journal.close()

    with quick_directory() as path:
        run(story(path))


def test_zeros_from_any_byte_of_the_last_frame_on_are_cut_or_refused() -> None:
    """A disk that does not keep its promise of whole sectors may make us refuse, never invent."""

    async def story(path: pathlib.Path) -> None:
        settings = JournalSettings(segment_bytes=8 * KIB)
        node = Opened(path, settings)
        await node.store(block(1))
        before = frames_end(contents(path)[SEGMENT])
        node.put(block(2, size=1200))
        node.journal.end_of_tick(quiet=True)
        image = contents(path)
        node.journal.close()
        raw = image[SEGMENT]
        after = frames_end(raw)
        for cut in range(before, after):
            restore(path, image | {SEGMENT: raw[:cut].ljust(len(raw), b"\0")})
            again = attempt(path, settings)
            if not isinstance(again, Opened):
                assert isinstance(again, CorruptJournal)
                assert again.position == before
                assert cut % SECTOR_BYTES, "a cut between sectors is a tear and no reason to refuse"
                continue
            whole = [block(1), block(2, size=1200)]
            assert payloads(again) == (whole if raw[cut:after] == bytes(after - cut) else whole[:1])
            again.journal.close()

    with quick_directory() as path:
        run(story(path))


@pytest.mark.req("J3")
def test_a_flipped_bit_anywhere_after_a_clean_stop_is_noticed_or_harmless() -> None:
    async def story(path: pathlib.Path) -> None:
        settings = JournalSettings(segment_bytes=2 * KIB)
        node = Opened(path, settings)
        await node.store(block(1))
        node.journal.snapshot([b"a state of one record"])
        await until(lambda: node.journal.stats()["durable_lsn"] == 1 and not node.journal._snapshot_running)
        stored = [block(2, size=100), b"acknowledged", block(4, size=900), block(5, size=10)]
        for payload in stored:
            await node.store(payload)
        node.journal.close()
        image = contents(path)
        reserve = image.pop("next.snapshot.new")
        image["next.snapshot.new"] = b""
        assert reserve.strip(b"\0") == b""
        refused = 0
        for name, raw in image.items():
            for index in range(len(raw)):
                flipped = bytearray(raw)
                flipped[index] ^= 1 << index % 8
                restore(path, image | {name: bytes(flipped)})
                again = attempt(path, settings)
                if not isinstance(again, Opened):
                    assert again.code in {"corrupt-journal", "journal-version"}, (name, index)
                    refused += 1
                    continue
                # Nothing stored may be missing: after a clean stop every frame is known to be durable. What
                # replay does not read, because the snapshot covers it, is checked when it is loaded.
                assert (again.state, payloads(again)) == (b"a state of one record", stored), (name, index)
                again.journal.close()
        assert refused > sum(map(len, stored))

    with quick_directory() as path:
        run(story(path))


def test_a_flipped_bit_anywhere_after_a_crash_gives_a_prefix_or_a_refusal() -> None:
    async def story(path: pathlib.Path) -> None:
        settings = JournalSettings(segment_bytes=2 * KIB)
        node = Opened(path, settings)
        stored = [block(1), block(2, size=1000), b"acknowledged", block(4, size=700)]
        positions = [await node.store(payload) for payload in stored]
        image = contents(path)
        node.journal.close()
        image["next.snapshot.new"] = b""
        for name, raw in image.items():
            for index in range(len(raw)):
                flipped = bytearray(raw)
                flipped[index] ^= 0x80 >> index % 8
                restore(path, image | {name: bytes(flipped)})
                again = attempt(path, settings)
                if not isinstance(again, Opened):
                    assert again.code in {"corrupt-journal", "journal-version"}, (name, index)
                    continue
                assert payloads(again) == stored[: len(again.records)], (name, index)
                assert list(again.positions.values()) == positions[: len(again.records)]
                # The frame before the last is known to be durable by the last one's word.
                assert len(again.records) >= 3
                again.journal.close()

    with quick_directory() as path:
        run(story(path))


Tick = list[tuple[int, bool]]
ticks = st.lists(
    st.lists(st.tuples(st.integers(0, 1500), st.booleans()), min_size=1, max_size=4), min_size=1, max_size=8
)


def write(node: Opened, tick: Tick, *, sparse: bool) -> list[bytes]:
    written = []
    for size, is_message in tick:
        # Zeros inside a record look like sectors that never arrived; recovery must cope with them, too.
        payload = bytes(size) if sparse else block(node.journal.next_lsn, size)
        if node.put(payload, kind=1 if is_message else DONE, bulky=is_message):
            written.append(payload)
    return written


@pytest.mark.req("J3")
@settings(max_examples=120, deadline=None)
@given(durable=ticks, lost=ticks, sparse=st.booleans(), seed=st.integers(0, 1 << 30), kept=st.floats(0, 1))
def test_any_pattern_of_lost_sectors_leaves_what_was_durable_and_a_prefix(
    durable: list[Tick], lost: list[Tick], sparse: bool, seed: int, kept: float
) -> None:
    async def story(path: pathlib.Path) -> None:
        limits = JournalSettings(segment_bytes=6 * KIB)
        node = Opened(path, limits)
        safe: list[bytes] = []
        for tick in durable:
            safe += write(node, tick, sparse=False)
            node.put(b"somebody waits", kind=DONE, bulky=False, wait=True)
            safe.append(b"somebody waits")
            node.journal.end_of_tick()
        await until(lambda: node.notes.stored == node.journal.next_lsn - 1)
        before = contents(path)
        unsafe: list[bytes] = []
        for tick in lost:
            unsafe += write(node, tick, sparse=sparse)
            node.journal.end_of_tick(quiet=True)
        after = contents(path)
        node.journal.close()
        crashed: dict[str, bytes] = {}
        dice = random.Random(seed)
        for name, raw in after.items():
            old = before.get(name, b"").ljust(len(raw), b"\0")
            sectors = bytearray(raw)
            for start in range(0, len(raw), SECTOR_BYTES):
                if dice.random() > kept:
                    sectors[start : start + SECTOR_BYTES] = old[start : start + SECTOR_BYTES]
            crashed[name] = bytes(sectors)
        crashed["next.snapshot.new"] = b""
        restore(path, crashed)
        again = Opened(path, limits)
        assert payloads(again) == (safe + unsafe)[: len(again.records)]
        assert len(again.records) >= len(safe)
        await again.store(block(1))
        again.journal.close()
        final = Opened(path, limits)
        assert payloads(final) == [*payloads(again), block(1)]
        assert final.report.cut_bytes == 0
        final.journal.close()

    with quick_directory() as path:
        run(story(path))


@settings(max_examples=60, deadline=None)
@given(written=ticks, place=st.integers(0, 1 << 30))
def test_a_lost_sector_of_what_was_durable_is_never_taken_for_a_tear(written: list[Tick], place: int) -> None:
    async def story(path: pathlib.Path) -> None:
        limits = JournalSettings(segment_bytes=6 * KIB)
        node = Opened(path, limits)
        for tick in written:
            write(node, tick, sparse=False)
            node.journal.end_of_tick()
        await until(lambda: node.journal.stats()["stored_lsn"] == node.journal.next_lsn - 1)
        node.journal.close()
        image = contents(path)
        image["next.snapshot.new"] = b""
        sectors = [
            (name, start)
            for name, raw in image.items()
            for start in range(0, len(raw), SECTOR_BYTES)
            if name.endswith(".segment") and raw[start : start + SECTOR_BYTES].strip(b"\0")
        ]
        name, start = sectors[place % len(sectors)]
        raw = bytearray(image[name])
        raw[start : start + SECTOR_BYTES] = bytes(len(raw[start : start + SECTOR_BYTES]))
        restore(path, image | {name: bytes(raw)})
        last_name = sectors[-1][0]
        last_word = frames_end(image[last_name]) - FRAME_HEADER_BYTES
        again = attempt(path, limits)
        if not isinstance(again, Opened):
            # The place named is where the frames run out: at the damage, or at the end of a segment before.
            assert isinstance(again, CorruptJournal)
            assert (again.path, again.position) <= (str(path / name), start + SECTOR_BYTES)
            return
        # Only the frame with the last word has no witness: a sector with a part of it looks like a tear.
        assert (name, start + SECTOR_BYTES) > (last_name, last_word)
        again.journal.close()

    with quick_directory() as path:
        run(story(path))

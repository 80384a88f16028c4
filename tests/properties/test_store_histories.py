"""Any history of a store, with ends at any byte: what was durable is there, what the server confirmed is not, and
nothing has another sequence than it had.

The model is obvious: per destination a list of bodies, and two numbers.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from heliograph.client.forwarding.files import Record, StoreFiles
from heliograph.client.forwarding.ledger import Ledger, LedgerReplay
from heliograph.client.forwarding.records import RecordKind
from heliograph.model import block
from heliograph.model.ids import ID_BYTES, LaneId

# Thousands of syncs: what is tried here is what the bytes say, not the disk.
MEMORY = Path("/dev/shm")
DESTINATIONS = ("queue:a", "queue:b", "topic:c")
NO_LANE = LaneId(bytes(ID_BYTES))


@dataclass
class Model:
    """One destination as it should be."""

    bodies: list[bytes] = field(default_factory=list)
    confirmed: int = 0
    sent: int = 0


class StoreHistory(RuleBasedStateMachine):
    """A store that is written, rolled, cleaned and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.exists() else None))
        self.models = {name: Model() for name in DESTINATIONS}
        self.made = 0

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        replay = LedgerReplay()
        self.files = StoreFiles(self.folder)
        self.files.recover(replay.frame, Ledger().state())
        self.ledger = replay.finish(str(self.folder))

    def teardown(self) -> None:
        self.files.close()
        shutil.rmtree(self.folder)

    # ---- what happens

    @rule(name=st.sampled_from(DESTINATIONS), counts=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def store(self, name: str, counts: list[int]) -> None:
        self._append(name, counts)

    def _append(self, name: str, counts: list[int]) -> list[tuple[int, list[bytes]]]:
        """Returns where each block's frame ends, with the bodies."""
        lane = self.ledger.lane_to(name)
        records = []
        if not lane.is_recorded:
            records.append(Record(RecordKind.LANE, 0, Ledger.lane_record(lane)))
            lane.is_recorded = True
        portions: list[list[bytes]] = []
        first = lane.stored + 1
        for count in counts:
            bodies = [b"%d" % (self.made + index) for index in range(count)]
            self.made += count
            portions.append(bodies)
            records.append(Record(RecordKind.BLOCK, lane.key, block.pack(bodies, lane=NO_LANE, first=first)))
            first += count
        positions = self.files.append(records)[-len(counts) :]
        ends = []
        for bodies, position, record in zip(portions, positions, records[-len(counts) :], strict=True):
            self.ledger.added(lane, lane.stored + 1, len(bodies), position, len(record.payload))
            self.models[name].bodies += bodies
            ends.append((position + 40 + len(record.payload), bodies))
        return ends

    @rule(name=st.sampled_from(DESTINATIONS), share=st.floats(0, 1))
    def send(self, name: str, share: float) -> None:
        lane = self.ledger.by_destination.get(name)
        if lane is not None and self.ledger.attached:
            lane.sent = self.models[name].sent = lane.sent + int((lane.stored - lane.sent) * share)

    @rule(name=st.sampled_from(DESTINATIONS), share=st.floats(0, 1))
    def confirm(self, name: str, share: float) -> None:
        lane = self.ledger.by_destination.get(name)
        if lane is None or lane.sent == lane.confirmed:
            return
        self.ledger.confirm(lane, lane.confirmed + int((lane.sent - lane.confirmed) * share))
        self.models[name].confirmed = lane.confirmed
        self.files.append(
            [Record(RecordKind.CONFIRMED, 0, Ledger.confirmed_record([(lane, lane.confirmed)]))]
        )

    @rule(attached=st.booleans())
    def note_state(self, attached: bool) -> None:
        self.ledger.attached = attached
        self.files.append([Record(RecordKind.STATE, 0, self.ledger.state())])

    @rule()
    def roll(self) -> None:
        self.files.begin_segment(self.ledger.state())

    @rule()
    def clean(self) -> None:
        for number in self.files.sizes():
            if not self.ledger.needed_bytes(number):
                self.files.remove(number)

    @rule(data=st.data())
    def write_again(self, data: st.DataObject) -> None:
        complete = [number for number in self.files.sizes() if self.ledger.needed_bytes(number)]
        if not complete:
            return
        needed = self.ledger.entries_in(data.draw(st.sampled_from(complete)))
        payloads = [self.files.read(entry.position, entry.size) for _, entry in needed]
        positions = self.files.append(
            [
                Record(RecordKind.MOVED, lane.key, payload)
                for (lane, _), payload in zip(needed, payloads, strict=True)
            ]
        )
        for (lane, entry), position in zip(needed, positions, strict=True):
            self.ledger.moved(lane, entry, position)

    @rule()
    def open_again(self) -> None:
        self.files.close()
        self.open()
        self._check_sent()

    @precondition(lambda self: self.ledger.lanes)
    @rule(
        name=st.sampled_from(DESTINATIONS),
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
        data=st.data(),
    )
    def die_in_a_write(self, name: str, counts: list[int], data: st.DataObject) -> None:
        """Of the last write, any beginning is there."""
        start, current = self.files.current_bytes, self.files.current
        known = list(self.models[name].bodies)
        ends = self._append(name, counts)
        cut = data.draw(st.integers(start, self.files.current_bytes))
        self.files.close()
        path = self.folder / f"{current:08}.store"
        path.write_bytes(path.read_bytes()[:cut])
        for end, bodies in ends:
            if end & 0xFFFFFFFF <= cut:
                known += bodies
        self.models[name].bodies = known
        self.open()
        self._check_sent()

    def _check_sent(self) -> None:
        """A store that says detached knows what was sent; one that says attached must take it that all was."""
        for lane in self.ledger.lanes.values():
            model = self.models[lane.destination]
            assert lane.sent == (lane.stored if self.ledger.attached else model.sent)
            model.sent = lane.sent

    # ---- what must hold

    @invariant()
    def everything_is_there_under_its_number(self) -> None:
        for name, model in self.models.items():
            lane = self.ledger.by_destination.get(name)
            if lane is None:
                assert not model.bodies
                continue
            assert (lane.stored, lane.confirmed) == (len(model.bodies), model.confirmed)
            expected = lane.confirmed + 1
            for entry in lane.entries_from(lane.confirmed + 1):
                contents = block.unpack(self.files.read(entry.position, entry.size))
                assert contents.first == entry.first <= expected
                assert contents.bodies == model.bodies[entry.first - 1 : entry.last]
                expected = entry.last + 1
            assert expected == lane.stored + 1

    @invariant()
    def the_counts_are_right(self) -> None:
        lanes = self.ledger.lanes.values()
        entries = [entry for lane in lanes for entry in lane.entries_from(lane.confirmed + 1)]
        assert self.ledger.messages == sum(lane.stored - lane.confirmed for lane in lanes)
        assert self.ledger.bytes == sum(entry.size for entry in entries)
        numbers = [*self.files.sizes(), self.files.current]
        assert sum(self.ledger.needed_bytes(number) for number in numbers) == self.ledger.bytes
        assert self.files.bytes == sum(path.stat().st_size for path in self.folder.glob("*.store"))


TestStoreHistory = pytest.mark.req("U7")(StoreHistory.TestCase)
TestStoreHistory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)

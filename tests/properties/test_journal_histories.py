"""Any history of publishing, finishing, snapshots, stops and crashes: the node finds everything again."""

from __future__ import annotations

import pathlib
import shutil
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.journal.files import JournalSettings
from tests.unit.journal.stories import DONE, KIB, Opened, block, quick_directory, run, until

LIMITS = JournalSettings(segment_bytes=8 * KIB)
Step = tuple[Literal["publish", "finish", "tick", "snapshot", "stop", "crash", "wait"], int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3000)),
        st.tuples(st.just("publish"), st.integers(0, 300)),
        st.tuples(st.just("finish"), st.integers(0, 1000)),
        st.tuples(st.just("finish"), st.integers(0, 1000)),
        st.tuples(st.sampled_from(["tick", "snapshot", "stop", "crash", "wait"]), st.just(0)),
    ),
    max_size=60,
)


class Node:
    """The smallest message manager: it remembers where each live message is, and nothing else."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.live: dict[int, int] = {}  # LSN → position
        self.opened = Opened(path, LIMITS)
        if self.opened.state is not None:
            self.live = msgspec.msgpack.decode(self.opened.state, type=dict[int, int])
        for kind, _, _, lsn, payload in self.opened.records:
            if kind == DONE:
                del self.live[int(payload)]
            else:
                self.live[lsn] = self.opened.positions[lsn]
        for position in self.live.values():
            self.opened.journal.retain(position, 1)
        self.opened.journal.check_all_there()

    def publish(self, sequence: int, size: int) -> int:
        lsn = self.opened.journal.next_lsn
        self.live[lsn] = self.opened.put(block(sequence, size))
        self.opened.journal.retain(self.live[lsn], 1)
        return lsn

    def finish(self, lsn: int) -> None:
        self.opened.put(str(lsn).encode(), kind=DONE, bulky=False)
        self.opened.journal.release(self.live.pop(lsn), 1)

    async def settle(self) -> None:
        journal = self.opened.journal
        journal.end_of_tick()
        await until(
            lambda: journal.stats()["durable_lsn"] == journal.next_lsn - 1 and not journal._snapshot_running
        )


@pytest.mark.req("J3")
@settings(max_examples=100, deadline=None)
@given(history=steps)
def test_every_history_is_remembered(history: list[Step]) -> None:
    async def story(root: pathlib.Path) -> None:
        path = root / "0"
        node = Node(path)
        expected: dict[int, bytes] = {}
        for number, (step, argument) in enumerate(history, start=1):
            journal = node.opened.journal
            if step == "publish":
                expected[node.publish(number, argument)] = block(number, argument)
            elif step == "finish" and expected:
                lsn = sorted(expected)[argument % len(expected)]
                del expected[lsn]
                node.finish(lsn)
            elif step == "tick":
                journal.end_of_tick()
            elif step == "wait":
                await node.settle()
            elif step == "snapshot" and not journal._snapshot_running:
                journal.snapshot([msgspec.msgpack.encode(node.live)])
            elif step == "stop":
                journal.close()
                node = Node(path)
            elif step == "crash":
                journal.end_of_tick()
                while (
                    True
                ):  # a copy is not taken in an instant: try again if a snapshot was renamed meanwhile
                    try:
                        shutil.copytree(path, root / str(number))
                        break
                    except shutil.Error:
                        shutil.rmtree(root / str(number))
                path = root / str(number)
                journal.close()
                node = Node(path)
            assert node.live.keys() == expected.keys()
        if expected:
            assert await node.opened.load(list(node.live.values())) == [expected[lsn] for lsn in node.live]
        assert node.opened.notes.failures == []
        node.opened.journal.close()

    with quick_directory() as root:
        run(story(root))

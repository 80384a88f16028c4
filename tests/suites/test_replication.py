"""A whole cluster in one process, with real journals and the real client: what happens to clients when managers come,
go, die or are stuck."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import heliograph
from heliograph.journal.disk import Disk
from heliograph.model.errors import HeliographError, StorageFull
from heliograph.model.limits import INLINE_SYNC_BYTES, KIB, MIB
from tests.servers import until
from tests.suites.cluster_in_process import Cluster, told, url


@pytest.mark.req("M9")
def test_clients_notice_nothing_when_the_one_that_leads_dies_and_when_it_returns(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producer = await session.producer("queue:orders")
            consumer = await session.consumer("queue:orders")
            expected: list[bytes] = []
            for number in range(6):
                for _ in range(20):
                    expected.append(b"%d" % len(expected))
                    await producer.send_confirmed(expected[-1])
                led = cluster.leader()
                cluster.crash(led)
                await producer.send_confirmed(b"after %d" % number)
                expected.append(b"after %d" % number)
                await cluster.add(led)
            got = [await consumer.receive(timeout=30) for _ in expected]
            assert [message.body for message in got if message is not None] == expected
            assert not any(message.redelivered for message in got if message is not None)

    told(tmp_path, story)


@pytest.mark.req("M6", "M9")
def test_a_large_message_is_sent_and_read_to_its_end_whoever_dies(tmp_path: Path) -> None:
    pieces = [os.urandom(256 * KIB) for _ in range(60)]

    async def story(cluster: Cluster) -> None:
        await cluster.add(2)
        await cluster.add(3)

        async def content() -> AsyncIterator[bytes]:
            for number, piece in enumerate(pieces):
                if number == 20:
                    await cluster.add(4)  # it has not heard the beginning
                if number == 40:
                    cluster.crash(cluster.leader())
                yield piece

        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producer = await session.producer("queue:films")
            await producer.send_stream(content())
            message = await (await session.consumer("queue:films")).receive(timeout=20)
            assert message is not None
            read = hashlib.sha256()
            async with message.open() as stream:
                count = 0
                async for data in stream:
                    read.update(data)
                    count += 1
                    if count == 10:
                        cluster.crash(cluster.leader())
            assert read.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()

    told(tmp_path, story)


class StuckDisk(Disk):
    """Syncs on a thread do not return while it is stuck."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    def fdatasync(self, descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.answers.wait(30)
        super().fdatasync(descriptor)


@pytest.mark.req("M9")
def test_a_primary_whose_disk_is_stuck_lets_a_backup_lead(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        disk = StuckDisk()
        await cluster.add(2, disk=disk)
        await cluster.add(3)
        try:
            async with heliograph.connect(url(cluster)) as connection:
                session = await connection.session()
                producer = await session.producer("queue:orders")
                await producer.send_confirmed(b"first")
                assert cluster.leader() == 2
                disk.answers.clear()
                await producer.send_confirmed(bytes(4 * INLINE_SYNC_BYTES))
                backup = cluster.nodes[3].replica
                assert backup is not None
                assert backup.is_leading
        finally:
            disk.answers.set()

    told(tmp_path, story)


class FullDisk(Disk):
    """It has no room for a further file while it is full."""

    def __init__(self) -> None:
        self.is_full = False

    def allocate(self, descriptor: int, size: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(descriptor, size)


@pytest.mark.req("M9", "J3")
def test_a_primary_whose_disk_is_full_lets_a_backup_lead_and_counts_again_when_it_has_room(
    tmp_path: Path,
) -> None:
    """Whoever sends hears once that there was no room, and is served when it tries again."""

    async def story(cluster: Cluster) -> None:
        full = FullDisk()
        await cluster.add(2, disk=full, journal__segment_bytes=MIB)
        await cluster.add(3, journal__segment_bytes=MIB)
        async with heliograph.connect(url(cluster)) as connection:
            session = await connection.session()
            producer = await session.producer("queue:orders")
            await producer.send_confirmed(b"first")
            assert cluster.leader() == 2
            full.is_full = True
            confirmed, refused = 1, 0
            while confirmed < 60:  # several segments
                try:
                    await producer.send_confirmed(b"%d " % confirmed + bytes(64 * KIB))
                    confirmed += 1
                except StorageFull:
                    refused += 1
                    await until(lambda: cluster.leader() == 3, "the other leads")
                    producer = await session.producer("queue:orders")
            assert refused == 1
            full.is_full = False
            await until(lambda: has_all_of(cluster, 2, 3), "it has caught up")
            await cluster.nodes.pop(3).stop()
            assert cluster.leader() == 2
            await producer.send_confirmed(b"60 ")
            consumer = await session.consumer("queue:orders")
            got = [await consumer.receive(timeout=30) for _ in range(61)]
            numbers = [bytes(message.body).partition(b" ")[0] for message in got if message is not None]  # type: ignore[arg-type]
            assert numbers == [b"first", *(b"%d" % number for number in range(1, 61))]
            assert not any(message.redelivered for message in got if message is not None)

    told(tmp_path, story)


def has_all_of(cluster: Cluster, backup: int, leader: int) -> bool:
    """Whether everything is on the backup's disk, and it could lead."""
    follows, leads = cluster.nodes[backup].replica, cluster.nodes[leader].replica
    assert follows is not None
    assert leads is not None
    state = follows.state
    is_ready = state.is_synchronised and not state.is_leaving
    return is_ready and follows.stored_index == leads.stored_index


@pytest.mark.req("M14", "M16")
def test_a_node_that_does_not_belong_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    async def refused(cluster: Cluster, node: int, **other: object) -> HeliographError:
        try:
            server = await cluster.add(node, **other)  # type: ignore[arg-type]
        except HeliographError as error:
            return error
        await until(server.failed.done, "it gives up")
        return server.failed.result()

    async def story(cluster: Cluster) -> None:
        await cluster.add(2)
        here = await refused(cluster, 3, sessions__lease_seconds=7.0)
        assert here.code == "settings-differ"
        assert "sessions.lease_seconds is 7.0 here and 60.0 there" in here.sentence
        rules = [{"destinations": "queue:a", "redelivery_limit": 2}]
        here = await refused(cluster, 6, policies=rules)
        assert here.code == "settings-differ"
        assert "policies is 1 rule (" in here.sentence
        assert "here and without rules there" in here.sentence
        other = {"server__data": str(tmp_path / "n2")}
        assert (await refused(cluster, 4, **other)).code == "data-of-another-node"
        assert (await refused(cluster, 2, cluster__name="there")).code == "data-of-another-cluster"
        elsewhere = Cluster(tmp_path / "elsewhere")
        await elsewhere.add(5)
        await elsewhere.stop()
        foreign = {"server__data": str(tmp_path / "elsewhere" / "n5")}
        found = await refused(cluster, 5, **foreign)
        assert found.code == "data-of-another-cluster"
        assert "--data" in found.sentence

    told(tmp_path, story)

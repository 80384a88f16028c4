"""`helio cluster dev` and `helio serve` in a cluster, as somebody sees them who tries them for the first time."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.dev_hosts import Host
from heliograph.client import connect
from heliograph.model.errors import OrderBroken
from tests.cluster.hosts import ROOT, require_corosync
from tests.servers import CLEAN, play

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.req("M2")]


def helio(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "heliograph.cli.main", *arguments]


class Dev:
    """`helio cluster dev --json`, on a network of its own: another corosync on this machine does not matter."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {**CLEAN, "PYTHONPATH": f"{ROOT / 'src'}", "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            helio("cluster", "dev", "--json", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
        )
        self._watch = threading.Timer(50, self.process.kill)
        self._watch.start()

    def next_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline() or b"{}"))

    def stop(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        code = self.process.wait()
        self._watch.cancel()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)
        self._watch.cancel()
        self.process.communicate()


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    require_corosync()
    dev = Dev(tmp_path, "--namespaces", "--client-managers", "1", "--message-managers", "2")
    yield dev
    dev.close()


async def say_and_hear(described: dict[str, Any], words: bytes) -> object:
    options = {"user": described["user"], "password": described["password"]}
    async with connect(described["url"], **options) as connection:
        session = await connection.session()
        await (await session.producer("queue:hello")).send_confirmed(words)
        message = await (await session.consumer("queue:hello")).receive(timeout=20)
        assert message is not None
        return message.body


async def carried_while_sending(described: dict[str, Any], bodies: list[bytes]) -> int:
    """Bytes on the bus, of all members, while these went from a producer to a consumer."""
    options = {"user": described["user"], "password": described["password"]}
    async with connect(described["url"], **options) as connection:
        session = await connection.session()
        producer = await session.producer("queue:once")
        consumer = await session.consumer("queue:once")
        before = (await connection.ask("bus"))["heard_bytes"]
        for body in bodies:
            await producer.send(body)
        await producer.flush()
        for body in bodies:
            message = await consumer.receive(timeout=20)
            assert message is not None
            assert message.body == body
        after = (await connection.ask("bus"))["heard_bytes"]
        return int(after - before)


def test_a_body_crosses_the_bus_once(dev: Dev) -> None:
    """To the primary, its backup and the client manager that hands it out."""
    bodies = [number.to_bytes(2, "big") * 5_000 for number in range(200)]
    carried = play(carried_while_sending(dev.next_line(), bodies))
    assert sum(map(len, bodies)) < carried < 1.3 * sum(map(len, bodies))


def test_a_cluster_comes_up_survives_a_kill_and_leaves_nothing(dev: Dev, tmp_path: Path) -> None:
    described = dev.next_line()
    assert len(described["client_managers"]) == 1
    assert len(described["message_managers"]) == 2
    assert play(say_and_hear(described, b"before")) == b"before"

    victim = described["message_managers"][0]
    os.kill(victim["pid"], signal.SIGKILL)
    assert dev.next_line() == {"event": "ended", "node": victim["name"], "signal": 9}
    assert play(say_and_hear(described, b"meanwhile")) == b"meanwhile"
    back = dev.next_line()
    assert (back["event"], back["name"]) == ("ready", victim["name"])
    assert play(say_and_hear(described, b"after")) == b"after"

    pids = [each["pid"] for kind in ("client_managers", "corosync") for each in described[kind]]
    assert dev.stop(signal.SIGINT) == 0
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in (*pids, back["pid"]))


async def take_and_send_on(described: dict[str, Any], count: int) -> list[set[str]]:
    """Messages go from queue to queue in transactions, wherever those are. Returns what each sub-cluster has."""
    options = {"user": described["user"], "password": described["password"]}
    queues = [f"queue:stage-{number}" for number in range(4)]
    async with connect(described["url"], **options) as connection:
        producer = await connection.producer(queues[0])
        for number in range(count):
            await producer.send(b"%d" % number)
        await producer.flush()
        session = await connection.session(acknowledge="transacted")
        for source, target in itertools.pairwise(queues):
            consumer, forward = await session.consumer(source), await session.producer(target)
            for _ in range(count // 10):
                for _ in range(10):
                    message = await consumer.receive(timeout=20)
                    assert message is not None
                    await forward.send(message.body)
                await session.commit()
        last = await connection.consumer(queues[-1])
        bodies = [
            message.body for message in [await last.receive(timeout=20) for _ in range(count)] if message
        ]
        assert bodies == [b"%d" % number for number in range(count)]
        seen: dict[int, set[str]] = {}
        after = 0
        while True:
            page = await connection.ask("destinations", after=after)
            found = {each["address"] for each in page["destinations"]}
            seen.setdefault(after >> 40, set()).update(found & set(queues))
            after = page["next"]
            if not after:
                return list(seen.values())


@pytest.mark.req("M10")
def test_two_sub_clusters_share_the_destinations_and_transactions_span_them(tmp_path: Path) -> None:
    require_corosync()
    dev = Dev(
        tmp_path,
        *("--namespaces", "--sub-clusters", "2", "--client-managers", "1", "--message-managers", "1"),
    )
    try:
        described = dev.next_line()
        assert [each["sub_cluster"] for each in described["message_managers"]] == ["s1", "s2"]
        first, second = play(take_and_send_on(described, 100))
        assert len(first) == len(second) == 2
    finally:
        dev.close()


async def in_order_while_a_member_is_killed(described: dict[str, Any]) -> None:
    """Units go on with the member that is there, are refused while theirs is not, and are in order in the end."""
    options = {"user": described["user"], "password": described["password"]}
    units = [f"unit-{number}" for number in range(10)]
    sent: dict[str | None, list[str]] = {unit: [] for unit in units}
    refused = 0
    async with connect(described["url"], **options) as connection:
        producer = await (await connection.session()).producer("queue:orders")
        for turn in range(60):
            if turn == 5:
                os.kill(described["message_managers"][1]["pid"], signal.SIGKILL)
            for unit in units:
                try:
                    await producer.send(f"{turn}", unit_of_order=unit)
                except OrderBroken:
                    refused += 1
                else:
                    sent[unit].append(f"{turn}")
            await asyncio.sleep(0.05)
        await producer.flush()
        consumer = await connection.consumer("queue:orders")
        seen: dict[str | None, list[str]] = {}
        places: dict[str | None, set[str]] = {}
        for _ in range(sum(map(len, sent.values()))):
            message = await consumer.receive(timeout=20)
            assert message is not None
            seen.setdefault(message.unit_of_order, []).append(message.text)
            places.setdefault(message.unit_of_order, set()).add(message.destination)
        assert seen == sent
        assert {len(found) for found in places.values()} == {1}
        assert len({place for found in places.values() for place in found}) == 2
        assert refused


@pytest.mark.req("U6")
def test_two_sub_clusters_share_one_queue_and_keep_the_order_of_its_units(tmp_path: Path) -> None:
    require_corosync()
    dev = Dev(
        tmp_path,
        *("--namespaces", "--sub-clusters", "2", "--client-managers", "1", "--message-managers", "1"),
        *("--distribute", "queue:orders"),
    )
    try:
        play(in_order_while_a_member_is_killed(dev.next_line()))
    finally:
        dev.close()


def test_what_was_kept_is_there_the_next_time(tmp_path: Path) -> None:
    require_corosync()
    few = ("--namespaces", "--client-managers", "1", "--message-managers", "1", "--data", str(tmp_path / "d"))

    async def send(described: dict[str, Any]) -> None:
        async with connect(described["url"], user="dev", password="dev") as connection:
            await (await connection.producer("queue:kept")).send_confirmed(b"here I am")

    async def receive(described: dict[str, Any]) -> None:
        async with connect(described["url"], user="dev", password="dev") as connection:
            session = await connection.session()
            message = await (await session.consumer("queue:kept")).receive(timeout=20)
            assert message is not None
            assert message.body == b"here I am"

    for deed in (send, receive):
        dev = Dev(tmp_path, *few)
        try:
            play(deed(dev.next_line()))
        finally:
            dev.close()
    assert (tmp_path / "d" / "message-manager-1" / "heliograph.toml").exists()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Host]:
    """A host on which no corosync runs."""
    require_corosync()
    host = Host(tmp_path / "host")
    yield host
    host.stop()


def test_a_node_without_a_corosync_says_how_to_start_one(bare: Host, tmp_path: Path) -> None:
    command = bare.inside(*helio("serve", "--cluster", "shop", "--data", str(tmp_path / "data")), folder=ROOT)
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=CLEAN, timeout=30)
    assert ended.returncode == 2
    assert "corosync does not run on this host: start it (systemctl start corosync)" in ended.stderr
    assert ended.stderr.rstrip().endswith("[bus-unavailable]")
    assert not (tmp_path / "data").exists()

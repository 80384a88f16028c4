"""The dead of several sub-clusters, sorted and sent back by one command (D4): all of them, or those of one."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client import Connection
from heliograph.model.errors import ClientFault
from heliograph.spark.options import options_of
from heliograph.spark.pipelines.dead_letters import dead_queues
from heliograph.spark.server import Server
from tests.servers import CLEAN, ROOT
from tests.suites.cluster_in_process import Cluster, url
from tests.suites.exchange import receive_all
from tests.suites.test_sub_clusters import ELEVEN, kept_by, spread

pytestmark = [pytest.mark.req("D4"), pytest.mark.nightly]
_SPARK_SECONDS = 800.0


async def dead_letters(cluster: Cluster, *arguments: str) -> Any:
    """As a person has it done, while the cluster goes on in this process."""
    command = ["-m", "heliograph.cli.main", "pipeline", "dead-letters", *arguments]
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        "--url",
        url(cluster),
        "--master",
        "local[1]",
        "--json",
        cwd=ROOT,
        env=CLEAN,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()[-3000:]
    return json.loads(told)


def queues(address: str, sub_cluster: str) -> list[str]:
    with Server(options_of({"url": address}), "test") as server:
        return list(dead_queues(server, sub_cluster).values())


async def depth_of(connection: Connection, destination: str) -> int:
    return int((await connection.ask("destination.show", destination=destination))["depth"])


def test_the_dead_of_all_sub_clusters_are_sorted_and_sent_back_or_those_of_one(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            for address in ELEVEN[:4]:
                await connection.ask(
                    "destination.create", destination=address, policy={"redelivery_limit": 1}
                )
                await (await connection.producer(address)).send_confirmed(address.encode())
                session = await connection.session(acknowledge="individual")
                consumer = await session.consumer(address)
                (message,) = await receive_all(consumer, 1)
                await message.reject()
                await session.close()
            of_east = [address for address in ELEVEN[:4] if address in kept_by(cluster, "east")]
            of_west = [address for address in ELEVEN[:4] if address not in of_east]
            assert len(of_east) == len(of_west) == 2
            found = await dead_letters(cluster)
            assert sorted(row["origin"] for row in found["reasons"]) == sorted(ELEVEN[:4])
            assert await asyncio.to_thread(queues, url(cluster), "") == [
                "queue:_DMQ@east",
                "queue:_DMQ@west",
            ]
            assert await asyncio.to_thread(queues, url(cluster), "east") == ["queue:_DMQ@east"]
            with pytest.raises(ClientFault, match="there are east, west") as refused:
                await asyncio.to_thread(queues, url(cluster), "north")
            assert refused.value.code == "sub-cluster-needed"
            sent = await dead_letters(cluster, "--redrive", "--sub-cluster", "west")
            assert sent == {"messages": 2, "left_out": 0}
            assert [await depth_of(connection, address) for address in (*of_east, *of_west)] == [0, 0, 1, 1]
            assert await dead_letters(cluster, "--redrive") == {"messages": 2, "left_out": 0}
            for address in ELEVEN[:4]:
                (message,) = await receive_all(await connection.consumer(address), 1)
                assert message.body == address.encode()
            for name in ("east", "west"):
                assert await depth_of(connection, f"queue:_DMQ@{name}") == 0

    spread(tmp_path, story, seconds=_SPARK_SECONDS)

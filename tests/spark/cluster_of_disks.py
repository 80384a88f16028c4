"""A cluster on folders that a simulation left behind, in a process of its own.

    python -m tests.spark.cluster_of_disks FOLDER ROLE…

It writes where it is to the file `ready` in the folder when it is whole."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from heliograph.bus.cuttable import CuttableBus
from heliograph.nodes import configuration as settings
from heliograph.nodes.clock import Clock
from heliograph.nodes.cluster_server import ClusterServer
from simulation.machines import EPOCH
from tests.servers import CLEAN, ROOT, until
from tests.spark.serving import wait_until
from tests.suites.cluster_in_process import CLIENTS, MESSAGES

_AN_HOUR = 3600.0


class ThatTime(Clock):
    """An hour after the simulation: what was held then is held still."""

    def __init__(self) -> None:
        self._behind = time.time() - EPOCH - _AN_HOUR

    def now(self) -> float:
        return super().now() - self._behind

    def microseconds(self) -> int:
        return super().microseconds() - int(self._behind * 1_000_000)


class ClusterInProcess:
    """From `with` to its end."""

    def __init__(self, folder: Path, roles: Sequence[str]) -> None:
        """The roles of the nodes 1.. as they were."""
        self._folder, self._roles = folder, roles

    def __enter__(self) -> str:
        ready = self._folder / "ready"
        command = [sys.executable, "-m", "tests.spark.cluster_of_disks", str(self._folder)]
        command += self._roles
        with (self._folder / "cluster.err").open("ab") as errors:
            self._process = subprocess.Popen(command, cwd=ROOT, env=CLEAN, stderr=errors)
        wait_until(ready.exists, "the cluster is whole", 120.0)
        return ready.read_text(encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


async def serve(folder: Path, roles: Sequence[str]) -> None:
    bus, nodes = CuttableBus(), []
    for number, role in enumerate(roles, start=1):
        configuration = settings.load(
            None,
            {
                "server.data": str(folder / f"n{number}"),
                "server.port": 0,
                "identity.node": number,
                "cluster.name": "sim",
                "cluster.role": role,
                "cluster.seniority": number,
                "cluster.message_managers": sum(role != CLIENTS for role in roles),
            },
        )
        server = ClusterServer(configuration, bus.on(number), clock=ThatTime())
        await server.start()
        nodes.append(server)
    await until(lambda: all(server.own.is_settled for server in nodes), "everybody is there", 100.0)
    address = nodes[next(n for n, role in enumerate(roles) if role != MESSAGES)].address
    assert address is not None
    unfinished = folder / "ready.new"
    unfinished.write_text("helio://{}:{}".format(*address), encoding="utf-8")
    unfinished.rename(folder / "ready")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))

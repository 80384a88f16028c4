"""A server for clients that have their own threads or processes: it runs in a thread of this process, alone or as a
cluster of one client manager and two message managers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import pytest
import uvloop

from heliograph.nodes.configuration import load
from heliograph.nodes.embedded import EmbeddedServer
from tests.suites.cluster_in_process import CLIENTS, Cluster

SECONDS = 60.0
on_a_single_server = pytest.mark.parametrize("stage", ["single"], indirect=True)
"""For stories in which the server is restarted: the stage does so with single ones only."""
T = TypeVar("T")


class Place(Protocol):
    """Where clients connect."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class Stage:
    """Runs a server until the end of the story."""

    def __init__(
        self, folder: Path, kind: str = "single", settings: Mapping[str, object] | None = None
    ) -> None:
        self._folder = folder
        self._kind = self.kind = kind
        self._settings = dict(settings or {})
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: EmbeddedServer | None = None
        self._cluster: Cluster | None = None
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def url(self) -> str:
        return f"helio://{self.host}:{self.port}"

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Something asynchronous, in the server's own loop."""
        return asyncio.run_coroutine_threadsafe(story, self._loop).result(SECONDS)

    def restart(self) -> None:
        """Stop, and start again on the same folder and port."""
        self.run(self._stop())
        self.run(self._start())

    async def _start(self) -> None:
        if self._kind == "cluster":
            self._cluster = cluster = Cluster(self._folder)
            await cluster.add(1, CLIENTS)
            await cluster.add(2)
            await cluster.add(3)
            address = cluster.nodes[1].address
            assert address is not None
            self.port = address[1]
            return
        fixed = {
            "server.host": self.host,
            "server.port": self.port,
            "server.data": str(self._folder / "data"),
        }
        self._server = EmbeddedServer(load(None, {**self._settings, **fixed}))
        await self._server.start()
        self.port = self._server.address[1]

    async def _stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        if self._cluster is not None:
            await self._cluster.stop()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self._stop())
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()

    def files(self, room: str) -> list[Path]:
        """Those of one room of the data folder, of all servers."""
        return [file for folder in self._folder.rglob(room) for file in folder.iterdir()]

    def dial(self) -> socket.socket:
        """A bare connection."""
        connection = socket.create_connection((self.host, self.port), timeout=SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def wait_for(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """A condition with a deadline, for threads."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.002)

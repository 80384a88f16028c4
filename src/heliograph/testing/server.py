"""A server of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from heliograph.nodes.configuration import Configuration, load
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.testing.clock import TestClock
from heliograph.testing.stage import Stage

if TYPE_CHECKING:
    from heliograph.nodes.client_manager import ClientManager

# A test's server lives for a second: what it stores need not outlive the machine, and is little.
_FOR_TESTS: Final = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "journal.durability": "write",
    "journal.segment_bytes": 4 * 1024 * 1024,
}


def settings_for_tests(folder: Path, settings: Mapping[str, object], **more: object) -> Configuration:
    """`settings`: by their full key, such as `{"sessions.lease_seconds": 5.0}`."""
    named = {name.replace("__", "."): value for name, value in more.items()}
    return load(None, {**_FOR_TESTS, "server.data": str(folder), **settings, **named})


def note_life(clients: ClientManager | None) -> None:
    if clients is not None:
        for connection in clients.connections:
            connection.show_life()


class RunningServer:
    """A server in this process. `url` is where clients connect, `clock` its time."""

    def __init__(self, folder: Path, stage: Stage, settings: Mapping[str, object] | None = None) -> None:
        self._stage = stage
        self._folder = folder
        self._settings = dict(settings or {})
        self._server: EmbeddedServer | None = None
        self.port = 0
        stage.add(self)
        self.start()

    @property
    def clock(self) -> TestClock:
        return self._stage.clock

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def url(self) -> str:
        return f"helio://{self.host}:{self.port}"

    def start(self) -> None:
        """On the same port and with the same messages as before."""
        if self._server is None:
            self._stage.run(self._start())

    def stop(self) -> None:
        """As when it is updated: clients lose their connection, and look for it until it is started again."""
        self._stage.run(self.end())

    def restart(self) -> None:
        self.stop()
        self.start()

    async def _start(self) -> None:
        configuration = settings_for_tests(self._folder, self._settings, server__port=self.port)
        server = EmbeddedServer(configuration, clock=self.clock)
        await server.start()
        self._server, self.port = server, server.address[1]

    def time_passed(self) -> None:
        if self._server is not None:
            note_life(self._server.clients)

    async def end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

"""A server as a driver or a task of Spark sees it: questions that can be asked again, and are, while it is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from heliograph.client.blocking import BlockingConnection, connect
from heliograph.model.errors import ConnectionLost, HeliographError, Unavailable
from heliograph.spark.options import Options

# A server that answers so is there, and will do it in a moment.
_SOON = (
    "lease-busy",
    "pipeline-restricted",
    "not-leading",
    "storage-full",
    "no-server",
    "no-greeting",
    "server-stopping",
)
_PAUSE_SECONDS = 0.2
Found = TypeVar("Found")


class Server:
    """One connection, made when it is needed and made again when it is lost."""

    def __init__(self, options: Options, purpose: str) -> None:
        self._options = options
        self._purpose = purpose
        self._connection: BlockingConnection | None = None
        self._url = options.url

    def ask(self, subject: str, **arguments: Any) -> dict[str, Any]:
        """Ask until there is an answer: everything that pipelines ask may be asked twice."""
        return self.until_answered(lambda connection: connection.ask(subject, **arguments))

    def sub_clusters(self) -> list[str]:
        """Their names, where there are several."""
        return self.until_answered(lambda connection: connection.asynchronous.sub_clusters)

    def until_answered(self, question: Callable[[BlockingConnection], Found]) -> Found:
        """The same for what takes more than a question, and may be begun anew."""
        deadline = time.monotonic() + self._options.retryseconds
        while True:
            try:
                return question(self.connection())
            except HeliographError as error:
                if not may_come_again(error) or time.monotonic() >= deadline:
                    raise
                self.close()
                self._url = next_host_first(self._url)
                time.sleep(_PAUSE_SECONDS)

    def connection(self) -> BlockingConnection:
        if self._connection is None:
            options = self._options
            self._connection = connect(
                self._url,
                user=options.user or None,
                password=options.password or None,
                client_name=f"spark {self._purpose}",
                reconnect_seconds=0.0,
                on_error=lambda _error: None,
            )
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(HeliographError):  # it is gone, which is what was wanted
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def next_host_first(url: str) -> str:
    """Of several hosts another is tried first: the one before may be in a part of the cluster that was cut off."""
    before, slashes, rest = url.partition("://")
    credentials, at, places = rest.rpartition("@")
    first, _, others = places.rstrip("/").partition(",")
    return f"{before}{slashes}{credentials}{at}{others},{first}" if others else url


def may_come_again(error: HeliographError) -> bool:
    """Whether the same question may be answered when it is asked later."""
    return isinstance(error, ConnectionLost | Unavailable) or error.code in (*_SOON, "closed")

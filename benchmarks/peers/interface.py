"""The one interface that every peer implements: start the server, produce, consume.

`start` runs in the benchmark; `produce` and `consume` run in client processes of their own. To add a peer,
write one class here in `peers/` and name it in `peers/__init__.py`.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.processes import Server
from benchmarks.workloads import LATENCY_RATE, STAMP_BYTES, Kind, Outcome, Plan, Synced


class StartingLine(Protocol):
    """What a client does between being connected and being timed."""

    def ready(self) -> None:
        """Say that this client is connected and listening."""

    def wait_for_go(self) -> None:
        """Say so, and wait until everybody else is."""


class Peer(ABC):
    """A message server together with one Python client for it."""

    key: ClassVar[str]
    title: ClassVar[str]
    client: ClassVar[str]
    """The distribution of the Python client, for its version."""
    durability: ClassVar[str]
    """In a few words, what has happened to a persistent message when its producer hears "yes"."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Debian packages to install when a program is missing."""
    programs: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]] = ()
    workloads: ClassVar[tuple[str, ...]] = ("queue", "queue-1k", "sync", "fanout", "latency")
    is_limit: ClassVar[bool] = False
    """True for the bare loops, which are no message servers and compete with nobody."""

    def missing_programs(self) -> list[str]:
        """Programs that are not on this machine."""
        return [program for program in self.programs if find_program(program) is None]

    def missing_modules(self) -> list[str]:
        """Python packages that are not in this environment."""
        return [module for module in self.modules if importlib.util.find_spec(module) is None]

    def client_version(self) -> str:
        """The version of the Python client, from its installed metadata."""
        try:
            return f"{self.client} {version(self.client)}"
        except PackageNotFoundError:
            return self.client

    @abstractmethod
    def synced(self, kind: Kind) -> Synced:
        """Whether a message of this workload is on disk when its producer hears "yes"."""

    @abstractmethod
    def server_version(self) -> str:
        """The server's version, as it tells it itself."""

    @abstractmethod
    def start(self, folder: Path, port: int) -> Server:
        """Start the server on the loopback port with its data in the folder; return when it answers."""

    @abstractmethod
    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Send all messages of the plan; return when the last is confirmed."""

    @abstractmethod
    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Receive all messages of the plan and acknowledge them."""


def find_program(name: str) -> str | None:
    """Where a program is; Debian puts servers where an ordinary user's path does not look."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/lib/rabbitmq/bin")


def program(name: str) -> str:
    """The program's path, which `missing_programs` has checked before."""
    path = find_program(name)
    assert path is not None, name
    return path


def stamped(size: int) -> bytes:
    """A body of the given size that begins with the time of its sending."""
    return time.monotonic_ns().to_bytes(STAMP_BYTES, "little").ljust(size, b"x")


def age_ns(body: bytes) -> int:
    """How long ago a stamped body was sent."""
    return time.monotonic_ns() - int.from_bytes(body[:STAMP_BYTES], "little")


def due(messages: int, started_ns: int) -> Iterator[int]:
    """How many messages of the latency workload are due, at each asking: ends when all have been handed out.

    Event loops wake at best every millisecond, so a producer asks at each tick and sends what is due since.
    """
    sent = 0
    while sent < messages:
        target = (time.monotonic_ns() - started_ns) * LATENCY_RATE // 1_000_000_000 + 1
        batch = min(target, messages) - sent
        sent += batch
        yield batch

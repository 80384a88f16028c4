"""Heliograph as a server for the clients of others: the programs that measure ActiveMQ and Mosquitto, unchanged,
against our port. Every message that is confirmed is synced, also those that Mosquitto only keeps in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from benchmarks.heliograph import own_version
from benchmarks.peers.activemq import ActiveMQ
from benchmarks.peers.mosquitto import Mosquitto, MosquittoAiomqtt
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Synced

_DURABILITY = "journal synced before the confirmation, many messages at a time"


def _start(folder: Path, port: int, name: str) -> Server:
    command = [
        sys.executable,
        "-m",
        "heliograph.cli.main",
        "serve",
        "--port",
        str(port),
        "--data",
        str(folder / "data"),
    ]
    return Server(command, folder=folder, name=name).wait_until(port_answers(port))


class HeliographStomp(ActiveMQ):
    """Heliograph through stomp.py."""

    key = "heliograph-stomp"
    title = "Heliograph (stomp.py)"
    durability = _DURABILITY
    packages: ClassVar[tuple[str, ...]] = ()
    programs: ClassVar[tuple[str, ...]] = ()

    def server_version(self) -> str:
        return own_version()

    def start(self, folder: Path, port: int) -> Server:
        return _start(folder, port, self.key)


class HeliographPaho(Mosquitto):
    """Heliograph through paho-mqtt."""

    key = "heliograph-paho"
    title = "Heliograph (paho-mqtt)"
    durability = _DURABILITY
    packages: ClassVar[tuple[str, ...]] = ()
    programs: ClassVar[tuple[str, ...]] = ()

    def synced(self, kind: Kind) -> Synced:
        """Every message of quality 1."""
        return "yes"

    def server_version(self) -> str:
        return own_version()

    def start(self, folder: Path, port: int) -> Server:
        return _start(folder, port, self.key)


class HeliographAiomqtt(MosquittoAiomqtt):
    """Heliograph through aiomqtt."""

    key = "heliograph-aiomqtt"
    title = "Heliograph (aiomqtt)"
    durability = _DURABILITY
    packages: ClassVar[tuple[str, ...]] = ()
    programs: ClassVar[tuple[str, ...]] = ()

    def synced(self, kind: Kind) -> Synced:
        """Every message of quality 1."""
        return "yes"

    def server_version(self) -> str:
        return own_version()

    def start(self, folder: Path, port: int) -> Server:
        return _start(folder, port, self.key)

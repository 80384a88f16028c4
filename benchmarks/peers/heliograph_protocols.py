"""Heliograph as a server for the clients of others: the programs that measure ActiveMQ and Mosquitto, unchanged,
against our port. Every message that is confirmed is synced, also those that Mosquitto only keeps in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from benchmarks.heliograph import own_version
from benchmarks.peers.activemq import ActiveMQ
from benchmarks.peers.mosquitto import Mosquitto, MosquittoAiomqtt
from benchmarks.peers.proton import ProtonPeer
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Synced

_DURABILITY = "journal synced before the confirmation, many messages at a time"


def _start(folder: Path, port: int, name: str, *options: str) -> Server:
    command = [
        sys.executable,
        "-m",
        "heliograph.cli.main",
        "serve",
        "--port",
        str(port),
        "--data",
        str(folder / "data"),
        *options,
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


class HeliographPahoWritten(HeliographPaho):
    """Heliograph through paho-mqtt, beside a server that does not sync either."""

    key = "heliograph-paho-written"
    title = "Heliograph, not synced (paho-mqtt)"
    durability = "written to the journal, which the system syncs when it likes"

    def synced(self, kind: Kind) -> Synced:
        return "no"

    def start(self, folder: Path, port: int) -> Server:
        return _start(folder, port, self.key, "--durability", "write")


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


class HeliographProton(ProtonPeer):
    """Heliograph through Proton."""

    key = "heliograph-proton"
    title = "Heliograph (Proton)"
    durability = _DURABILITY

    def server_version(self) -> str:
        return own_version()

    def start(self, folder: Path, port: int) -> Server:
        return _start(folder, port, self.key)

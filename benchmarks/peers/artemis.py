"""Artemis, through stomp.py, paho-mqtt and Proton: the programs that measure ActiveMQ, Mosquitto and us, unchanged.

Its journal is synced before a confirmation, by asynchronous I/O where libaio is there, as `artemis create` chooses.
It has the memory that is given to ActiveMQ. Queues are made when they are first named.
"""

from __future__ import annotations

import ctypes.util
from pathlib import Path
from typing import ClassVar, Final

from benchmarks import artemis_jars
from benchmarks.peers.activemq import PREFETCH, ActiveMQ
from benchmarks.peers.interface import program
from benchmarks.peers.mosquitto import Mosquitto
from benchmarks.peers.proton import ProtonPeer
from benchmarks.processes import Server, port_answers
from benchmarks.workloads import Kind, Synced

_SOURCE: Final = Path(__file__).parent.parent / "java" / "Artemis.java"
_DURABILITY: Final = "journal synced before the confirmation, those of 0.5 ms together"
CONFIGURATION: Final = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>bench</name>
    <persistence-enabled>true</persistence-enabled>
    <security-enabled>false</security-enabled>
    <journal-type>{journal}</journal-type>
    <bindings-directory>{folder}/bindings</bindings-directory>
    <journal-directory>{folder}/journal</journal-directory>
    <large-messages-directory>{folder}/large</large-messages-directory>
    <paging-directory>{folder}/paging</paging-directory>
    <acceptors>
      <acceptor name="one">tcp://127.0.0.1:{port}?protocols={protocol};{options}</acceptor>
    </acceptors>
    <address-settings>
      <address-setting match="#">
        <auto-create-queues>true</auto-create-queues>
        <auto-create-addresses>true</auto-create-addresses>
        <max-size-bytes>-1</max-size-bytes>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""


def start(folder: Path, port: int, protocol: str, options: str) -> Server:
    """Start it for one protocol."""
    journal = "ASYNCIO" if ctypes.util.find_library("aio") else "NIO"
    settings = folder / "broker.xml"
    settings.write_text(
        CONFIGURATION.format(folder=folder, port=port, protocol=protocol, options=options, journal=journal)
    )
    command = [
        *(program("java"), "-Xms512M", "-Xmx512M", f"-Djava.io.tmpdir={folder}"),
        *("-cp", f"{artemis_jars.folder()}/*", str(_SOURCE), str(settings)),
    ]
    return Server(command, folder=folder, name="artemis").wait_until(port_answers(port))


class ArtemisStomp(ActiveMQ):
    """Artemis through STOMP."""

    key = "artemis-stomp"
    title = "Artemis (stomp.py)"
    # In bytes, and a message counts for two thousand. It takes ActiveMQ's header for bytes too.
    ahead: ClassVar[dict[str, str]] = {"consumer-window-size": str(PREFETCH * 2_000)}
    durability = _DURABILITY
    packages: ClassVar[tuple[str, ...]] = ("default-jre-headless", "libaio1")
    programs: ClassVar[tuple[str, ...]] = ("java",)

    def server_version(self) -> str:
        return f"Artemis {artemis_jars.VERSION}"

    def start(self, folder: Path, port: int) -> Server:
        return start(folder, port, "STOMP", "anycastPrefix=/queue/;multicastPrefix=/topic/")


class ArtemisPaho(Mosquitto):
    """Artemis through MQTT."""

    key = "artemis-paho"
    title = "Artemis (paho-mqtt)"
    durability = _DURABILITY
    packages: ClassVar[tuple[str, ...]] = ("default-jre-headless", "libaio1")
    programs: ClassVar[tuple[str, ...]] = ("java",)

    def synced(self, kind: Kind) -> Synced:
        return "yes"

    def server_version(self) -> str:
        return f"Artemis {artemis_jars.VERSION}"

    def start(self, folder: Path, port: int) -> Server:
        return start(folder, port, "MQTT", "defaultMqttSessionExpiryInterval=3600")


class ArtemisProton(ProtonPeer):
    """Artemis through AMQP 1.0."""

    key = "artemis-proton"
    title = "Artemis (Proton)"
    durability = _DURABILITY
    packages: ClassVar[tuple[str, ...]] = ("default-jre-headless", "libaio1")
    programs: ClassVar[tuple[str, ...]] = ("java",)

    def server_version(self) -> str:
        return f"Artemis {artemis_jars.VERSION}"

    def start(self, folder: Path, port: int) -> Server:
        return start(folder, port, "AMQP", "anycastPrefix=/queue/;multicastPrefix=/topic/")

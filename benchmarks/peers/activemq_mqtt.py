"""ActiveMQ through MQTT, with the program that measures Mosquitto, unchanged.

It keeps what a session that is not clean has not acknowledged in the journal that STOMP's messages are in. Debian's
package can speak MQTT when it is given the jar with the packets, which is in another package.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from benchmarks.peers.activemq import ActiveMQ, start_broker
from benchmarks.peers.mosquitto import Mosquitto
from benchmarks.processes import Server
from benchmarks.workloads import Kind, Synced

_PACKETS: Final = Path("/usr/share/java/mqtt-client.jar")


class ActiveMQPaho(Mosquitto):
    """ActiveMQ through paho-mqtt."""

    key = "activemq-paho"
    title = "ActiveMQ (paho-mqtt)"
    durability = ActiveMQ.durability
    packages: ClassVar[tuple[str, ...]] = (*ActiveMQ.packages, "libmqtt-client-java")
    programs: ClassVar[tuple[str, ...]] = ActiveMQ.programs

    def missing_programs(self) -> list[str]:
        return [*super().missing_programs(), *([] if _PACKETS.exists() else [_PACKETS.name])]

    def synced(self, kind: Kind) -> Synced:
        return "yes"

    def server_version(self) -> str:
        return ActiveMQ().server_version()

    def start(self, folder: Path, port: int) -> Server:
        (folder / "lib").mkdir()
        (folder / "lib" / _PACKETS.name).symlink_to(_PACKETS)
        return start_broker(folder, port, "mqtt")

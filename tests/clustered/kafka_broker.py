"""A Kafka broker of one node (KRaft, no ZooKeeper), from its jars on Maven Central.

The jars are kept in a cache of the user's, and fetched when a broker is first started.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

VERSION: Final = "3.7.2"
CENTRAL: Final = "https://repo1.maven.org/maven2"
_FETCH_SECONDS: Final = 60
_START_SECONDS: Final = 60
# What kafka_2.13 names as its dependencies at run time, and what those cannot do without.
_JARS: Final = (
    *(
        f"org.apache.kafka:{name}:{VERSION}"
        for name in (
            "kafka-clients",
            "kafka-group-coordinator",
            "kafka-metadata",
            "kafka-raft",
            "kafka-server",
            "kafka-server-common",
            "kafka-storage",
            "kafka-storage-api",
            "kafka-tools-api",
            "kafka_2.13",
        )
    ),
    "com.fasterxml.jackson.core:jackson-annotations:2.16.2",
    "com.fasterxml.jackson.core:jackson-core:2.16.2",
    "com.fasterxml.jackson.core:jackson-databind:2.16.2",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.16.2",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.16.2",
    "com.fasterxml.jackson.module:jackson-module-scala_2.13:2.16.2",
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "com.github.luben:zstd-jni:1.5.6-4",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.4",
    "com.yammer.metrics:metrics-core:2.2.0",
    "commons-cli:commons-cli:1.4",
    "commons-io:commons-io:2.14.0",
    "commons-validator:commons-validator:1.7",
    "io.dropwizard.metrics:metrics-core:4.1.12.1",
    "net.sf.jopt-simple:jopt-simple:5.0.4",
    "net.sourceforge.argparse4j:argparse4j:0.7.0",
    "org.apache.zookeeper:zookeeper:3.8.4",
    "org.apache.zookeeper:zookeeper-jute:3.8.4",
    "org.bitbucket.b_c:jose4j:0.9.4",
    "org.lz4:lz4-java:1.8.0",
    "org.pcollections:pcollections:4.0.1",
    "org.scala-lang:scala-library:2.13.12",
    "org.scala-lang:scala-reflect:2.13.12",
    "org.scala-lang.modules:scala-collection-compat_2.13:2.10.0",
    "org.scala-lang.modules:scala-java8-compat_2.13:1.0.2",
    "org.slf4j:slf4j-api:1.7.36",
    "org.slf4j:slf4j-simple:1.7.36",
    "org.xerial.snappy:snappy-java:1.1.10.5",
)


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "heliograph" / f"kafka-{VERSION}"


def _file_of(coordinates: str) -> str:
    _, name, version = coordinates.split(":")
    return f"{name}-{version}.jar"


def fetch() -> Path:
    """The folder with all jars; what is not there comes from Maven Central, checked against the digest beside it."""
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    for coordinates in _JARS:
        target = folder / _file_of(coordinates)
        if target.exists():
            continue
        group, name, version = coordinates.split(":")
        address = f"{CENTRAL}/{group.replace('.', '/')}/{name}/{version}/{target.name}"
        with urllib.request.urlopen(address, timeout=_FETCH_SECONDS) as answer:
            raw = answer.read()
        with urllib.request.urlopen(address + ".sha1", timeout=_FETCH_SECONDS) as answer:
            digest = answer.read().decode().split()[0]
        assert hashlib.sha1(raw).hexdigest() == digest, f"{address} is damaged"
        target.with_suffix(".part").write_bytes(raw)
        target.with_suffix(".part").replace(target)
    return folder


def start(folder: Path, port: int) -> Any:
    """A broker and controller in one process, its log in the folder."""
    from benchmarks.processes import Server, free_port, port_answers

    found = fetch()
    controller = free_port()
    settings = folder / "server.properties"
    settings.write_text(
        "\n".join(
            f"{key}={value}"
            for key, value in {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": folder / "kafka",
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "4",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "num.partitions": "1",
                "auto.create.topics.enable": "true",
                "group.initial.rebalance.delay.ms": "0",
            }.items()
        ),
        encoding="utf-8",
    )
    java = ["java", "-Xmx512m", "-cp", f"{found}/*"]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_START_SECONDS,
    )
    server = Server([*java, "kafka.Kafka", str(settings)], folder=folder, name="kafka")
    return server.wait_until(port_answers(port))


def _cluster_id() -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


if __name__ == "__main__":
    fetch()

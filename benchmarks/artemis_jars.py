"""Artemis, which Debian does not have, from its jars on Maven Central, kept for the next time."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from pathlib import Path
from typing import Final

VERSION: Final = "2.38.0"
CENTRAL: Final = "https://repo1.maven.org/maven2"
_FETCH_SECONDS: Final = 60
_NETTY: Final = "4.1.114.Final"
# What artemis-server and its three protocols name as their dependencies at run time.
_JARS: Final = (
    *(
        f"org.apache.activemq:artemis-{name}:{VERSION}"
        for name in (
            *("amqp-protocol", "commons", "core-client", "jdbc-store", "journal", "lockmanager-api"),
            *("mqtt-protocol", "selector", "server", "stomp-protocol"),
        )
    ),
    *(
        f"io.netty:netty-{name}:{_NETTY}"
        for name in (
            *("buffer", "codec", "codec-http", "codec-mqtt", "codec-socks", "common", "handler"),
            *("handler-proxy", "resolver", "transport", "transport-classes-epoll"),
            *("transport-classes-kqueue", "transport-native-unix-common"),
        )
    ),
    f"io.netty:netty-transport-native-epoll:{_NETTY}:linux-x86_64",
    "com.github.ben-manes.caffeine:caffeine:3.1.8",
    "commons-beanutils:commons-beanutils:1.9.4",
    "commons-collections:commons-collections:3.2.2",
    "commons-logging:commons-logging:1.2",
    "de.dentrassi.crypto:pem-keystore:2.4.0",
    "io.micrometer:micrometer-commons:1.13.5",
    "io.micrometer:micrometer-core:1.13.5",
    "io.micrometer:micrometer-observation:1.13.5",
    "jakarta.transaction:jakarta.transaction-api:1.3.3",
    "org.apache.activemq:activemq-artemis-native:2.0.0",
    "org.apache.commons:commons-configuration2:2.11.0",
    "org.apache.commons:commons-dbcp2:2.12.0",
    "org.apache.commons:commons-lang3:3.17.0",
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.commons:commons-text:1.12.0",
    "org.apache.qpid:proton-j:0.34.1",
    "org.bouncycastle:bcpkix-jdk18on:1.78",
    "org.bouncycastle:bcprov-jdk18on:1.78",
    "org.bouncycastle:bcutil-jdk18on:1.78",
    "org.jctools:jctools-core:4.0.5",
    "org.jgroups:jgroups:5.3.13.Final",
    "org.slf4j:slf4j-api:2.0.16",
)


def folder() -> Path:
    """Where they are kept."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "heliograph" / f"artemis-{VERSION}"


def _file_of(coordinates: str) -> str:
    _, name, version, *classifier = coordinates.split(":")
    return "-".join([name, version, *classifier]) + ".jar"


def are_there() -> bool:
    return all((folder() / _file_of(each)).exists() for each in _JARS)


def fetch() -> None:
    """Those that are missing, each checked against the digest beside it. Raises OSError without a network."""
    folder().mkdir(parents=True, exist_ok=True)
    for coordinates in _JARS:
        target = folder() / _file_of(coordinates)
        if target.exists():
            continue
        group, name, version, *_ = coordinates.split(":")
        address = f"{CENTRAL}/{group.replace('.', '/')}/{name}/{version}/{target.name}"
        with urllib.request.urlopen(address, timeout=_FETCH_SECONDS) as answer:
            raw = answer.read()
        with urllib.request.urlopen(address + ".sha1", timeout=_FETCH_SECONDS) as answer:
            digest = answer.read().decode().split()[0]
        if hashlib.sha1(raw).hexdigest() != digest:
            raise OSError(f"{address} is damaged")
        target.with_suffix(".part").write_bytes(raw)
        target.with_suffix(".part").replace(target)

"""Qpid JMS in a Java process of its own, and calls into it: JSON in lines, both ways (java/Bridge.java)."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.missing import leave_out

_SOURCE = Path(__file__).parent / "java" / "Bridge.java"
_CENTRAL = "https://repo1.maven.org/maven2"
_NETTY = "4.1.113.Final"
_JARS = (
    "org/apache/qpid/qpid-jms-client/1.12.1/qpid-jms-client-1.12.1.jar",
    "org/apache/qpid/proton-j/0.34.1/proton-j-0.34.1.jar",
    "jakarta/jms/jakarta.jms-api/2.0.3/jakarta.jms-api-2.0.3.jar",
    "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
    "org/slf4j/slf4j-nop/1.7.36/slf4j-nop-1.7.36.jar",
    "org/json/json/20240303/json-20240303.jar",
    *(
        f"io/netty/netty-{part}/{_NETTY}/netty-{part}-{_NETTY}.jar"
        for part in (
            "buffer",
            "codec",
            "codec-http",
            "common",
            "handler",
            "resolver",
            "transport",
            "transport-classes-epoll",
            "transport-native-unix-common",
        )
    ),
)
needs_java = pytest.mark.debian({"javac": "default-jdk-headless"})
_CALL_SECONDS = 100.0
_DOWNLOAD_SECONDS = 60.0


def jars() -> list[Path]:
    """Qpid JMS and what it needs, from Maven Central, kept for the next time. The test is left out where
    that cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "heliograph" / "jars"
    cache.mkdir(parents=True, exist_ok=True)
    found = []
    for jar in _JARS:
        path = cache / jar.rpartition("/")[2]
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            try:
                with urllib.request.urlopen(f"{_CENTRAL}/{jar}", timeout=_DOWNLOAD_SECONDS) as reply:
                    part.write_bytes(reply.read())
            except (urllib.error.URLError, OSError) as error:
                leave_out(f"Qpid JMS cannot be got from Maven Central: {error}")
            part.rename(path)
        found.append(path)
    return found


def compiled(cache: Path, path: str) -> Path:
    """The bridge's classes, made once for each text of it."""
    folder = cache / f"bridge-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}"
    if not (folder / "Bridge.class").exists():
        fresh = cache / f"bridge-{os.getpid()}"
        subprocess.run(["javac", "-cp", path, "-d", str(fresh), str(_SOURCE)], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return folder


class JavaError(Exception):
    """An exception over there: its class, and what it says."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Bridge:
    """The Java process."""

    def __init__(self) -> None:
        found = jars()
        path = os.pathsep.join(map(str, found))
        folder = compiled(found[0].parent, path)
        self._process = subprocess.Popen(
            [
                "java",
                "-Xmx400m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{folder}{os.pathsep}{path}",
                "Bridge",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self.on_event: dict[tuple[str, int], Callable[[dict[str, Any]], None]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word = json.loads(line)
            if "event" in word:
                hear = self.on_event.get((word["event"], word["of"]))
                if hear is not None:
                    hear(word)
            else:
                self._waiting[word["id"]].put(word)

    def call(self, what: str, seconds: float = _CALL_SECONDS, **arguments: Any) -> Any:
        """Raises JavaError."""
        number = next(self._numbers)
        answers = self._waiting[number] = queue.Queue()
        line = json.dumps({"id": number, "do": what, **arguments})
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"{what} did not return in {seconds:g} s") from None
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise JavaError(answer["error"], answer["text"])
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(60)

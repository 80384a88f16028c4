"""A Kafka broker from its jars."""

from __future__ import annotations


def jars() -> None:
    return None


def why_not() -> str:
    return "no jars"


def start(folder: object, port: int) -> None: ...

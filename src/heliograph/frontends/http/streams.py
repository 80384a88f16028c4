"""A stream of server-sent events: what it asks and when, and what it waits for."""

from __future__ import annotations

from heliograph.frontends.http.steps import Topic
from heliograph.model.limits import HTTP_STREAM_SECONDS


class Stream:
    """What a stream waits for. Nothing is asked while the client does not read."""

    def __init__(self, topics: list[Topic]) -> None:
        self._topics = topics
        self._asked: dict[int, Topic] = {}
        self._last = 0.0
        self.is_written = True

    def due(self, now: float) -> list[Topic]:
        if not self.is_written or now - self._last < HTTP_STREAM_SECONDS * 0.8:
            return []
        self._last = now
        waiting = list(self._asked.values())
        return [topic for topic in self._topics if topic not in waiting]

    def asked(self, number: int, topic: Topic) -> None:
        self._asked[number] = topic

    def answered(self, number: int) -> Topic | None:
        return self._asked.pop(number, None)

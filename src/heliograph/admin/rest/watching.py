"""Live news by server-sent events: how everything stands each second, what happened, how the cluster is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.admin.rest.about_server import CLUSTER, map_of
from heliograph.admin.subjects import TOTALS
from heliograph.frontends.http.steps import Call, Question, Steps, Streaming, Topic

# What changes all the time and is no news.
_RESTLESS = ("uptime_seconds", "cpu_seconds", "rss_bytes")


def events(call: Call) -> Steps:
    """The first question is asked before anything is said: who may not know is told so in a reply."""
    topics = [_TOPICS[name]() for name in dict.fromkeys(call.query.topics.split(","))]
    if call.query.destination:
        shown = Question("destination.show", {"destination": call.query.destination})
        topics.append(Topic("destination", shown, lambda body: body))
    for topic in topics:
        yield topic.question
    yield Streaming(topics)
    raise AssertionError("a stream has no end of its own")


def _overview() -> Topic:
    return Topic("overview", Question(TOTALS), lambda body: body)


def _log() -> Topic:
    return Topic("log", Question("log"), _since_last())


def _since_last() -> Callable[[dict[str, Any]], Any]:
    """Events that were not told yet. Those of one moment are told apart by what they say."""
    last: list[dict[str, Any]] = []

    def news(body: dict[str, Any]) -> Any:
        found = [each for each in body["events"] if each not in last]
        last[:] = body["events"]
        return {"events": found} if found else None

    return news


def _cluster() -> Topic:
    return Topic("cluster", CLUSTER, _when_changed())


def _when_changed() -> Callable[[dict[str, Any]], Any]:
    last: list[Any] = [None]

    def news(composite: dict[str, Any]) -> Any:
        drawn = map_of(composite)
        still = [{k: v for k, v in node.items() if k not in _RESTLESS} for node in drawn["nodes"]]
        key = (still, drawn["sub_clusters"])
        if key == last[0]:
            return None
        last[0] = key
        return drawn

    return news


_TOPICS: dict[str, Callable[[], Topic]] = {"overview": _overview, "log": _log, "cluster": _cluster}

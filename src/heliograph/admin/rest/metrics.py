"""What Prometheus scrapes (X3): the server in a few dozen lines, and, for who asks, lines for each destination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from heliograph.admin.subjects import FIND, NODE, TOTALS
from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.steps import Call, Question, Steps
from heliograph.model.errors import HeliographError, Unavailable
from heliograph.model.limits import FOUND_ENTRIES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Destinations of which a scrape tells one by one.
_MOST: Final = 20_000
OF_ALL: Final = (
    ("destinations", "gauge", "destinations", "Destinations, without the server's own."),
    ("messages_waiting", "gauge", "depth", "Messages that wait for a consumer or for their time."),
    ("messages_in_flight", "gauge", "in_flight", "Messages that consumers have and have not settled."),
    ("messages_published_total", "counter", "published", "Messages that came in."),
    ("messages_delivered_total", "counter", "delivered", "Messages that were handed out, each time counted."),
    ("messages_settled_total", "counter", "settled", "Messages that consumers are through with."),
    ("bytes_published_total", "counter", "bytes", "Bytes of messages that came in."),
    ("consumers", "gauge", "consumers", "Consumers that are attached."),
    ("subscriptions", "gauge", "subscriptions", "Subscriptions of topics."),
    ("messages_dead", "gauge", "dead", "Messages in the dead message queue."),
    ("destinations_blocked", "gauge", "blocked", "Destinations whose producers are asked to wait."),
    ("destinations_paused", "gauge", "paused", "Destinations of which something is paused."),
    ("units_stopped", "gauge", "stopped_units", "Units of order that wait for an administrator."),
    ("messages_held_back", "gauge", "held_back", "Messages that wait because the cluster is in parts."),
)
OF_EACH: Final = (
    ("destination_messages_waiting", "gauge", "depth", "Messages that wait in a destination."),
    ("destination_messages_in_flight", "gauge", "in_flight", "Messages of it that consumers have."),
    ("destination_consumers", "gauge", "consumers", "Its consumers."),
    ("destination_messages_published_total", "counter", "published", "Messages that came in."),
    ("destination_messages_delivered_total", "counter", "delivered", "Messages that were handed out."),
    ("destination_messages_settled_total", "counter", "settled", "Messages that are done with."),
    ("destination_bytes_published_total", "counter", "bytes", "Bytes that came in."),
    ("destination_messages_held_back", "gauge", "held_back", "Messages that wait because of a partition."),
)
OF_SERVER: Final = (
    ("connections", "gauge", "connections", "Connections of this node."),
    ("sessions", "gauge", "sessions", "Sessions of this node."),
    ("resident_memory_bytes", "gauge", "rss_bytes", "Memory of this process."),
    ("cpu_seconds_total", "counter", "cpu_seconds", "Processor time of this process."),
    ("uptime_seconds", "gauge", "uptime_seconds", "How long this node has been running."),
    ("journal_bytes", "gauge", "journal_bytes", "Bytes of the journal on disk."),
    ("message_memory_bytes", "gauge", "resident_bytes", "Bodies of waiting messages in memory."),
    ("disk_full", "gauge", "disk_full", "1 while the journal refuses messages for lack of room."),
)
OF_PARTITIONS: Final = ("partition_state", "sub_cluster_has_leader", "message_managers_missing")
_STATES: Final = "ABCD"


def metrics(call: Call) -> Steps:
    lines: list[str] = []
    totals = yield Question(TOTALS)
    server = yield Question("server")
    node = yield Question("nodes.ask", {"command": NODE, "nodes": [server["node"]]})
    for name, kind, key, said in OF_ALL:
        lines += _metric(name, kind, said, [("", totals[key])])
    for name, kind, key, said in OF_SERVER:
        lines += _metric(name, kind, said, [("", server[key])])
    lines += _partitions(node)
    if call.query.destinations:
        yield from _each(call.query.destinations, lines)
    return Reply(200, "\n".join([*lines, ""]).encode(), CONTENT_TYPE)


def _each(wanted: str, lines: list[str]) -> Any:
    """All at once would be too much for one answer: a page after the other."""
    arguments: dict[str, Any] = {"limit": FOUND_ENTRIES, "contains": "" if wanted == "*" else wanted}
    found: list[dict[str, Any]] = []
    while len(found) < _MOST:
        page = yield Question(FIND, dict(arguments))
        found += page["destinations"]
        if len(page["places"]) < FOUND_ENTRIES:
            break
        arguments["after"] = page["places"][-1]
    labels = [f'{{destination="{escaped(each["address"])}"}}' for each in found]
    for name, kind, key, said in OF_EACH:
        values = [(label, each[key]) for label, each in zip(labels, found, strict=True)]
        lines += _metric(name, kind, said, values)


def _partitions(composite: dict[str, Any]) -> list[str]:
    """For each sub-cluster which state it is in, as this node sees it, and whether somebody leads."""
    bodies = [reply["body"] for reply in composite["replies"] if reply["ok"]]
    views = [item for body in bodies for item in body.get("partitions", {}).items()]
    if not views:
        return []
    states = [
        (f'{{sub_cluster="{escaped(name)}",state="{state}"}}', view.get("state") == state)
        for name, view in views
        for state in _STATES
    ]
    leads = [(f'{{sub_cluster="{escaped(name)}"}}', bool(view.get("leads"))) for name, view in views]
    missing = [(f'{{sub_cluster="{escaped(name)}"}}', len(view.get("missing", ()))) for name, view in views]
    return [
        *_metric("partition_state", "gauge", "1 for the state that a sub-cluster is in.", states),
        *_metric("sub_cluster_has_leader", "gauge", "1 if somebody leads a sub-cluster.", leads),
        *_metric("message_managers_missing", "gauge", "Message managers that are not here.", missing),
    ]


def _metric(name: str, kind: str, said: str, values: list[tuple[str, Any]]) -> Iterator[str]:
    yield f"# HELP heliograph_{name} {said}"
    yield f"# TYPE heliograph_{name} {kind}"
    for label, value in values:
        yield f"heliograph_{name}{label} {_number(value)}"


def _number(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# ---- health


def health(_call: Call) -> Steps:
    """The process runs, and its loop turns: it has just answered."""
    yield from ()
    return Reply(200, {"status": "ok"})


def ready(lacks: str) -> Steps:
    """Whether clients are well served here; if not, what is lacking."""
    yield from ()
    if not lacks:
        return Reply(200, {"status": "ready"})
    error: HeliographError = Unavailable(lacks, code="not-ready")
    return Reply(503, {"status": "waiting", "error": {"code": error.code, "sentence": error.sentence}})

"""Dead letters (D4): what lies in the dead message queue, by reason, and back to where it came from.

Triage looks through the queue and leaves it alone; its history would have what was sent back since, too. Redriving
leases the queue, a portion at a time, sends it to where each message came from, and only then acknowledges: a portion
is lent and published under one name and number, so that one that was cut off is done again, under its name, without
sending anything twice. What is not chosen stays dead, and so does what a row does not have whole: large messages.
What dies while this goes on is left for the next time.

Where there are several sub-clusters each has its own dead, and all of them are meant unless one is named. A redrive
goes through one after the other, with names and numbers of its own in each.
"""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from heliograph.client.message import MICROSECONDS
from heliograph.destinations.dead_letters import DIED_AT, ORIGINAL_DESTINATION, REASON
from heliograph.model.errors import ClientFault, HeliographError
from heliograph.spark.options import options_of
from heliograph.spark.pipelines.replay import AS_THEY_WERE, Sent, sequence
from heliograph.spark.pipelines.running import Tell, source
from heliograph.spark.rows import said
from heliograph.spark.schema import time_of
from heliograph.spark.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from heliograph.client.blocking import BlockingConnection

DEAD: Final = "queue:_DMQ"
_WHOLE: Final = f"{ORIGINAL_DESTINATION} IS NOT NULL AND NOT JMS_helio_large"
_NOT_WHOLE: Final = f"({ORIGINAL_DESTINATION} IS NULL OR JMS_helio_large)"


def dead_queues(server: Server, sub_cluster: str = "") -> dict[str, str]:
    """Where the dead are, by sub-cluster; by no name where there is but one. Raises ClientFault."""
    names = server.sub_clusters()
    if sub_cluster and sub_cluster not in names:
        there = f"there are {', '.join(names)}" if names else "there is but one"
        raise ClientFault(
            f"no sub-cluster is called {sub_cluster[:60]!r}: {there}", code="sub-cluster-needed"
        )
    chosen = [sub_cluster] if sub_cluster else names
    return {name: f"{DEAD}@{name}" for name in chosen} or {"": DEAD}


# ---- triage


class Group(NamedTuple):
    """Of the dead, those that died of one reason and were sent to one destination."""

    reason: str | None
    origin: str | None
    messages: int
    first: datetime | None  # when they were sent
    last: datetime | None


def triage(
    options: dict[str, Any],
    *,
    reason: str = "",
    origin: str = "",
    where: str = "",
    sub_cluster: str = "",
) -> list[Group]:
    """By reason and origin: how many, since when."""
    selector = selector_for(reason=reason, origin=origin, where=where)
    found: dict[tuple[str | None, str | None], Group] = {}
    with Server(options_of(options), "dead letters") as server:
        for queue in dead_queues(server, sub_cluster).values():
            for group in server.until_answered(partial(_lying_in, queue=queue, selector=selector)):
                _add(found, group)
    return sorted(found.values(), key=lambda group: -group.messages)


def _lying_in(connection: BlockingConnection, *, queue: str, selector: str) -> list[Group]:
    found: dict[tuple[str | None, str | None], Group] = {}
    for message in connection.browse(queue, selector=selector):
        sent = time_of(round(message.timestamp * MICROSECONDS))
        try:
            reason, origin = (message.properties.get(name) for name in (REASON, ORIGINAL_DESTINATION))
        except ClientFault:  # somebody sent it there, with a head that nobody can read
            reason = origin = None
        _add(found, Group(said(reason), said(origin), 1, sent, sent))
    return list(found.values())


def _add(found: dict[tuple[str | None, str | None], Group], group: Group) -> None:
    key = group.reason, group.origin
    before = found.get(key, group)
    count = group.messages if before is group else before.messages + group.messages
    first = min((time for time in (before.first, group.first) if time is not None), default=None)
    last = max((time for time in (before.last, group.last) if time is not None), default=None)
    found[key] = Group(*key, count, first, last)


# ---- redriving


def selector_for(*terms: str, reason: str, origin: str, where: str) -> str:
    """Which of the dead are meant, as the server understands it."""
    wanted = list(terms)
    if reason:
        wanted.append(f"{REASON} = {_quoted(reason)}")
    if origin:
        wanted.append(f"{ORIGINAL_DESTINATION} = {_quoted(origin)}")
    if where:
        wanted.append(f"({where})")
    return " AND ".join(wanted)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def redrive(
    spark: SparkSession,
    options: dict[str, Any],
    tell: Tell,
    *,
    reason: str = "",
    origin: str = "",
    where: str = "",
    name: str = "",
    sub_cluster: str = "",
) -> Sent:
    """Send what is chosen back to where it came from. `name`: one that was cut off goes on under its name, and sends
    nothing twice. `maxRowsPerTrigger` of the options is how many at a time."""
    name = name or f"redrive-{uuid.uuid4().hex}"
    sent = left = 0
    with Server(options_of(options), "dead letters") as server:
        queues = dead_queues(server, sub_cluster)
    for place, queue in queues.items():
        # What died here may have come from elsewhere since moved: numbers of two places must not meet there.
        own = f"{name}@{place}" if place else name
        leased = {**options, "destination": queue, "mode": "queue", "lease": own}
        some = _redrive_one(spark, leased, tell, sent, reason=reason, origin=origin, where=where)
        sent, left = sent + some.messages, left + some.left_out
    if left:
        tell(f"{left} messages stay dead: they are large, or do not say where they came from")
    return Sent(sent, left)


def _redrive_one(
    spark: SparkSession,
    leased: dict[str, Any],
    tell: Tell,
    before: int,
    *,
    reason: str,
    origin: str,
    where: str,
) -> Sent:
    """The same for the dead of one place. `before`: how many were sent from others."""
    sent = 0
    name, queue = leased["lease"], leased["destination"]
    with Server(options_of(leased), "dead letters") as server:
        by_now = f"{DIED_AT} <= {_now(server)!r}"
        selector = selector_for(_WHOLE, by_now, reason=reason, origin=origin, where=where)
        leased["selector"] = selector
        epoch = _next_epoch(server, leased, tell)
        while messages := lend(server, leased, epoch):
            send_back(spark, leased, epoch)
            server.ask("pipeline.acknowledge", name=name, epoch=epoch, destination=queue)
            sent, epoch = sent + messages, epoch + 1
            tell(f"{before + sent} messages were sent back to where they came from")
        rest = selector_for(_NOT_WHOLE, reason=reason, origin=origin, where=where)
        left = sum(1 for _ in server.connection().browse(queue, selector=rest))
    return Sent(sent, left)


def _now(server: Server) -> float:
    """The server's time if we may ask for it: that is what deaths are dated by."""
    try:
        return float(server.ask("server")["time"])
    except HeliographError:
        return time.time()


def lend(server: Server, leased: dict[str, Any], epoch: int, messages: int | None = None) -> int:
    """Have a portion lent, or find again what was lent before; how many messages it has."""
    options = options_of(leased)
    lent = server.ask(
        "pipeline.lease",
        name=options.lease,
        epoch=epoch,
        messages=options.lease_messages if messages is None else messages,
        destination=options.destination,
        seconds=options.leaseseconds,
        selector=options.selector,
    )
    return int(lent["messages"])


def _next_epoch(server: Server, leased: dict[str, Any], tell: Tell) -> int:
    """Where a redrive of this name goes on: with the portion that is lent to it, or with a new one. A portion that
    was sent, and went back because nobody came in time to acknowledge it, is not known from others: it gets a new
    number, and with that is sent once more, since what died meanwhile may be in it."""
    shown = server.ask("pipeline.depth", destination=leased["destination"], name=leased["lease"])
    first, published = max(int(shown["epoch"]) + 1, 1), int(shown["batch"])
    for epoch in range(first, published + 2):
        if lend(server, leased, epoch, messages=0):
            return epoch
    if published >= first:
        tell("what was sent last under this name was not taken out in time: it may be sent a second time")
    return max(first, published + 1)


def described(messages: DataFrame) -> DataFrame:
    """With reason and origin as columns."""
    from pyspark.sql import functions as f

    return messages.withColumn("reason", f.col("properties")[REASON]).withColumn(
        "origin", f.col("properties")[ORIGINAL_DESTINATION]
    )


def send_back(spark: SparkSession, leased: dict[str, Any], epoch: int) -> None:
    """Publish a portion that is lent, unless it was published before."""
    from pyspark.sql import functions as f

    dead = described(source(spark, {**leased, "epoch": epoch}, streams=False))
    properties = f.map_filter(f.col("properties"), lambda name, _: ~name.startswith("JMS_helio_"))
    rows = dead.select(
        f.col("origin").alias("destination"),
        *AS_THEY_WERE,
        sequence().alias("sequence"),
        properties.alias("properties"),
    )
    to_server = {
        key: str(value) for key, value in leased.items() if key in ("url", "user", "password", "retrySeconds")
    }
    writer = rows.repartition(1).sortWithinPartitions("lsn", "sequence").write.format("heliograph")
    writer.options(**to_server, name=leased["lease"], batch=str(epoch)).mode("append").save()

"""Writing (D3): tasks stage their rows at the server, the driver publishes the batch, once. Rows for a channel of
alerts go to the driver, which raises them (`alerting.py`).

The key is the query's id and the batch's number, which Spark gives again when it does a batch again. Tasks that were
tried twice, batches that were committed before Spark noted it, and aborts of batches that took effect do no harm:
docs/decisions/0024.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from heliograph.client.session import Session
from heliograph.frontends.alert_messages import is_channel
from heliograph.model.errors import HeliographError
from heliograph.model.limits import MAX_TRANSACTION_BYTES
from heliograph.spark.alerting import Raised, alerts_of, raise_all
from heliograph.spark.options import Options
from heliograph.spark.packing import Pack, blocks_of, by_destination
from heliograph.spark.server import Server, may_come_again

# A part is packed again if the server is lost while it is staged, so it is kept until then; it stays within a
# transaction.
_PART_BYTES = MAX_TRANSACTION_BYTES // 4
_BLOCKS_AT_ONCE = 8
Part = tuple[bytes, bytes]
Packed = tuple[str, int, Pack]


@dataclass
class Staged(WriterCommitMessage):
    """What a task left at the server."""

    name: str
    batch: int
    destination: str
    parts: list[Part]
    rows: int
    alerts: list[Raised]


def _stage_all(options: Options, name: str, batch: int, iterator: Iterator[pa.RecordBatch]) -> Staged:
    parts: list[Part] = []
    alerts: list[Raised] = []
    gathered: list[Packed] = []
    size = rows = 0
    destination = options.destination
    with Server(options, "writer") as server:
        for records in iterator:
            now = time.time_ns() // 1000
            for to, own in by_destination(records, options.destination):
                if is_channel(to):
                    alerts += alerts_of(to, own, now)
                    continue
                destination = destination or to
                for count, taken, pack in blocks_of(own, now):
                    gathered.append((to, count, pack))
                    size, rows = size + taken, rows + count
                    if size >= _PART_BYTES:
                        parts.append(_stage(server, options, name, batch, gathered))
                        gathered, size = [], 0
        if gathered:
            parts.append(_stage(server, options, name, batch, gathered))
    return Staged(name, batch, destination, parts, rows + len(alerts), alerts)


def _stage(server: Server, options: Options, name: str, batch: int, packed: list[Packed]) -> Part:
    """Stage these blocks in a session of their own. If the server is lost meanwhile, in another."""
    deadline = time.monotonic() + options.retryseconds
    while True:
        try:
            connection = server.connection()
            return connection.run(_stage_in_session(connection.asynchronous, name, batch, packed))
        except HeliographError as error:
            lost = error.code in ("transaction-rolled-back", "session-unknown", "not-allowed")
            if not (lost or may_come_again(error)) or time.monotonic() >= deadline:
                raise
            server.close()
            time.sleep(0.2)


async def _stage_in_session(connection: Any, name: str, batch: int, packed: list[Packed]) -> Part:
    session: Session = await connection.session(acknowledge="transacted")
    for number, (destination, count, pack) in enumerate(packed):
        sender = await session.sender_for(destination)
        await sender.wait_for_room()
        sender.put_packed(count, pack)
        if number % _BLOCKS_AT_ONCE == 0:
            await asyncio.sleep(0)
    for sender in list(session.senders()):
        await sender.drained()
    identity, token = session.credentials
    await connection.ask(
        "pipeline.stage",
        name=name,
        batch=batch,
        session=identity,
        token=token,
        messages=sum(count for _, count, _ in packed),
        destination=packed[0][0],
    )
    return identity, token


def _publish(options: Options, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Messages first: what stops alerts, such as too many of them, stops nothing that was published before."""
    staged = [message for message in messages if isinstance(message, Staged)]
    parts = [part for message in staged for part in message.parts]
    if parts:
        first = next(message for message in staged if message.parts)
        with Server(options, "driver") as server:
            server.ask(
                "pipeline.publish",
                name=first.name,
                batch=first.batch,
                parts=parts,
                destination=first.destination,
            )
    alerts = [alert for message in staged for alert in message.alerts]
    if alerts:
        with Server(options, "driver") as server:
            raise_all(server, staged[0].name, staged[0].batch, alerts)


def _discard(options: Options, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Only what is still staged: a batch that took effect stays. Alerts are raised by the driver, or not at all."""
    with Server(options, "driver") as server:
        for message in messages:
            if isinstance(message, Staged) and message.parts:
                server.ask(
                    "pipeline.discard",
                    name=message.name,
                    batch=message.batch,
                    parts=message.parts,
                    destination=message.destination,
                )


class StreamWriter(DataSourceStreamArrowWriter):
    """Of a streaming query."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        query = self._options.name or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query, "a streaming query has an id"
        assert batch is not None, "a batch of a streaming query has a number"
        return _stage_all(self._options, query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _publish(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _discard(self._options, messages)


class BatchWriter(DataSourceArrowWriter):
    """Of a batch: one of its kind, unless it is given a name, and a number under it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._name = options.name or f"batch-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _stage_all(self._options, self._name, self._options.batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _publish(self._options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _discard(self._options, messages)

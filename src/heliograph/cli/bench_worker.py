"""One client of `helio bench`, in a process of its own: `python -m heliograph.cli.bench_worker PLAN`.

It connects, prints `ready`, waits for a line on standard input, and then does its part. While it works it
prints how far it is, a few times a second; its last line is the outcome, or an error, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING

import msgspec
import uvloop

from heliograph.cli.bench_plan import Outcome, Plan, quantiles, stamp_of, stamped
from heliograph.cli.workloads import Role, Workload
from heliograph.client import connect
from heliograph.model.errors import HeliographError

if TYPE_CHECKING:
    from heliograph.client import Consumer, Producer, Session

_PROGRESS_SECONDS = 0.2


class Progress:
    """How many messages are done; a task prints it."""

    def __init__(self) -> None:
        self.done = 0

    async def report(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            print(self.done, flush=True)


async def wait_for_go() -> None:
    """Everybody is connected before anybody is timed."""
    # What has been allocated so far stays; collecting it again and again would be timed too.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def work(plan: Plan) -> Outcome:
    async with connect(
        plan.url,
        user=os.environ.get("HELIO_USER"),
        password=os.environ.get("HELIO_PASSWORD"),
        client_name=f"helio bench {plan.role}",
        reconnect_seconds=0,
    ) as connection:
        session = await connection.session()
        progress = Progress()
        reporting = asyncio.create_task(progress.report())
        try:
            act = _produce if plan.role is Role.PRODUCE else _consume
            return await act(plan, session, progress)
        finally:
            reporting.cancel()


async def _produce(plan: Plan, session: Session, progress: Progress) -> Outcome:
    producer = await session.producer(plan.destination, persistent=plan.persistent)
    await wait_for_go()
    began = monotonic_ns()
    match plan.workload:
        case Workload.SYNC:
            latencies = await _send_one_by_one(plan, producer, progress)
        case Workload.LATENCY:
            latencies = await _send_at_rate(plan, producer, progress)
        case Workload.PACED:
            latencies = await _send_yielding(plan, producer, progress)
        case _:
            latencies = await _send_pipelined(plan, producer, progress)
    await producer.flush()
    p50, p99 = quantiles(latencies)
    return Outcome(started_ns=began, finished_ns=monotonic_ns(), p50_ms=p50, p99_ms=p99)


async def _send_pipelined(plan: Plan, producer: Producer, progress: Progress) -> list[int]:
    body = b"x" * plan.size
    send = producer.send
    for done in range(plan.messages):
        await send(body)
        progress.done = done
    return []


async def _send_yielding(plan: Plan, producer: Producer, progress: Progress) -> list[int]:
    body = b"x" * plan.size
    send, sleep = producer.send, asyncio.sleep
    for done in range(plan.messages):
        await send(body)
        await sleep(0)
        progress.done = done
    return []


async def _send_one_by_one(plan: Plan, producer: Producer, progress: Progress) -> list[int]:
    body = b"x" * plan.size
    latencies = []
    for done in range(plan.messages):
        began = monotonic_ns()
        await producer.send_confirmed(body)
        latencies.append(monotonic_ns() - began)
        progress.done = done
    return latencies


async def _send_at_rate(plan: Plan, producer: Producer, progress: Progress) -> list[int]:
    """Event loops wake at best every millisecond, so each time everything that is due by then is sent."""
    began = monotonic_ns()
    sent = 0
    while sent < plan.messages:
        due = min(plan.messages, int((monotonic_ns() - began) * plan.rate / 1e9) + 1)
        while sent < due:
            await producer.send(stamped(monotonic_ns(), plan.size))
            sent += 1
        progress.done = sent
        next_due = sent / plan.rate - (monotonic_ns() - began) / 1e9
        await asyncio.sleep(max(next_due, 0))
    return []


async def _consume(plan: Plan, session: Session, progress: Progress) -> Outcome:
    consumer = await session.consumer(plan.destination)
    await wait_for_go()
    began = monotonic_ns()
    receive = _receive_timed if plan.workload is Workload.LATENCY else _receive_all
    latencies = await receive(plan, consumer, progress)
    finished = monotonic_ns()
    await consumer.close()
    p50, p99 = quantiles(latencies)
    return Outcome(started_ns=began, finished_ns=finished, p50_ms=p50, p99_ms=p99)


async def _receive_all(plan: Plan, consumer: Consumer, progress: Progress) -> list[int]:
    messages, done = plan.messages, 0
    async for _message in consumer:
        done += 1
        progress.done = done
        if done == messages:
            break
    return []


async def _receive_timed(plan: Plan, consumer: Consumer, progress: Progress) -> list[int]:
    latencies = []
    async for message in consumer:
        body = message.body
        assert isinstance(body, bytes)
        latencies.append(monotonic_ns() - stamp_of(body))
        progress.done = len(latencies)
        if len(latencies) == plan.messages:
            break
    return latencies


def main(plan_json: str) -> int:
    """Do what the plan says and report."""
    plan = msgspec.json.decode(plan_json, type=Plan)
    try:
        outcome = uvloop.run(work(plan))
    except HeliographError as error:
        print(json.dumps({"error": {"code": error.code, "sentence": error.sentence}}), flush=True)
        return 2
    print(msgspec.json.encode(outcome).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

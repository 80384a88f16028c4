"""What the messaging model costs: selectors, thousands of durable subscriptions, transactions, a stopped consumer.

    python -m benchmarks.messaging_model [--json] [selectors durable transacted stopped]

Each figure comes with the bar it has to meet. Transactions are measured beside ActiveMQ with its own Java client, in
turns, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import heliograph
from benchmarks.peers.interface import program
from benchmarks.processes import BenchmarkError, Server, port_answers

BODY: Final = b"x" * 256
ROUNDS: Final = 3
JARS: Final = "/usr/share/activemq/lib/*:/usr/share/java/*"
BROKER: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false"
          schedulePeriodForDestinationPurge="0" dataDirectory="{folder}/data">
    <persistenceAdapter>
      <kahaDB directory="{folder}/data/kahadb" journalDiskSyncStrategy="always"/>
    </persistenceAdapter>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


@asynccontextmanager
async def own_server(folder: Path, *options: str) -> AsyncIterator[str]:
    """A Heliograph server of its own process; its URL."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "heliograph.cli.main",
        "serve",
        "--port",
        "0",
        "--data",
        str(folder / "data"),
    ]
    server = Server([*command, "--ready-file", str(ready), *options], folder=folder, name="heliograph")
    with server:
        deadline = time.monotonic() + 30
        while not ready.exists():
            if time.monotonic() > deadline:
                raise BenchmarkError("the server did not come up")
            await asyncio.sleep(0.02)
        yield f"helio://{ready.read_text().strip()}"


async def _cpu(connection: heliograph.Connection) -> float:
    return float((await connection.ask("server"))["cpu_seconds"])


# ---- selectors


async def selectors(folder: Path) -> dict[str, Any]:
    """A subscription with a two-term selector: what one core of the server could look at in a second."""
    messages = 200_000
    async with own_server(folder) as url, heliograph.connect(url) as connection:
        session = await connection.session(acknowledge="dups-ok")
        consumer = await session.consumer("topic:selected", selector="colour = 'red' AND size > 50")
        producer = await session.producer("topic:selected")
        await _publish_varied(producer, 20_000)
        before = await _cpu(connection)
        taking = asyncio.create_task(_take(consumer, (messages + 20_000) // 4))
        await _publish_varied(producer, messages)
        await taking
        cost = (await _cpu(connection) - before) / messages
    per_core = 1 / cost
    return {"messages_per_second_and_core": round(per_core), "bar": 100_000, "met": per_core >= 100_000}


async def _publish_varied(producer: heliograph.Producer, messages: int) -> None:
    """Half are red, half of those are large: one in four matches."""
    for number in range(messages):
        colour = "red" if number % 2 else "blue"
        await producer.send(BODY, properties={"colour": colour, "size": 25 + (number % 4) // 2 * 50})
    await producer.flush()


async def _take(consumer: heliograph.Consumer, messages: int) -> None:
    taken = 0
    while taken < messages:
        taken += len(await consumer.receive_batch(timeout=10))


# ---- durable subscriptions


async def durable(folder: Path, subscriptions: int = 10_000) -> dict[str, Any]:
    """Durable subscriptions with selectors, of which one in a hundred matches a message: published a second."""
    messages = 60_000
    async with own_server(folder) as url, heliograph.connect(url, client_id="bench") as connection:
        session = await connection.session()
        for number in range(subscriptions):
            selector = f"kind = {number % 100} AND size > 10"
            consumer = await session.consumer("topic:many", selector=selector, durable=f"s{number}", credit=1)
            await consumer.close()
        producer = await session.producer("topic:many")
        started = time.perf_counter()
        for number in range(messages):
            await producer.send(BODY, properties={"kind": number % 100, "size": 20})
        await producer.flush()
        rate = messages / (time.perf_counter() - started)
        first = await session.consumer("topic:many", selector="kind = 0 AND size > 10", durable="s0")
        await _take(first, messages // 100)
        rss = (await connection.ask("server"))["rss_bytes"] // 1_000_000
    return {
        "subscriptions": subscriptions,
        "published_per_second": round(rate),
        "server_rss_mb": rss,
        "bar": 20_000,
        "met": rate >= 20_000,
    }


# ---- transactions


async def transacted(folder: Path) -> dict[str, Any]:
    """Transactions of 100 persistent messages of 256 B, beside ActiveMQ with its Java client."""
    ours: list[float] = []
    theirs: list[float] = []
    port = 61_699
    (folder / "activemq.xml").write_text(BROKER.format(folder=folder, port=port))
    broker = Server(
        [
            *(program("java"), "-Xms512M", "-Xmx512M", "-Dactivemq.home=/usr/share/activemq"),
            *(f"-Dactivemq.base={folder}", f"-Dactivemq.data={folder}/data", f"-Djava.io.tmpdir={folder}"),
            *("-jar", "/usr/share/activemq/bin/activemq.jar", "start", f"xbean:file:{folder}/activemq.xml"),
        ],
        folder=folder,
        name="activemq",
    )
    with broker.wait_until(port_answers(port)):
        async with own_server(folder) as url:
            for _ in range(ROUNDS):
                ours.append(await _transact(url, 3.0))
                theirs.append(await asyncio.to_thread(_transact_with_activemq, port, 3.0))
    ratio = statistics.median(ours) / statistics.median(theirs)
    return {
        "messages_per_second": round(statistics.median(ours)),
        "activemq_messages_per_second": round(statistics.median(theirs)),
        "ratio": round(ratio, 1),
        "bar": 5,
        "met": ratio >= 5,
    }


async def _transact(url: str, seconds: float) -> float:
    async with heliograph.connect(url) as connection:
        session = await connection.session(acknowledge="transacted")
        producer = await session.producer("queue:transacted")
        committed = 0
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            for _ in range(100):
                await producer.send(BODY)
            await session.commit()
            committed += 100
        return committed / (time.perf_counter() - started)


def _transact_with_activemq(port: int, seconds: float) -> float:
    source = Path(__file__).parent / "java" / "TransactedSends.java"
    done = subprocess.run(
        [program("java"), "-cp", JARS, str(source), f"tcp://127.0.0.1:{port}", "100", "256", str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"the Java client failed: {done.stderr[-500:]}")
    return float(done.stdout.split()[-1])


# ---- a stopped consumer


async def stopped(folder: Path, seconds: float = 30.0, rate: int = 100_000) -> dict[str, Any]:
    """One of three subscribers stops while a topic carries 100,000 messages a second; the others must not notice."""
    async with own_server(folder) as url:
        undisturbed = await _three_subscribers(url, seconds / 3, rate, stop_one=False)
        disturbed = await _three_subscribers(url, seconds, rate, stop_one=True)
    loss = 1 - disturbed["others_per_second"] / undisturbed["others_per_second"]
    return {
        "others_per_second_before": round(undisturbed["others_per_second"]),
        "others_per_second_beside_a_stopped_one": round(disturbed["others_per_second"]),
        "loss_percent": round(loss * 100, 1),
        "server_rss_mb": disturbed["rss_mb"],
        "caught_up_with_nothing_missing": disturbed["complete"],
        "bar": "loss of at most 10 %",
        "met": loss <= 0.10 and disturbed["complete"],
    }


async def _three_subscribers(url: str, seconds: float, rate: int, *, stop_one: bool) -> dict[str, Any]:
    topic = f"topic:stopped-{time.monotonic_ns()}"
    async with (
        heliograph.connect(url) as sending,
        heliograph.connect(url) as receiving,
        heliograph.connect(url) as slow,
    ):
        session = await receiving.session(acknowledge="dups-ok")
        others = [await session.consumer(topic) for _ in range(2)]
        last = await (await slow.session(acknowledge="dups-ok")).consumer(topic)
        if stop_one:
            slow.stop()
        producer = await (await sending.session()).producer(topic)
        total = int(seconds * rate)
        started = time.perf_counter()
        taking = [asyncio.create_task(_take(consumer, total)) for consumer in others]
        for batch in range(total // 1000):
            for _ in range(1000):
                await producer.send(BODY)
            ahead = batch * 1000 / rate - (time.perf_counter() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)
        await producer.flush()
        await asyncio.gather(*taking)
        elapsed = time.perf_counter() - started
        rss = (await sending.ask("server"))["rss_bytes"] // 1_000_000
        slow.start()
        await asyncio.wait_for(_take(last, total), 120)
    return {"others_per_second": total / elapsed, "rss_mb": rss, "complete": True}


MEASUREMENTS: Final[dict[str, Callable[[Path], Coroutine[Any, Any, dict[str, Any]]]]] = {
    "selectors": selectors,
    "durable": durable,
    "transacted": transacted,
    "stopped": stopped,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measurements", nargs="*", choices=[*MEASUREMENTS, []], metavar="WHICH")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.measurements or MEASUREMENTS:
        with tempfile.TemporaryDirectory(prefix="helio-bench-", dir="/var/tmp") as folder:
            try:
                results[name] = asyncio.run(MEASUREMENTS[name](Path(folder)))
            except (BenchmarkError, heliograph.HeliographError) as error:
                results[name] = {"failed": str(error), "met": False}
        if not options.json:
            print(
                f"{name}: " + ", ".join(f"{key} {value}" for key, value in results[name].items()), flush=True
            )
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

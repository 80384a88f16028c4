"""A user without rights can neither do nor learn anything: not by our library, not by the protocols of others."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest

from heliograph import connect
from heliograph.admin.subjects import OF_PIPELINES, OVER_DESTINATION, OVER_SERVER
from heliograph.client.connection import Connection
from heliograph.model.errors import HeliographError, NotAllowed
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.servers import embedded, play, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)
THERE, MISSING = "orders.of.today", "orders.of.never"


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[EmbeddedServer]:
    """Ann has a queue, a topic and a durable subscription; Mallory may log in."""
    users = UserStore(folder / "data" / "users.toml")
    users.add("ann", "a", ["admin"], cost=_CHEAP)
    users.add("mallory", "m", cost=_CHEAP)
    async with embedded(folder) as server:
        async with connect(url_of(server), user="ann", password="a", client_id="laptop") as ann:
            producer = await ann.producer(f"queue:{THERE}")
            for _ in range(3):
                await producer.send_confirmed(b"secret")
            consumer = await ann.consumer(f"topic:{THERE}", durable="evening")
            await consumer.close()
        yield server


def mallory(server: EmbeddedServer, **options: Any) -> Any:
    return connect(url_of(server), user="mallory", password="m", **options)


def _attempts(connection: Connection) -> dict[str, Any]:
    async def send(name: str) -> None:
        producer = await connection.producer(name)
        await producer.send_confirmed(b"x")

    async def receive(name: str) -> None:
        await connection.consumer(name)

    async def browse(name: str) -> None:
        async for _ in await connection.browse(name):
            pass

    return {"send": send, "receive": receive, "browse": browse}


def test_every_refusal_is_the_same_for_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    async def told(attempt: Any, name: str) -> tuple[str, str]:
        with pytest.raises(HeliographError) as refused:
            await attempt(name)
        return refused.value.code, refused.value.sentence.replace(THERE, "N").replace(MISSING, "N")

    async def story() -> None:
        async with house(tmp_path) as server, mallory(server) as connection:
            for what, attempt in _attempts(connection).items():
                for kind in ("queue", "topic"):
                    there, missing = [await told(attempt, f"{kind}:{name}") for name in (THERE, MISSING)]
                    assert there == missing, what
                    assert there[0] == "not-allowed"
            for subject in (*OVER_DESTINATION, *OF_PIPELINES):

                async def ask(name: str, subject: str = subject) -> None:
                    await connection.ask(subject, destination=name, target=name)

                there, missing = [await told(ask, f"queue:{name}") for name in (THERE, MISSING)]
                assert there == missing, subject
                assert there[0] == "not-allowed"
            for subject in (*OVER_SERVER, "log", "nodes.ask"):
                with pytest.raises(NotAllowed):
                    await connection.ask(subject, command="server")

    play(story())


def test_names_and_counts_stay_hidden(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as server:
            # Under the name of Ann's client, whose subscriptions she would see and could end.
            async with mallory(server, client_id="laptop") as connection:
                assert await connection.ask("client.subscriptions") == {"subscriptions": []}
                session = await connection.session()
                for name in ("evening", "no-such-thing"):
                    with pytest.raises(NotAllowed):
                        await session.unsubscribe(name)
                # A pattern matches nothing that one may not receive from, now or later.
                consumer = await connection.consumer("topic:glob:*")
                async with connect(url_of(server), user="ann", password="a") as ann:
                    for name in (THERE, "new.topic"):
                        await (await ann.producer(f"topic:{name}")).send_confirmed(b"secret")
                assert await consumer.receive(timeout=0.3) is None
            async with connect(url_of(server), user="ann", password="a", client_id="laptop") as ann:
                assert await ann.ask("client.subscriptions") == {"subscriptions": ["evening"]}
                shown = await ann.ask("destination.show", destination=f"queue:{THERE}")
                assert shown["depth"] == 3, "nothing was done"

    play(story())


@pytest.mark.alone
def test_a_refusal_takes_the_same_time(tmp_path: Path) -> None:
    """The medians differ by less than a tenth. A machine that is busy may spoil a round, and not all of them."""

    async def story() -> None:
        async with house(tmp_path) as server, mallory(server) as connection:
            session = await connection.session()
            ratios = []
            for _ in range(8):
                took: dict[str, list[int]] = {THERE: [], MISSING: []}
                for _ in range(300):
                    for name, times in took.items():
                        began = perf_counter_ns()
                        with pytest.raises(NotAllowed):
                            await session.consumer(f"queue:{name}")
                        times.append(perf_counter_ns() - began)
                there, missing = (statistics.median(times) for times in took.values())
                ratios.append(there / missing)
                if 0.9 < ratios[-1] < 1.1:
                    print(f"there / missing: {ratios[-1]:.3f}")
                    return
            pytest.fail(f"what is there took {ratios} times what is not")

    play(story())


async def _stomp(port: int, *frames: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = ""
    for frame in ("CONNECT\naccept-version:1.2\nlogin:mallory\npasscode:m\n\n\0", *frames):
        writer.write(frame.encode())
        said = (await reader.readuntil(b"\0")).decode()
    writer.close()
    return said


def test_others_learn_nothing_either(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as server:
            port = server.address[1]
            for frame in (
                "SEND\ndestination:/queue/{}\nreceipt:1\n\nx\0",
                "SUBSCRIBE\nid:1\ndestination:/queue/{}\n\n\0",
            ):
                there, missing = [
                    (await _stomp(port, frame.format(name))).replace(name, "N") for name in (THERE, MISSING)
                ]
                assert there.lstrip("\n").startswith("ERROR")
                assert there == missing

    play(story())

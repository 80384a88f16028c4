"""Units of order, by acknowledgement mode and way of completing: the table in docs/reference/unit-of-order.md.

In each row the consumer *first* has the head of a unit of five in its application's hands, and perhaps two
more that were sent ahead; two others compete, and what is not of the unit flows to them past it. Then the
head completes in one way or another, and all go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import heliograph
from heliograph import Connection
from heliograph.model.errors import TransactionRolledBack
from tests.servers import ROOT, embedded, helper, play, url_of
from tests.suites.ordered import BY_ITSELF, Ledger, Worker, until_depth, until_time, work_off

pytestmark = pytest.mark.req("U1", "U2")

QUEUE = "queue:orders"
ALL = ("auto", "client", "individual", "dups-ok", "transacted")
BUT_TRANSACTED = ("auto", "client", "individual", "dups-ok")
DYING: dict[str, object] = {"policies": [{"destinations": QUEUE, "redelivery_limit": 2}]}
# One that was killed looks like one whose connection broke: what it has waits for it, here for a moment.
HASTY: dict[str, object] = {"sessions.reconnect_seconds": 0.1}
TABLE = ROOT / "docs" / "reference" / "unit-of-order.md"


@dataclass(kw_only=True)
class Scene:
    """Where a row is played."""

    url: str
    mode: str
    credit: int
    connection: Connection
    stack: AsyncExitStack
    ledger: Ledger = field(default_factory=Ledger)
    first: Worker = field(init=False)
    others: list[Worker] = field(default_factory=list)

    async def worker(self, name: str, credit: int) -> Worker:
        worker = await Worker(name, self.mode, self.ledger).start(self.url, QUEUE, credit=credit)
        self.stack.push_async_callback(worker.stop)
        return worker

    async def send(self, *bodies: str, **options: float) -> None:
        producer = await self.connection.producer(QUEUE)
        for body in bodies:
            unit = body.partition("-")[0]
            await producer.send(body, unit_of_order="" if unit == "plain" else unit, **options)  # type: ignore[arg-type]
        await producer.flush()

    async def begin(self, **options: float) -> None:
        """The head of the unit is in the hands of the first; everything else flows past."""
        self.first = await self.worker("first", self.credit)
        await self.send("ada-1", "ada-2", **options)
        await self.send("ada-3", "ada-4", "ada-5")
        await self.first.expect("ada-1")
        self.others = [await self.worker(name, 10) for name in ("second", "third")]
        await self.others_flow(1)

    async def others_flow(self, number: int) -> None:
        bodies = [f"bob-{number}", f"plain-{number}"]
        await self.send(*bodies)
        await work_off(self.others, set(bodies))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the unit's messages must look like to the applications, from the first hand-over on."""

    order: str = "12345"
    again: str = ""  # numbers that may come marked
    gone: bool = False  # the first takes no part any more


AGAIN = Outcome(order="112345", again="1")


# ---- the ways


async def acknowledged(scene: Scene) -> Outcome:
    await scene.begin()
    await scene.first.complete()
    return Outcome()


async def recovered(scene: Scene) -> Outcome:
    await scene.begin()
    await scene.first.fail()
    return AGAIN


async def returned(scene: Scene) -> Outcome:
    await scene.begin()
    (message,) = scene.first.given_back()
    await message.return_()
    return AGAIN


async def rejected(scene: Scene) -> Outcome:
    await scene.begin()
    (message,) = scene.first.given_back()
    await message.reject("not now")
    return AGAIN


async def expired(scene: Scene) -> Outcome:
    """The head's time passes while it is in hand, and the second's while it waits behind it."""
    scene.credit = 1
    await scene.begin(time_to_live=1.0)  # it is in hand before that
    await until_time(time.time() + 1.0)
    (message,) = scene.first.given_back()
    await message.return_()
    return Outcome(order="1345")


async def dead_lettered(scene: Scene) -> Outcome:
    """It fails twice, whoever has it, which is as often as it may."""
    await scene.begin()
    await scene.first.fail()
    workers = [scene.first, *scene.others]
    while True:
        for worker in workers:
            if await worker.take(0.02) is not None:
                await worker.fail()
                dead = await (await scene.connection.consumer("queue:_DMQ")).receive(timeout=30)
                assert dead is not None
                assert dead.text == "ada-1"
                return Outcome(order="112345", again="1")


async def consumer_closed(scene: Scene) -> Outcome:
    await scene.begin()
    first = scene.first
    if first.mode in BY_ITSELF:
        first.done()
        await first.consumer.close()
        return Outcome(gone=True)
    if first.mode == "individual":
        first.given_back()
        await first.consumer.close()
        return Outcome(order="112345", again="1", gone=True)
    await first.consumer.close()  # the session has yet to decide
    await scene.others_flow(2)
    first.done()
    await (first.session.commit() if first.mode == "transacted" else first.session.acknowledge())
    return Outcome(gone=True)


async def session_closed(scene: Scene) -> Outcome:
    await scene.begin()
    if scene.mode in BY_ITSELF:
        scene.first.done()
    else:
        scene.first.given_back()
    await scene.first.session.close()
    return Outcome(gone=True) if scene.mode in BY_ITSELF else Outcome(order="112345", again="1", gone=True)


async def left_by_an_error(scene: Scene) -> Outcome:
    await scene.begin()
    scene.first.given_back()
    with suppress(ZeroDivisionError):
        async with scene.first.session:
            raise ZeroDivisionError
    return Outcome(order="112345", again="1", gone=True)


async def connection_lost(scene: Scene) -> Outcome:
    await scene.begin()
    scene.first.cut()
    await scene.others_flow(2)
    if scene.mode != "transacted":
        await scene.first.complete()
        return Outcome()
    scene.first.given_back()
    with pytest.raises(TransactionRolledBack):
        await scene.first.session.commit()
    return AGAIN


async def consumer_killed(scene: Scene) -> Outcome:
    await scene.send(*[f"ada-{n}" for n in range(1, 6)])
    async with helper("tests.suites.ordered", scene.url, QUEUE, scene.mode, str(scene.credit)):
        scene.ledger.hand("ada-1", "process", marked=False)
        scene.others = [await scene.worker(name, 10) for name in ("second", "third")]
        await scene.others_flow(1)
        scene.ledger.given_back("process")
    return Outcome(order="112345", again="123"[: scene.credit], gone=True)


async def purged(scene: Scene) -> Outcome:
    """What waits goes; what was handed out stays, and holds back what is sent from now on."""
    await scene.begin()
    await until_depth(scene.connection, QUEUE, 5 - scene.credit, scene.credit)
    await scene.connection.ask("destination.purge", destination=QUEUE)
    await scene.send("ada-6")
    await scene.others_flow(2)
    await scene.first.complete()
    return Outcome(order="1236"[: scene.credit] + "6")


WAYS: dict[str, tuple[tuple[str, ...], Callable[[Scene], Awaitable[Outcome]]]] = {
    "acknowledged": (BUT_TRANSACTED, acknowledged),
    "committed": (("transacted",), acknowledged),
    "recovered": (BUT_TRANSACTED, recovered),
    "rolled-back": (("transacted",), recovered),
    "returned": (ALL, returned),
    "rejected": (ALL, rejected),
    "expired": (ALL, expired),
    "dead-lettered": (ALL, dead_lettered),
    "consumer-closed": (ALL, consumer_closed),
    "session-closed": (ALL, session_closed),
    "left-by-an-error": (BY_ITSELF, left_by_an_error),
    "connection-lost": (ALL, connection_lost),
    "consumer-killed": (ALL, consumer_killed),
    "purged": (ALL, purged),
}
ROWS = {f"{mode}-{way}": (mode, play_it) for way, (modes, play_it) in WAYS.items() for mode in modes}


@pytest.mark.parametrize("credit", [1, 3], ids=["one-by-one", "sent-ahead"])
@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table(tmp_path: Path, row: str, credit: int) -> None:
    mode, way = ROWS[row]

    async def story() -> None:
        async with AsyncExitStack() as stack:
            settings = DYING if way is dead_lettered else HASTY if way is consumer_killed else None
            server = await stack.enter_async_context(embedded(tmp_path, settings))
            connection = await stack.enter_async_context(heliograph.connect(url_of(server)))
            scene = Scene(url=url_of(server), mode=mode, credit=credit, connection=connection, stack=stack)
            outcome = await way(scene)
            workers = scene.others if outcome.gone else [scene.first, *scene.others]
            last = outcome.order[-1]
            await work_off(workers, {f"ada-{last}"})
            unit = scene.ledger.of("ada")
            assert "".join(handed.body[-1] for handed in unit) == outcome.order
            assert {handed.body[-1] for handed in unit if handed.marked} <= set(outcome.again)
            assert [handed.marked for handed in unit[1:2]] == [bool(outcome.again)]
            await until_depth(connection, QUEUE, 0, 0)

    play(story())


def test_the_table_in_the_documentation_has_exactly_these_rows() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", TABLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == list(ROWS)

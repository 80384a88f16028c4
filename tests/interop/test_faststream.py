"""FastStream over STOMP, unmodified: the service of the example, and our own client on the other side."""

from __future__ import annotations

import asyncio

import pytest

import heliograph
from tests.interop.stage import Stage

pytest.importorskip("faststream_stomp", reason="pip install faststream-stomp")
pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
SECONDS = 60.0


def test_a_service_of_faststream_answers_orders_with_invoices(stage: Stage) -> None:
    from examples.faststream_orders import service

    async def story() -> None:
        _, broker = service(stage.host, stage.port)
        async with heliograph.connect(stage.url) as connection:
            orders = await connection.producer("queue:orders")
            invoices = await connection.consumer("queue:invoices")
            async with broker:
                await broker.start()
                for number in range(20):
                    await orders.send(f"tea {number}")
                found = [await invoices.receive(timeout=SECONDS) for _ in range(20)]
        texts = [message.body for message in found if message is not None]
        assert sorted(map(str, texts)) == sorted(f"invoice for tea {number}" for number in range(20))

    asyncio.run(asyncio.wait_for(story(), 2 * SECONDS))

"""A FastStream service over STOMP, unmodified: orders come in, invoices go out.

helio serve &
pip install faststream-stomp
python examples/faststream_orders.py
"""

from __future__ import annotations

import asyncio
import sys

import faststream
import faststream_stomp
import stompman


def service(host: str, port: int) -> tuple[faststream.FastStream, faststream_stomp.StompBroker]:
    """The application. FastStream knows nothing of Heliograph: it speaks STOMP to it."""
    client = stompman.Client([stompman.ConnectionParameters(host, port, "guest", "")])
    broker = faststream_stomp.StompBroker(client)

    @broker.subscriber("/queue/orders")
    @broker.publisher("/queue/invoices")
    async def invoice(order: str) -> str:
        return f"invoice for {order}"

    return faststream.FastStream(broker), broker


async def main(host: str = "127.0.0.1", port: int = 7700) -> None:
    """Serves until it is interrupted, and sends itself one order to begin with."""
    application, broker = service(host, port)

    @application.after_startup
    async def first_order() -> None:
        await broker.publish("one tea", "/queue/orders")

    await application.run()


if __name__ == "__main__":
    asyncio.run(main(port=int(sys.argv[1]) if len(sys.argv) > 1 else 7700))

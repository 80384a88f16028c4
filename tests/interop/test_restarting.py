"""What a server promised to clients of other protocols holds when it was stopped, or killed, and started again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import stomp

from tests.interop.stage import Stage
from tests.interop.test_paho import V3, V5, client
from tests.interop.test_stomp_py import Heard, connected
from tests.servers import ServerProcess, until

pytestmark = [pytest.mark.req("X1", "J3"), pytest.mark.slow]


def test_sessions_retained_messages_and_subscriptions_are_there_after_a_restart(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        for version in (V3, V5):
            with client(stage, f"kept-{version}", version=version, clean=False, expiry=1000) as one:
                one.subscribe("kept/exact", 1)
                one.subscribe("kept/many/+", 1)
        with client(stage) as other:
            other.publish("kept/exact", b"before", 1)
            other.publish("kept/state", b"on", 1, retain=True)
        with connected(stage, client_id="reader") as (connection, heard):
            connection.subscribe("/topic/kept/exact", id="d", headers={"durable": "true"}, receipt="there")
            heard.await_receipt("there")
            connection.send("/queue/kept", "before", receipt="sent")
            heard.await_receipt("sent")
        stage.restart()
        with client(stage) as other:
            other.publish("kept/many/new", b"after", 1)
            other.publish("kept/exact", b"after", 1)
            other.subscribe("kept/state", 1)
            (state,) = other.await_messages(1)
            assert (state.payload, state.retain) == (b"on", True)
        for version in (V3, V5):
            with client(stage, f"kept-{version}", version=version, clean=False, expiry=1000) as one:
                assert one.flags.session_present
                one.await_messages(3)
                got = sorted((message.topic, message.payload) for message in one.messages)
                assert got == [
                    ("kept/exact", b"after"),
                    ("kept/exact", b"before"),
                    ("kept/many/new", b"after"),
                ]
        with connected(stage, client_id="reader") as (connection, heard):
            connection.subscribe("/topic/kept/exact", id="d", headers={"durable": "true"})
            connection.subscribe("/queue/kept", id="q")
            heard.await_messages(2)
            assert sorted(heard.bodies) == ["after", "before"]


@pytest.mark.crash
def test_what_was_confirmed_survives_a_kill(tmp_path: Path) -> None:
    count = 200

    def send(port: int) -> None:
        connection, heard = stomp.Connection12([("127.0.0.1", port)]), Heard()
        connection.set_listener("heard", heard)
        connection.connect(wait=True)
        for number in range(count):
            connection.send("/queue/killed", f"{number}", receipt=f"{number}")
        heard.await_receipt(f"{count - 1}")

    def receive(port: int) -> list[str]:
        connection, heard = stomp.Connection12([("127.0.0.1", port)]), Heard()
        connection.set_listener("heard", heard)
        connection.connect(wait=True)
        connection.subscribe("/queue/killed", id="s")
        heard.await_messages(count)
        connection.disconnect()
        return heard.bodies

    async def story() -> None:
        async with ServerProcess(tmp_path) as server:
            await asyncio.to_thread(send, server.port)
            await server.restart()
            await until(lambda: server.is_running, "it runs again")
            assert await asyncio.to_thread(receive, server.port) == [f"{number}" for number in range(count)]

    asyncio.run(story())

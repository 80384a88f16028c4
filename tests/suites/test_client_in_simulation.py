"""What a client is told when its connection breaks at the wrong moment: told on virtual time, where moments
can be chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from heliograph.client.connection import Connection, connect
from heliograph.client.message import Message
from heliograph.model.errors import HeliographError
from heliograph.nodes.configuration import load
from simulation.loop import bury
from simulation.machines import Machine, Process
from simulation.sockets import Sockets
from simulation.supervisor import Supervisor, embedded
from simulation.world import World

Story = Callable[[Connection, "Stage"], Coroutine[Any, Any, None]]


class Stage:
    """A server, and a client that tells a story."""

    def __init__(self) -> None:
        self.world = World(1)
        self.sockets = Sockets(self.world)
        self.server = Machine(self.world, self.sockets, "server")
        self.client = Machine(self.world, self.sockets, "client")
        settings = {"server.data": "/data", "server.port": 7700, "limits.heartbeat_seconds": 1.0}
        self.supervisor = Supervisor(self.server, embedded(load(None, settings)))
        self.outcome: BaseException | str = "it is not through"

    def deafen(self) -> None:
        """The client hears nothing more on the connection that it has."""
        for end in self.sockets.connections:
            assert end.peer is not None
            end.peer.is_silent = True

    def tell(self, story: Story) -> None:
        async def told(process: Process) -> None:
            try:
                async with connect(
                    "helio://server:7700", heartbeat_seconds=1.0, clock=process.client_clock
                ) as connection:
                    await story(connection, self)
                self.outcome = "told"
            except BaseException as error:
                self.outcome = error

        self.supervisor.start()
        self.world.run(0.5)
        self.client.start("client", told)
        self.world.run(60.0)
        outcome = self.outcome
        for process in [*self.server.processes, *self.client.processes]:
            process.loop.kill()
        bury(self.world)
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome == "told"
        assert [repr(error) for error in self.world.failures] == []


async def received(connection: Connection, mode: str, count: int) -> tuple[Any, list[Message]]:
    producer = await connection.producer("queue:orders", unit_of_order="one")
    for number in range(count):
        await producer.send_confirmed(b"%d" % number)
    session = await connection.session(acknowledge=mode)  # type: ignore[arg-type]
    consumer = await session.consumer("queue:orders")
    messages = [await consumer.receive(1.0) for _ in range(count)]
    return consumer, [message for message in messages if message is not None]


@pytest.mark.req("J4")
def test_an_acknowledgement_that_the_end_of_its_connection_overtakes_is_confirmed_when_it_is_stored() -> None:
    async def story(connection: Connection, stage: Stage) -> None:
        consumer, (first, second) = await received(connection, "individual", 2)
        stage.deafen()
        await second.return_()  # what goes back with it, the client hears on the next connection
        began = asyncio.get_running_loop().time()
        await first.acknowledge(confirm=True)
        assert asyncio.get_running_loop().time() - began < 10, (
            "not much later than the connection was given up"
        )
        stage.supervisor.power_off(0.5)
        await asyncio.sleep(10)  # on virtual time: the client is back, with what the server knows now
        again = await consumer.receive(20.0)
        assert again is not None
        assert again.body == second.body
        await again.acknowledge(confirm=True)
        assert await consumer.receive(5.0) is None

    Stage().tell(story)


@pytest.mark.req("J4")
def test_an_acknowledgement_of_what_the_server_took_back_is_not_called_confirmed() -> None:
    async def story(connection: Connection, stage: Stage) -> None:
        _, (first, second) = await received(connection, "individual", 2)
        await first.return_()  # and the second with it, for they are of one unit
        with pytest.raises(HeliographError) as caught:
            await second.acknowledge(confirm=True)
        assert caught.value.code == "acknowledgement-unknown"

    Stage().tell(story)


@pytest.mark.req("J5")
def test_a_commit_that_waits_when_its_connection_ends_is_rolled_back() -> None:
    async def story(connection: Connection, stage: Stage) -> None:
        consumer, (_, second) = await received(connection, "transacted", 2)
        stage.deafen()
        await second.return_()
        with pytest.raises(HeliographError) as caught:
            async with asyncio.timeout(20):
                await consumer._session.commit()
        assert caught.value.code == "transaction-rolled-back"

    Stage().tell(story)

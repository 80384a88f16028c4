"""Runs one measurement: starts a server if none is given and the client processes, and gathers what they saw.

Every process started here ends here, whatever happens.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from heliograph.cli.bench_plan import Figures, Outcome, Plan, figures_of
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.workloads import Role, Workload
from heliograph.model.errors import HeliographError, Unavailable, from_code

# A client from which nothing is heard for so long, or whose count stands still, is stuck.
_STALL_SECONDS = 60.0
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0

Watch = Callable[[Role, int, int], None]
"""Called with a role, the number of that client and how many messages it has done."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    workload: Workload
    messages: int
    size: int
    consumers: int
    rate: float
    persistent: bool
    durability: str | None
    url: str | None
    user: str | None
    password: str | None
    data: str | None


def _failed(sentence: str) -> Unavailable:
    return Unavailable(sentence, code="bench-failed")


async def run(request: Request, watch: Watch) -> Figures:
    """Measure once. Raises HeliographError."""
    async with AsyncExitStack() as stack:
        url = request.url
        if url is None:
            url = await stack.enter_async_context(own_server(request))
        address = ServerAddress(url=url, user=request.user, password=request.password)
        connection = await stack.enter_async_context(connected(address, purpose="bench"))
        clients = [await stack.enter_async_context(_client(plan, request)) for plan in plans_of(request, url)]
        await asyncio.gather(*(client.ready() for client in clients))
        before = await connection.ask("server")
        outcomes = await _race(clients, watch)
        after = await connection.ask("server")
        return figures_of(
            clients[0].plan,
            outcomes[0],
            outcomes[1:],
            before=before,
            after=after,
            durability=after.get("durability"),
        )


def plans_of(request: Request, url: str) -> list[Plan]:
    """The producer's plan and then those of the consumers, on a destination that nobody else uses."""
    kind = "topic" if request.workload is Workload.FANOUT else "queue"
    destination = f"{kind}:bench.{secrets.token_hex(6)}"
    consumers = {Workload.FANOUT: request.consumers, Workload.SYNC: 0}.get(request.workload, 1)
    roles = [Role.PRODUCE, *[Role.CONSUME] * consumers]
    return [
        Plan(
            role=role,
            workload=request.workload,
            url=url,
            destination=destination,
            messages=request.messages,
            size=request.size,
            persistent=request.persistent,
            rate=request.rate,
        )
        for role in roles
    ]


async def _race(clients: list[Client], watch: Watch) -> list[Outcome]:
    """Consumers first, so that nobody misses anything; the first failure ends it for all."""
    for client in reversed(clients):
        client.go()
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.outcome(watch, index)) for index, client in enumerate(clients)]
    except* HeliographError as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class Client:
    """A client process."""

    def __init__(self, plan: Plan, process: Process) -> None:
        self.plan = plan
        self.process = process

    async def _line(self) -> str:
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(_STALL_SECONDS):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise _failed(f"the {self.plan.role} process said nothing for {_STALL_SECONDS:g} s") from None
        if not line:
            status = await self.process.wait()
            raise _failed(f"the {self.plan.role} process ended early with status {status}")
        return line.decode().strip()

    async def ready(self) -> None:
        line = await self._line()
        if line != "ready":
            raise _refusal(line)

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")

    async def outcome(self, watch: Watch, index: int) -> Outcome:
        """Follow the client to its end."""
        last, moved = -1, monotonic()
        while (line := await self._line()).isdigit():
            done = int(line)
            watch(self.plan.role, index, done)
            if done != last:
                last, moved = done, monotonic()
            elif monotonic() - moved > _STALL_SECONDS:
                raise _failed(f"the {self.plan.role} process stands still after {done:,} messages")
        try:
            return msgspec.json.decode(line, type=Outcome)
        except msgspec.MsgspecError:
            raise _refusal(line) from None


def _refusal(line: str) -> HeliographError:
    """The error that a client reported."""
    try:
        error = msgspec.json.decode(line, type=dict[str, dict[str, str]])["error"]
        return from_code(error["code"], error["sentence"])
    except (msgspec.MsgspecError, KeyError):
        return _failed(f"a client process said {line[:200]!r}")


@asynccontextmanager
async def _client(plan: Plan, request: Request) -> AsyncIterator[Client]:
    names = {"HELIO_USER": request.user, "HELIO_PASSWORD": request.password}
    environment = {**os.environ, **{name: value for name, value in names.items() if value is not None}}
    command = ["-m", "heliograph.cli.bench_worker", msgspec.json.encode(plan).decode()]
    async with _process(command, environment, stdin=PIPE, stdout=PIPE) as process:
        yield Client(plan, process)


@asynccontextmanager
async def own_server(request: Request) -> AsyncIterator[str]:
    """A server with a data folder of its own, gone afterwards; its URL."""
    if request.data is not None:
        Path(request.data).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="helio-bench-", dir=request.data))
    ready = folder / "ready"
    command = ["-m", "heliograph.cli.main", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--data", str(folder / "data"), "--ready-file", str(ready)]
    if request.durability is not None:
        command += ["--durability", request.durability]
    try:
        async with _process(command, dict(os.environ), stdin=DEVNULL, stdout=DEVNULL) as process:
            yield f"helio://{await _address(process, ready)}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _address(process: Process, ready: Path) -> str:
    deadline = monotonic() + _START_SECONDS
    while not ready.exists():
        if process.returncode is not None:
            raise _failed(f"the server ended with status {process.returncode} before it was ready")
        if monotonic() > deadline:
            raise _failed(f"the server was not ready after {_START_SECONDS:g} s")
        await asyncio.sleep(0.02)
    return ready.read_text(encoding="utf-8").strip()


@asynccontextmanager
async def _process(
    arguments: list[str], environment: Mapping[str, str], **streams: Any
) -> AsyncIterator[Process]:
    """A Python process that is asked to end at the end, and made to if it does not."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=dict(environment), start_new_session=True, **streams
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

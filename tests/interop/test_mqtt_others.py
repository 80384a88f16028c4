"""aiomqtt, and mosquitto_pub and mosquitto_sub, which are written in C."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import aiomqtt
import pytest

from tests.interop.stage import SECONDS, Stage

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="the package mosquitto-clients is not installed"
)


def test_aiomqtt_sends_receives_and_comes_back(stage: Stage) -> None:
    async def story() -> None:
        options = {"identifier": "aio", "clean_session": False}
        async with aiomqtt.Client(stage.host, stage.port, **options) as one:
            await one.subscribe("aio/+", qos=1)
            for number in range(20):
                await one.publish("aio/x", f"{number}", qos=2)
            for number in range(20):
                message = await anext(one.messages)
                assert (str(message.topic), message.payload) == ("aio/x", b"%d" % number)
        async with aiomqtt.Client(stage.host, stage.port) as other:
            await other.publish("aio/new", "while away", qos=1)
        async with aiomqtt.Client(stage.host, stage.port, **options) as one:
            assert (await anext(one.messages)).payload == b"while away"

    asyncio.run(asyncio.wait_for(story(), SECONDS))


@contextmanager
def subscribing(stage: Stage, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = ["stdbuf", "-oL", "mosquitto_sub", "-h", stage.host, "-p", str(stage.port), "-d", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("Subscribed"):
            assert line, "mosquitto_sub ended"
        yield process
    finally:
        process.kill()
        process.wait()


def publish(stage: Stage, *arguments: str, text: str | None = None) -> None:
    command = ["mosquitto_pub", "-h", stage.host, "-p", str(stage.port), *arguments]
    subprocess.run(command, check=True, timeout=SECONDS, input=text, text=True)


@needs_mosquitto
@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_pub_and_sub(stage: Stage, version: str, qos: str) -> None:
    topic = f"mosquitto/{version}/{qos}"
    with subscribing(stage, "-V", version, "-q", qos, "-t", topic, "-C", "100", "-F", "got %p") as subscriber:
        lines = "".join(f"{number}\n" for number in range(100))
        publish(stage, "-V", version, "-q", qos, "-t", topic, "-l", text=lines)
        assert subscriber.stdout is not None
        output = subscriber.stdout.read()
        subscriber.wait(SECONDS)
    assert [line[4:] for line in output.splitlines() if line.startswith("got ")] == lines.split()
    assert subscriber.returncode == 0


@needs_mosquitto
def test_mosquitto_sub_gets_what_is_retained_and_the_will_of_another(stage: Stage) -> None:
    publish(stage, "-t", "mosquitto/kept", "-m", "kept", "-r", "-q", "1")
    with subscribing(
        stage, "-t", "mosquitto/kept", "-t", "mosquitto/will", "-C", "2", "-F", "got %r %p"
    ) as heir:
        will = ("--will-topic", "mosquitto/will", "--will-payload", "dead", "--will-qos", "1")
        with subscribing(stage, "-t", "mosquitto/other", *will) as testator:
            testator.kill()
        assert heir.stdout is not None
        output = heir.stdout.read()
    assert [line for line in output.splitlines() if line.startswith("got ")] == ["got 1 kept", "got 0 dead"]

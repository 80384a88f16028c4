"""aiomqtt, and mosquitto_pub and mosquitto_sub, which are written in C."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import aiomqtt
import pytest

from tests.interop.stage import SECONDS, Stage, on_a_single_server
from tests.interop.test_cut_off import Cutter

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
needs_mosquitto = pytest.mark.debian({"mosquitto_sub": "mosquitto-clients"})


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


def test_aiomqtt_comes_back_after_a_cut_and_misses_nothing(stage: Stage) -> None:
    async def story() -> None:
        with Cutter(stage, 0) as cutter:
            options = {"port": cutter.port, "identifier": "aio-cut", "clean_session": False}
            async with aiomqtt.Client(stage.host, stage.port) as other:

                async def until_the_cut() -> None:
                    async with aiomqtt.Client("127.0.0.1", **options) as one:
                        await one.subscribe("aio-cut", qos=1)
                        await other.publish("aio-cut", "before", qos=1)
                        assert (await anext(one.messages)).payload == b"before"
                        cutter.cut()
                        await anext(one.messages)

                with pytest.raises(aiomqtt.MqttError):
                    await until_the_cut()
                for number in range(20):
                    await other.publish("aio-cut", f"{number}", qos=1)
                async with aiomqtt.Client("127.0.0.1", **options) as one:
                    await one.publish("aio-cut", "after", qos=2)
                    expected = [*(b"%d" % number for number in range(20)), b"after"]
                    found: list[object] = []
                    while len(found) < len(expected):
                        payload = (await anext(one.messages)).payload
                        if payload != b"before":  # its acknowledgement may have been cut off
                            found.append(payload)
                    assert found == expected

    asyncio.run(asyncio.wait_for(story(), SECONDS))


@contextmanager
def subscribing(stage: Stage, *arguments: str, said: str = "Subscribed") -> Iterator[subprocess.Popen[str]]:
    """`mosquitto_sub`, once it has said so."""
    command = ["stdbuf", "-oL", "mosquitto_sub", "-h", stage.host, "-p", str(stage.port), "-d", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while said not in (line := process.stdout.readline()):
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


def heard_by(subscriber: subprocess.Popen[str], count: int) -> list[str]:
    """What comes next, as `-F 'got %p'` prints it."""
    assert subscriber.stdout is not None
    found: list[str] = []
    while len(found) < count:
        line = subscriber.stdout.readline()
        assert line, "mosquitto_sub ended"
        if line.startswith("got "):
            found.append(line[4:].rstrip("\n"))
    return found


@needs_mosquitto
@pytest.mark.parametrize("version", ["311", "5"])
def test_mosquitto_sub_subscribes_durably_and_finds_what_came_while_it_was_away(
    stage: Stage, version: str
) -> None:
    topic = f"mosquitto/durable/{version}"
    lasting = ("-x", "3600") if version == "5" else ()
    asks = ("-V", version, "-c", *lasting, "-i", f"durable-{version}", "-q", "1", "-t", topic, "-F", "got %p")
    with subscribing(stage, *asks) as subscriber:
        publish(stage, "-V", version, "-q", "1", "-t", topic, "-m", "seen")
        assert heard_by(subscriber, 1) == ["seen"]
        subscriber.terminate()
        subscriber.wait(SECONDS)
    publish(stage, "-V", version, "-q", "1", "-t", topic, "-l", text="one\ntwo\n")
    # What waited comes as soon as the session is there again, before anything is subscribed to.
    with subscribing(stage, *asks, said="CONNACK") as subscriber:
        publish(stage, "-V", version, "-q", "1", "-t", topic, "-m", "three")
        assert heard_by(subscriber, 3) == ["one", "two", "three"]


@needs_mosquitto
@on_a_single_server
def test_mosquitto_sub_comes_back_after_a_restart(stage: Stage) -> None:
    asks = ("-c", "-i", "comes-back", "-q", "2", "-t", "mosquitto/again", "-F", "got %p")
    with subscribing(stage, *asks) as subscriber:
        publish(stage, "-q", "2", "-t", "mosquitto/again", "-m", "before")
        assert heard_by(subscriber, 1) == ["before"]
        stage.restart()
        publish(stage, "-q", "2", "-t", "mosquitto/again", "-m", "after")
        assert heard_by(subscriber, 1) == ["after"]


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

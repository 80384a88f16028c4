"""Dead messages: how they come to be, what is known of them, and how they are sent again (J10, M11)."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import Connection, Message
from tests.servers import embedded, play, url_of
from tests.suites.test_command_line import Server, serving

pytestmark = pytest.mark.req("M11")

DMQ = "queue:_DMQ"


async def dead(connection: Connection, count: int = 1) -> list[Message]:
    session = await connection.session(acknowledge="client")
    consumer = await session.consumer(DMQ)
    messages: list[Message] = []
    for _ in range(count):
        message = await consumer.receive(timeout=30)
        assert message is not None, f"{len(messages)} of {count} died"
        messages.append(message)
    await session.close()
    return messages


@pytest.mark.req("J10")
def test_a_message_that_fails_too_often_dies_with_everything_that_is_known(tmp_path: Path) -> None:
    async def story() -> None:
        rules = {
            "policies": [{"destinations": "queue:orders", "redelivery_limit": 3, "redelivery_delay": 0.05}]
        }
        async with embedded(tmp_path, rules) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:orders")
            identity = await producer.send_confirmed({"n": 1}, properties={"colour": "red"}, type="order")
            session = await connection.session(acknowledge="individual")
            consumer = await session.consumer("queue:orders")
            began = time.time()
            for attempt in range(1, 4):
                message = await consumer.receive(timeout=30)
                assert message is not None
                assert message.delivery_count == attempt
                await message.reject(f"attempt {attempt}")
            assert time.time() - began >= 0.05 + 0.1  # the second wait is twice the first
            assert await consumer.receive(timeout=0.1) is None
            (message,) = await dead(connection)
            assert (message.body, message.type) == ({"n": 1}, "order")
            said = dict(message.properties)
            assert began <= said.pop("JMS_helio_died_at") <= time.time()  # type: ignore[operator]
            assert said == {
                "colour": "red",
                "JMS_helio_original_destination": "queue:orders",
                "JMS_helio_original_id": identity,
                "JMS_helio_reason": "redelivery-limit",
                "JMS_helio_deliveries": 3,
                "JMS_helio_last_error": "attempt 3",
            }

    play(story())


@pytest.mark.req("J10")
def test_expired_and_untaken_messages_die_where_the_policy_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        rules = {
            "policies": [
                {"destinations": "queue:expiring", "expired_to_dead": True},
                {"destinations": "queue:ignored", "undelivered_to_dead_after": 0.1},
            ]
        }
        async with embedded(tmp_path, rules) as server, heliograph.connect(url_of(server)) as connection:
            for name, time_to_live in (("expiring", 0.05), ("ignored", None), ("other", 0.05)):
                producer = await connection.producer(f"queue:{name}", time_to_live=time_to_live)
                await producer.send_confirmed(name)
            found = {(m.body, m.properties["JMS_helio_reason"]) for m in await dead(connection, 2)}
            assert found == {("expiring", "expired"), ("ignored", "undeliverable")}
            assert (await connection.ask("destination.show", destination="queue:other"))["depth"] == 0

    play(story())


# ---- the command line


def kill_some(server: Server, names: list[str], *, each: int = 1) -> None:
    """Messages that die at once, because nobody may have them twice."""
    for name in names:
        server.run("admin", "destination", "create", name, "undelivered_to_dead_after=0.1")
        server.run("send", name, f"for {name}", "--count", str(each), "--property", f"of={name}")
    deadline = time.monotonic() + 60
    while server.destination(DMQ).get("depth", 0) < each * len(names):
        assert time.monotonic() < deadline, "they do not die"
    for name in names:
        server.run("admin", "destination", "set", name, "undelivered_to_dead_after=0")


def listed(server: Server, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.run("dmq", "list", "--json", *options).stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.req("X4")
@pytest.mark.timeout(180)
def test_the_dead_are_listed_shown_and_sent_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.run("dmq", "list").stderr == b"no message is dead\n"
        kill_some(server, ["queue:a", "queue:b"])
        of_a, of_b = listed(server)
        assert (of_a["original_destination"], of_a["reason"]) == ("queue:a", "undeliverable")
        assert [entry["id"] for entry in listed(server, "--filter", "of = 'queue:b'")] == [of_b["id"]]
        shown = server.run("dmq", "list").stdout.decode()
        assert "queue:a" in shown
        assert "undeliverable" in shown
        for identity in (of_a["id"], of_a["original_id"]):
            whole = server.run("dmq", "show", identity).stdout.decode()
            assert "original destination   queue:a" in whole
            assert "for queue:a" in whole
        assert b"[message-unknown]" in server.run("dmq", "show", "1.1.1.1-1", code=2).stderr
        browsed = server.run("browse", DMQ, "--json", "--selector", "of = 'queue:a'").stdout
        assert json.loads(browsed)["body"] == "for queue:a"
        sent = json.loads(server.run("dmq", "redrive", "--filter", "of = 'queue:a'", "--json").stdout)
        assert (sent["redriven"], sent["failed"], sent["stopped"]) == (1, 0, False)
        (record,) = server.records("queue:a")
        assert (record["body"], record["properties"]) == ("for queue:a", {"of": "queue:a"})
        elsewhere = server.run("dmq", "redrive", "--to", "queue:other")
        assert elsewhere.stdout.startswith(b"1 message sent again in ")
        assert server.texts("queue:other") == ["for queue:b"]
        assert server.destination(DMQ)["depth"] == 0


@pytest.mark.slow
@pytest.mark.req("X4")
def test_a_redrive_is_counted_paced_stopped_and_resumed(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        kill_some(server, ["queue:a"], each=60)
        assert json.loads(server.run("dmq", "redrive", "--count", "10", "--json").stdout)["redriven"] == 10
        # So slowly that there is time to look, and to stop it, before it is through.
        running = server.start("dmq", "redrive", "--rate", "2", "--json")
        deadline = time.monotonic() + 60
        while server.destination("queue:a")["depth"] < 14:
            assert time.monotonic() < deadline
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=60)
        assert (running.returncode, errors) == (0, b"")
        stopped = json.loads(output)
        assert stopped["stopped"]
        assert 4 <= stopped["redriven"] < 50
        assert stopped["seconds"] >= (stopped["redriven"] - 2) / 2
        rest = json.loads(server.run("dmq", "redrive", "--json").stdout)
        assert 10 + stopped["redriven"] + rest["redriven"] == 60
        assert len(server.records("queue:a")) == 60
        assert server.destination(DMQ)["depth"] == 0


@pytest.mark.slow
@pytest.mark.req("X4")
@pytest.mark.timeout(180)
def test_what_cannot_be_sent_again_stays_dead(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        kill_some(server, ["queue:a"], each=3)
        failed = server.run("dmq", "redrive", "--to", "queue:_mine", code=2)
        assert failed.stdout.startswith(b"0 messages sent again")
        assert b"3 messages stayed: names that begin with '_' belong to the server" in failed.stderr
        assert len(listed(server)) == 3


@pytest.mark.slow
@pytest.mark.req("J7", "J8", "J9", "X4")
def test_browse_select_and_delay_at_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for colour in ("red", "green", "red"):
            server.run("send", "queue:a", colour, "--property", f"colour={colour}")
        browsed = server.run("browse", "queue:a")
        assert browsed.stderr == b"3 messages in queue:a\n"
        assert browsed.stdout.count(b"colour=red") == 2
        assert server.run("browse", "queue:a", "--count", "2").stderr == b"2 messages in queue:a\n"
        assert server.texts("queue:a", "--selector", "colour = 'green'") == ["green"]
        assert server.texts("queue:a") == ["red", "red"]
        wrong = server.run("receive", "queue:a", "--selector", "colour = ", "--json", code=2)
        assert json.loads(wrong.stdout)["error"]["code"] == "selector-invalid"
        assert b"[browse-invalid]" in server.run("browse", "topic:a", code=2).stderr
        server.run(
            "send", "queue:later", "x", "--delay", "10"
        )  # it is not due before the next command has begun
        assert server.texts("queue:later", "--timeout", "0.1") == []
        assert server.texts("queue:later", "--timeout", "40", "--count", "1") == ["x"]

"""Administration of a real server: by question, by message and by command line; changes last (M13)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import Connection, HeliographError
from heliograph.nodes.users import UserStore
from tests.servers import embedded, play, until, url_of
from tests.suites.test_command_line import serving

pytestmark = pytest.mark.req("M13")

RULES = {
    "policies": [
        {"destinations": "queue:orders.special", "redelivery_limit": 2},
        {"destinations": "queue:orders.*", "redelivery_limit": 5, "redelivery_delay": 1.5},
    ]
}


async def policy_of(connection: Connection, destination: str) -> dict[str, Any]:
    body = await connection.ask("destination.show", destination=destination)
    policy: dict[str, Any] = body["policy"]
    return policy


async def code_of(connection: Connection, subject: str, **arguments: Any) -> str:
    with pytest.raises(HeliographError) as refusal:
        await connection.ask(subject, **arguments)
    return refusal.value.code


@pytest.mark.req("J10")
def test_a_new_destination_gets_the_first_policy_that_matches(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path, RULES) as server, heliograph.connect(url_of(server)) as connection:
            for name in ("queue:orders.special", "queue:orders.other", "queue:else"):
                await connection.producer(name)
            assert (await policy_of(connection, "queue:orders.special"))["redelivery_limit"] == 2
            other = await policy_of(connection, "queue:orders.other")
            assert (other["redelivery_limit"], other["redelivery_delay"]) == (5, 1.5)
            assert (await policy_of(connection, "queue:else"))["redelivery_limit"] == 10
            rules = (await connection.ask("policies"))["rules"]
            assert [rule["destinations"] for rule in rules] == ["queue:orders.special", "queue:orders.*"]

    play(story())


@pytest.mark.req("J10")
def test_a_policy_that_was_set_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await connection.ask("destination.create", destination="queue:a")
            await connection.ask("destination.set", destination="queue:a", policy={"redelivery_limit": 2})
            producer = await connection.producer("queue:a")
            await producer.send_confirmed(b"poison")
            session = await connection.session(acknowledge="individual")
            consumer = await session.consumer("queue:a")
            for _ in range(2):
                message = await consumer.receive(timeout=30)
                assert message is not None
                await message.reject("cannot be read")
            dead = await (await connection.consumer("queue:_DMQ")).receive(timeout=30)
            assert dead is not None
            assert dead.properties["JMS_helio_reason"] == "redelivery-limit"
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            assert (await policy_of(connection, "queue:a"))["redelivery_limit"] == 2

    play(story())


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"redelivery_limits": 1}, "did you mean redelivery_limit?"),
        ({"redelivery_limit": -1}, "redelivery_limit must be a whole number from 0"),
        ({"redelivery_limit": 1.5}, "redelivery_limit"),
        ({"redelivery_limit": True}, "redelivery_limit"),
        ({"redelivery_delay": "soon"}, "redelivery_delay must be a number"),
        ({"expired_to_dead": 1}, "expired_to_dead must be true or false"),
        ({"high_water_messages": 0}, "high_water_messages"),
    ],
)
@pytest.mark.req("J10")
def test_a_policy_that_cannot_be_is_refused_by_its_key(
    tmp_path: Path, policy: dict[str, Any], named: str
) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            await connection.producer("queue:a")
            before = await policy_of(connection, "queue:a")
            with pytest.raises(HeliographError) as refusal:
                await connection.ask("destination.set", destination="queue:a", policy=policy)
            assert refusal.value.code == "policy-invalid"
            assert named in refusal.value.sentence
            assert await policy_of(connection, "queue:a") == before
            assert await code_of(connection, "destination.create", destination="queue:b", policy=policy)
            assert (
                await code_of(connection, "destination.show", destination="queue:b") == "destination-unknown"
            )

    play(story())


def test_a_purged_queue_is_empty_and_stays_so_while_consumers_keep_what_they_have(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            for n in range(10):
                await producer.send(b"%d" % n)
            await producer.send(b"later", delay=60)
            await producer.flush()
            session = await connection.session(acknowledge="individual")
            consumer = await session.consumer("queue:a", credit=4)
            held = [await consumer.receive(timeout=30) for _ in range(4)]
            for message in (held[0], held[2]):
                assert message is not None
                await message.acknowledge(confirm=True)
            answer = await connection.ask("destination.purge", destination="queue:a")
            assert answer["messages"] == 5  # two more were handed out when there was credit again
            await producer.send_confirmed(b"new")
            figures = await connection.ask("destination.show", destination="queue:a")
            assert (figures["depth"], figures["in_flight"]) == (1, 4)
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            again = await connection.consumer("queue:a")
            bodies = [(await again.receive(timeout=30)) for _ in range(5)]
            assert [message.body for message in bodies if message] == [b"1", b"3", b"4", b"5", b"new"]
            assert await again.receive(timeout=0.2) is None

    play(story())


def test_a_purge_reaches_durable_subscriptions_and_no_more_than_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            async with heliograph.connect(url, client_id="c") as connection:
                await (await connection.consumer("topic:t", durable="slow")).close()
                quick = await connection.consumer("topic:t", durable="quick")
                producer = await connection.producer("topic:t")
                for n in range(5000):
                    await producer.send(b"%d" % n)
                await producer.flush()
                seen = 0
                while seen < 5000:
                    seen += len(await quick.receive_batch(timeout=30))
                await quick.close()
                assert (await connection.ask("destination.purge", destination="topic:t"))["messages"] == 5000
                await producer.send_confirmed(b"after")
        async with (
            embedded(tmp_path) as server,
            heliograph.connect(url_of(server), client_id="c") as connection,
        ):
            for name in ("slow", "quick"):
                consumer = await connection.consumer("topic:t", durable=name)
                message = await consumer.receive(timeout=30)
                assert message is not None
                assert message.body == b"after"
                assert await consumer.receive(timeout=0.1) is None

    play(story())


def test_a_subscriber_in_the_middle_of_a_topic_goes_on_behind_a_purge(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            session = await connection.session(acknowledge="client")
            consumer = await session.consumer("topic:t", credit=2)
            producer = await connection.producer("topic:t")
            for n in range(10):
                await producer.send_confirmed(b"%d" % n)
            assert [(await consumer.receive(timeout=30)).body for _ in range(2)] == [b"0", b"1"]  # type: ignore[union-attr]
            assert (await connection.ask("destination.purge", destination="topic:t"))["messages"] == 8
            for n in range(10, 20):
                await producer.send_confirmed(b"%d" % n)
            found: list[object] = []
            while len(found) < 10:
                await session.acknowledge()
                found += [message.body for message in await consumer.receive_batch(2, timeout=30)]
            assert found == [b"%d" % n for n in range(10, 20)]

    play(story())


def test_only_what_nobody_uses_is_deleted_unless_one_insists(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            producer = await connection.producer("queue:a")
            consumer = await connection.consumer("queue:a")
            gone = "destination.delete"
            assert await code_of(connection, gone, destination="queue:a") == "destination-in-use"
            await consumer.close()
            await producer.send_confirmed(b"x")
            assert await code_of(connection, gone, destination="queue:a") == "destination-not-empty"
            consumer = await connection.consumer("queue:a")
            await connection.ask(gone, destination="queue:a", force=True)
            with pytest.raises(HeliographError) as ended:
                await anext(message async for message in consumer if message.body == b"no such message")
            assert ended.value.code == "destination-deleted"
            with pytest.raises(HeliographError) as refused:
                await producer.send_confirmed(b"y")
            assert refused.value.code == "destination-unknown"
            await producer.send_confirmed(b"z")  # on a lane of its own, to a queue of its own
            assert await code_of(connection, gone, destination="queue:_DMQ", force=True) == "name-reserved"
            assert await code_of(connection, gone, destination="queue:b") == "destination-unknown"

    play(story())


def test_a_command_by_message_is_answered_to_its_reply_to(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:

            async def command(body: Any) -> dict[str, Any]:
                reply = await connection.request("topic:_ADMIN", body, timeout=30)
                assert isinstance(reply.body, dict)
                assert reply.body["expected"] == 1
                answer: dict[str, Any] = reply.body["replies"][0]
                return answer

            made = await command(
                {
                    "command": "destination.create",
                    "arguments": {"destination": "queue:a", "policy": {"prefetch_limit": 7}},
                }
            )
            assert (made["node"], made["ok"], made["body"]["policy"]["prefetch_limit"]) == ("1.1", True, 7)
            shown = await command('{"command": "destination.show", "arguments": {"destination": "queue:a"}}')
            assert shown["body"]["address"] == "queue:a"
            again = await command({"command": "destination.create", "arguments": {"destination": "queue:a"}})
            assert (again["ok"], again["error"]["code"]) == (False, "destination-exists")
            assert (await command({"command": "no.such"}))["error"]["code"] == "subject-unknown"
            assert (await command({"arguments": {}}))["error"]["code"] == "command-malformed"
            assert (await command(b"{"))["error"]["code"] == "command-malformed"
            assert (await command({"command": "node"}))["body"]["client-manager"]["connections"] == 1
            several = {"command": "policies", "nodes": ["1.1", "2.2", "1.1"]}
            reply = await connection.request("topic:_ADMIN", several, timeout=30)
            assert isinstance(reply.body, dict)
            here, elsewhere = reply.body["replies"]
            assert (reply.body["expected"], here["node"], here["ok"]) == (2, "1.1", True)
            assert (elsewhere["node"], elsewhere["error"]["code"]) == ("2.2", "node-unknown")

    play(story())


def test_many_destinations_come_in_pages(tmp_path: Path) -> None:
    async def story() -> None:
        from heliograph.cli.at_server import all_entries

        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as connection:
            names = [f"queue:{n:0250}" for n in range(250)]
            for name in names:
                await connection.ask("destination.create", destination=name)
            found = await all_entries(connection, "destinations", "destinations")
            assert [entry["address"] for entry in found if ":_" not in entry["address"]] == names
            sessions = await all_entries(connection, "sessions", "sessions")
            assert [entry["connected"] for entry in sessions] == []
            await connection.session()
            assert len(await all_entries(connection, "sessions", "sessions")) == 1

    play(story())


@pytest.mark.req("M11", "X2")
def test_the_servers_own_destinations_have_fixed_rights(tmp_path: Path) -> None:
    users = UserStore.load(tmp_path / "data" / "users.toml")
    users.add("root", "root secret", ["admin"])
    users.add("ann", "ann secret", ["clerk"])
    with users.path.open("a", encoding="utf-8") as stream:
        stream.write('[[access]]\nroles = ["clerk"]\ndestinations = "*"\n')
        stream.write('rights = ["send", "receive", "browse", "create"]\n')
        stream.write('[[access]]\nroles = ["clerk"]\ndestinations = "queue:_DMQ"\nrights = ["browse"]\n')
        stream.write('[[access]]\nroles = ["clerk"]\ndestinations = "queue:mine"\nrights = ["admin"]\n')

    async def refused(work: Any) -> str:
        with pytest.raises(HeliographError) as refusal:
            await work
        return refusal.value.code

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            async with (
                heliograph.connect(url, user="root", password="root secret") as root,
                heliograph.connect(url, user="ann", password="ann secret") as ann,
            ):
                for name in ("queue:_DMQ", "topic:_LOG"):
                    assert await refused(root.producer(name)) == "name-reserved"
                    assert await refused(ann.producer(name)) == "name-reserved"
                assert await refused(ann.producer("topic:_ADMIN")) == "name-reserved"
                assert await refused(ann.producer("queue:_mine")) == "name-reserved"
                assert await refused(ann.consumer("topic:_LOG")) == "name-reserved"
                assert await refused(ann.consumer("queue:_DMQ")) == "name-reserved"
                async for _ in await ann.browse("queue:_DMQ"):
                    raise AssertionError("nothing is dead")
                assert await refused(ann.ask("destinations")) == "not-allowed"
                assert await refused(ann.ask("log")) == "not-allowed"
                await ann.producer("queue:mine")
                await ann.ask("destination.set", destination="queue:mine", policy={"prefetch_limit": 1})
                other = {"destination": "queue:other", "policy": {}}
                assert await refused(ann.ask("destination.set", **other)) == "not-allowed"
                await root.consumer("topic:_LOG")
                assert (await root.ask("log"))["events"]
                assert (await root.ask("destinations"))["destinations"]

    play(story())


# ---- events


@pytest.mark.req("M15")
def test_events_reach_the_file_and_whoever_watches_without_secrets(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, heliograph.connect(url_of(server)) as watcher:
            log = await watcher.consumer("topic:_LOG")
            seen: list[dict[str, Any]] = []

            async def watch() -> None:
                async for message in log:
                    assert isinstance(message.body, dict)
                    seen.append(message.body)

            watching = asyncio.create_task(watch())
            async with heliograph.connect(url_of(server), client_name="the app") as connection:
                await connection.ask(
                    "destination.create", destination="queue:a", policy={"redelivery_limit": 1}
                )
                await connection.ask("destination.set", destination="queue:a", policy={"prefetch_limit": 1})
                producer = await connection.producer("queue:a")
                await producer.send_confirmed(b"a secret body")
                session = await connection.session(acknowledge="individual")
                message = await (await session.consumer("queue:a")).receive(timeout=30)
                assert message is not None
                await message.reject("no")
            kinds = ["destination-created", "policy-changed", "message-dead", "connection-closed"]
            await until(lambda: {event["event"] for event in seen} >= set(kinds), "all was seen")
            assert [event["event"] for event in seen if event["event"] in kinds] == kinds
            dead = next(event for event in seen if event["event"] == "message-dead")
            assert (dead["destination"], dead["reason"], dead["messages"]) == (
                "queue:a",
                "redelivery-limit",
                1,
            )
            watching.cancel()
        written = (tmp_path / "data" / "log" / "events.jsonl").read_text(encoding="utf-8")
        events = [json.loads(line) for line in written.splitlines()]
        assert [events[0]["event"], events[-1]["event"]] == ["server-started", "server-stopped"]
        assert [event for event in events if event in seen] == seen
        assert "secret" not in written

    play(story())


@pytest.mark.req("M15", "X2")
def test_a_failed_log_in_is_an_event_without_its_password(tmp_path: Path) -> None:
    UserStore.load(tmp_path / "data" / "users.toml").add("root", "right secret", ["admin"])

    async def story() -> None:
        async with embedded(tmp_path) as server:
            url = url_of(server)
            with pytest.raises(HeliographError):
                await heliograph.connect(url, user="root", password="wrong secret")
            async with heliograph.connect(url, user="root", password="right secret") as root:
                events = (await root.ask("log"))["events"]
                failed = [event for event in events if event["event"] == "login-failed"]
                assert [(event["user"], event["code"]) for event in failed] == [("root", "not-authenticated")]
                assert failed[0]["address"].startswith("127.0.0.1:")
        assert "secret" not in (tmp_path / "data" / "log" / "events.jsonl").read_text(encoding="utf-8")

    play(story())


# ---- the command line


@pytest.mark.slow
@pytest.mark.req("J10", "X4")
@pytest.mark.timeout(180)
def test_an_administrator_at_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        made = server.run("admin", "destination", "create", "queue:orders", "high_water_messages=1_000")
        assert made.stdout == b"queue:orders made\n"
        done = server.run(
            "admin", "destination", "set", "queue:orders", "redelivery_limit=5", "redelivery_delay=1.5"
        )
        assert done.stdout == b"queue:orders: redelivery_limit is 5, redelivery_delay is 1.5\n"
        for arguments, sentence in (
            (
                ("set", "queue:orders", "redelivery_limits=5"),
                b"did you mean redelivery_limit? [policy-invalid]",
            ),
            (("set", "queue:orders", "redelivery_limit=-5"), b"[policy-invalid]"),
            (("set", "queue:none", "redelivery_limit=5"), b"there is no queue:none [destination-unknown]"),
            (("create", "queue:orders"), b"[destination-exists]"),
            (("create", "orders"), b"[invalid-destination]"),
        ):
            assert sentence in server.run("admin", "destination", *arguments, code=2).stderr
        server.run("send", "queue:orders", "lamp", "--count", "3")
        shown = server.run("admin", "destination", "show", "queue:orders").stdout.decode()
        assert "3 messages" in shown
        assert "redelivery_delay           1.5" in shown
        record = json.loads(server.run("admin", "destination", "show", "queue:orders", "--json").stdout)
        assert (record["depth"], record["policy"]["high_water_messages"]) == (3, 1000)
        listed = server.run("admin", "destination", "list").stdout.decode()
        assert "queue:orders  3 messages, 0 consumers" in listed
        assert (
            b"[destination-not-empty]"
            in server.run("admin", "destination", "delete", "queue:orders", code=2).stderr
        )
        purged = server.run("admin", "destination", "purge", "queue:orders").stdout
        assert purged == b"3 messages removed from queue:orders\n"
        assert (
            server.run("admin", "destination", "delete", "queue:orders").stdout == b"queue:orders deleted\n"
        )
        assert b"uptime_seconds" in server.run("admin", "server").stdout
        assert b"journal.durability" in server.run("admin", "configuration").stdout
        assert json.loads(server.run("admin", "sessions", "--json").stdout)["sessions"] == []
        assert b"all others:" in server.run("admin", "policies").stdout
        events = [json.loads(line) for line in server.run("log", "--json").stdout.splitlines()]
        assert "destination-deleted" in [event["event"] for event in events]
        assert b"1.1    policy-changed           destination=queue:orders" in server.run("log").stdout
        nodes = server.run("admin", "nodes").stdout.decode()
        assert "1.1      both" in nodes
        assert "stands alone; 1 connection" in nodes
        shown = json.loads(server.run("admin", "ask", "destination.show", "destination=queue:_DMQ").stdout)
        assert shown["address"] == "queue:_DMQ"
        asked = server.run("admin", "ask", "node", "--node", "1.1", "--node", "1.7")
        assert b"node 1.7 is not in the cluster; there are 1.1 [node-unknown]" in asked.stdout
        assert b"1 of 2 nodes answered" in asked.stderr
        assert b"stands alone" in server.run("cluster", "status").stdout


@pytest.mark.req("M11")
def test_only_who_may_create_a_destination_makes_it_by_using_it_or_by_asking(tmp_path: Path) -> None:
    settings = {"creation": [{"destinations": "queue:orders.*"}]}

    async def story() -> None:
        async with embedded(tmp_path, settings) as server, heliograph.connect(url_of(server)) as connection:
            await connection.producer("queue:else")
            for attempt in (connection.producer, connection.consumer):
                with pytest.raises(HeliographError) as fault:
                    await attempt("queue:orders.new")
                assert fault.value.code == "destination-unknown"
            with pytest.raises(HeliographError) as fault:
                await connection.ask("destination.create", destination="queue:orders.new")
            assert fault.value.code == "not-allowed"

    play(story())

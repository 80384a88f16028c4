"""Administration of a cluster (M13, M15): every node answers for itself, and what happens anywhere is seen by all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph import Connection
from heliograph.nodes.cluster_server import ClusterServer
from tests.servers import until
from tests.suites.cluster_in_process import CLIENTS, MESSAGES, Cluster, told, url
from tests.suites.test_sub_clusters import spread

LEADS, FOLLOWS = "leads", "follows"


async def standings(connection: Connection) -> dict[str, str]:
    """What each node says of itself."""
    composite = await connection.ask("nodes.ask", command="node")
    found = {}
    for reply in composite["replies"]:
        manager = reply["body"].get("message-manager")
        found[reply["node"]] = manager["standing"] if manager else CLIENTS
    assert len(found) == composite["expected"]
    return found


@pytest.mark.req("M13")
def test_every_node_answers_for_itself_and_the_reply_says_who_was_asked(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer("queue:orders")
            await producer.send_confirmed(b"lamp")
            assert await standings(connection) == {"1.1": CLIENTS, "1.2": LEADS, "1.3": FOLLOWS}
            composite = await connection.ask("nodes.ask", command="node")
            clients, leader, backup = (reply["body"] for reply in composite["replies"])
            assert (clients["client-manager"]["connections"], clients["leaders"]) == (1, {"main": "1.2"})
            assert leader["message-manager"]["backups"] == ["1.3"]
            # All answer for the same moment: what the backup has is what the primary had said by then.
            assert backup["message-manager"]["index"] == leader["message-manager"]["index"] > 0

            composite = await connection.ask("nodes.ask", command="log", nodes=["1.3", "9.9"])
            here, nowhere = composite["replies"]
            assert {event["node"] for event in here["body"]["events"]} == {"1.3"}
            assert (nowhere["node"], nowhere["error"]["code"]) == ("9.9", "node-unknown")

            shown = {"command": "destination.show", "arguments": {"destination": "queue:orders"}}
            composite = await connection.ask("nodes.ask", **shown)
            assert [reply.get("error", {}).get("code") for reply in composite["replies"]] == [
                "not-leading",
                None,
                "not-leading",
            ]
            assert composite["replies"][1]["body"]["depth"] == 1
            assert "ask 1.2, which leads" in composite["replies"][0]["error"]["sentence"]

    told(tmp_path, story)


@pytest.mark.req("M13", "M9")
def test_a_change_that_a_node_is_asked_for_is_there_when_another_leads(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            await connection.ask("destination.create", destination="queue:orders")
            change = {"destination": "queue:orders", "policy": {"redelivery_limit": 3}}
            composite = await connection.ask(
                "nodes.ask", command="destination.set", arguments=change, nodes=["1.2"]
            )
            assert composite["replies"][0]["ok"], composite
            cluster.crash(2)
            shown = await connection.ask("destination.show", destination="queue:orders")
            assert shown["policy"]["redelivery_limit"] == 3
            assert await standings(connection) == {"1.1": CLIENTS, "1.3": LEADS}

    told(tmp_path, story)


@pytest.mark.req("M13")
def test_a_command_by_message_reaches_all_nodes_and_gets_one_reply(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:

            async def command(body: dict[str, Any]) -> dict[str, Any]:
                reply = await connection.request("topic:_ADMIN", body, timeout=30)
                assert isinstance(reply.body, dict)
                return reply.body

            everybody = await command({"command": "node"})
            assert everybody["expected"] == 3
            assert [reply["node"] for reply in everybody["replies"]] == ["1.1", "1.2", "1.3"]
            one = await command({"command": "bus", "nodes": ["1.3"]})
            assert [(reply["node"], reply["ok"]) for reply in one["replies"]] == [("1.3", True)]
            made = {"command": "destination.create", "arguments": {"destination": "queue:a"}}
            assert [reply["node"] for reply in (await command(made))["replies"]] == ["1.2"]

    told(tmp_path, story)


@pytest.mark.req("M13")
def test_nobody_waits_for_a_node_that_died_while_it_was_asked(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        silent = cluster.nodes[3]
        silent._administration.surveyor._answer = lambda *_: None  # type: ignore[method-assign]  # it hears and is stuck
        async with heliograph.connect(url(cluster)) as connection:
            asking = asyncio.create_task(connection.ask("nodes.ask", command="node"))
            surveyor = cluster.nodes[1]._administration.surveyor
            await until(lambda: _waits_for(surveyor) == ["1.3"], "all others have answered")
            cluster.crash(3)
            composite = await asking
            assert composite["expected"] == 3
            assert composite["replies"][2]["error"]["code"] == "node-gone"

    told(tmp_path, story)


def _waits_for(surveyor: Any) -> list[str]:
    return [node for survey, _, _ in surveyor._open.values() for node in survey.waits_for]


# ---- a message manager that is lost


@pytest.mark.req("M14", "M9")
def test_message_managers_go_on_without_one_that_is_lost_only_when_they_are_told_to(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3, 4):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            producer = await connection.producer("queue:orders")
            await producer.send_confirmed(b"lamp")
            assert await removed(connection, "1.4") == [None] + ["node-not-awaited"] * 3
        for node in (2, 3, 4):  # the last one knows the most
            cluster.crash(node)
        for node in (2, 3):
            await begin(cluster, node)
        waiting = cluster.nodes[3]
        await until(lambda: "message manager 1.4" in waiting.lacks, "they say for whom they wait")
        async with heliograph.connect(url(cluster)) as connection:
            assert await standings(connection) == {"1.1": CLIENTS, "1.2": "waits", "1.3": "waits"}
            assert await removed(connection, "1.9") == [None, None, None]
            assert await removed(connection, "1.4") == [None, None, None]
        both = [cluster.nodes[node] for node in (2, 3)]
        await until(lambda: not any(server.lacks for server in both), "one of them leads, the other follows")
        async with heliograph.connect(url(cluster)) as connection:
            consumer = await connection.consumer("queue:orders")
            message = await consumer.receive(timeout=30)
            assert message is not None
            assert message.body == b"lamp"
            producer = await connection.producer("queue:orders")
            await producer.send_confirmed(b"oil")
        for node in (2, 3):
            cluster.crash(node)
        for node in (4, 3, 2):  # it was not lost after all, and has no say
            await begin(cluster, node)
        await until(lambda: not cluster.nodes[4].lacks, "it has caught up")
        async with heliograph.connect(url(cluster)) as connection:
            assert (await standings(connection))["1.4"] == FOLLOWS
            consumer = await connection.consumer("queue:orders")
            message = await consumer.receive(timeout=30)
            assert message is not None
            assert message.body == b"oil"

    told(tmp_path, story)


async def begin(cluster: Cluster, node: int) -> None:
    """A message manager that has to wait for others."""
    server = ClusterServer(cluster.settings(node, MESSAGES), cluster._bus)
    await server.start()
    cluster.nodes[node] = server


async def removed(connection: Connection, node: str) -> list[str | None]:
    composite = await connection.ask("nodes.ask", command="node.remove", arguments={"node": node})
    return [reply.get("error", {}).get("code") for reply in composite["replies"]]


# ---- events


@pytest.mark.req("M15")
def test_events_of_every_node_are_seen_by_who_watches_and_outlive_the_one_that_leads(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster)) as connection:
            watching = await connection.consumer("topic:_LOG")
            for server in cluster.nodes.values():
                server._events.record("tried", by=server.name)
            seen: set[str] = set()
            while seen != {"1.1", "1.2", "1.3"}:
                message = await watching.receive(timeout=30)
                assert message is not None
                assert isinstance(message.body, dict)
                if message.body["event"] == "tried":
                    assert message.body["node"] == message.body["by"]
                    assert message.body["time"] > 0
                    seen.add(message.body["node"])
            cluster.crash(2)
            events = (await connection.ask("log"))["events"]
            tried = {event["node"] for event in events if event["event"] == "tried"}
            assert tried == {"1.1", "1.2", "1.3"}
            assert [event["time"] for event in events] == sorted(event["time"] for event in events)

    told(tmp_path, story)


@pytest.mark.req("M15")
def test_events_are_stored_for_a_subscriber_who_is_away_when_the_one_that_leads_dies(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        for node in (2, 3):
            await cluster.add(node)
        async with heliograph.connect(url(cluster), client_id="watchman") as connection:
            watching = await connection.consumer("topic:_LOG", durable="night")
            await watching.close()
            cluster.nodes[3]._events.record("tried", number=1)
            leader = cluster.nodes[2].replica
            assert leader is not None
            topic = leader.manager.catalogue.by_address["topic:_LOG"]  # type: ignore[index]
            await until(lambda: topic.figures().depth >= 1, "it is kept")
            cluster.crash(2)
            watching = await connection.consumer("topic:_LOG", durable="night")
            while (message := await watching.receive(timeout=30)) is not None:
                assert isinstance(message.body, dict)
                if message.body["event"] == "tried":
                    assert message.body["number"] == 1
                    return
            raise AssertionError("the event was lost")

    told(tmp_path, story)


@pytest.mark.req("M15")
def test_a_node_to_which_much_happens_drops_events_and_says_how_many(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.add(2)
        async with heliograph.connect(url(cluster)) as connection:
            watching = await connection.consumer("topic:_LOG")
            relay = cluster.nodes[1]._administration._relay
            for number in range(3000):
                relay.add({"time": 1.0, "node": "1.1", "event": "noise", "number": number})
            told_of = dropped = 0
            while told_of + dropped < 3000:
                message = await watching.receive(timeout=30)
                assert message is not None
                assert isinstance(message.body, dict)
                told_of += message.body["event"] == "noise"
                dropped += message.body["count"] if message.body["event"] == "events-dropped" else 0
            assert 900 < told_of <= 1000

    told(tmp_path, story)


@pytest.mark.req("M13", "M15")
def test_nodes_of_all_sub_clusters_answer_and_their_events_are_in_one_log(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        async with heliograph.connect(url(cluster)) as connection:
            found = await standings(connection)
            assert list(found) == ["1.1", "1.2", "1.10", "1.11", "1.20", "1.21"]
            assert sorted(found.values()) == [CLIENTS] * 2 + [FOLLOWS] * 2 + [LEADS] * 2
            watching = await connection.consumer("topic:_LOG")
            for server in cluster.nodes.values():
                server._events.record("tried")
            seen: list[str] = []
            while len(seen) < 6:
                message = await watching.receive(timeout=30)
                assert message is not None
                assert isinstance(message.body, dict)
                seen += [message.body["node"]] if message.body["event"] == "tried" else []
            assert sorted(seen) == sorted(found)
            events = (await connection.ask("log"))["events"]
            assert sorted(event["node"] for event in events if event["event"] == "tried") == sorted(found)

    spread(tmp_path, story, clients=2)

"""What an operator's script does by HTTP, at a server that stands alone and at a cluster."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import quote

import pytest

import heliograph
from heliograph.client import tracing
from tests.api.visitor import Visitor, at
from tests.interop.stage import Stage, wait_for

pytestmark = pytest.mark.req("X3")


def test_send_look_peek_and_receive(stage: Stage, visitor: Visitor) -> None:
    sent = visitor.post(
        at("queue:api.talk", "/messages"),
        {"body": {"price": 3}, "properties": {"region": "eu"}, "priority": 7, "correlation_id": "c"},
    )
    visitor.post(at("queue:api.talk", "/messages"), {"body": "grüezi <b>"})
    visitor.post(at("queue:api.talk", "/messages"), {"body": "00ff", "encoding": "hex"})
    page = visitor.get(at("queue:api.talk", "/messages"))
    assert [each["kind"] for each in page["messages"]] == ["data", "text", "bytes"]
    assert page["messages"][0]["id"] == sent["id"]
    assert page["messages"][0]["properties"] == {"region": "eu"}
    chosen = visitor.get(at("queue:api.talk", "/messages?selector=" + quote("region = 'eu'")))
    assert [each["id"] for each in chosen["messages"]] == [sent["id"]]
    one = visitor.get(at("queue:api.talk", "/messages/" + quote(sent["id"], safe="")))
    assert (one["body"], one["body_form"], one["correlation_id"]) == ({"price": 3}, "json", "c")
    bytes_id = quote(page["messages"][2]["id"], safe="")
    assert visitor.get(at("queue:api.talk", f"/messages/{bytes_id}?body=hex"))["body"] == "00ff"
    assert visitor.get(at("queue:api.talk", f"/messages/{bytes_id}?body=raw")) == b"\x00\xff"
    assert visitor.ask("GET", at("queue:api.talk", f"/messages/{bytes_id}?body=text"))[0] == 400

    async def receive() -> list[Any]:
        async with heliograph.connect(stage.url) as connection:
            consumer = await connection.consumer("queue:api.talk")
            return [message.body for message in await consumer.receive_batch(3, timeout=30)]

    assert stage.run(receive()) == [{"price": 3}, "grüezi <b>", b"\x00\xff"]


def test_who_looks_makes_nothing(visitor: Visitor) -> None:
    for rest in ("/messages", "/messages/1.1.abc.1%2F1-1"):
        status, said = visitor.ask("GET", at("queue:api.nowhere", rest))
        assert (status, said["error"]["code"]) == (404, "destination-unknown")
    assert visitor.get("destinations?contains=api.nowhere")["total"] == 0
    status, said = visitor.ask("GET", at("topic:api.nowhere", "/messages"))
    assert status in (400, 404)


def test_a_trace_goes_on_with_the_message(stage: Stage, visitor: Visitor) -> None:
    """From a span of one program, over HTTP, through the queue, to a span of another."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="OpenTelemetry is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    processors = pytest.importorskip("opentelemetry.sdk.trace.export")
    from opentelemetry import trace

    spans = export.InMemorySpanExporter()
    if not isinstance(trace.get_tracer_provider(), sdk.TracerProvider):
        trace.set_tracer_provider(sdk.TracerProvider())
    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(processors.SimpleSpanProcessor(spans))
    name = "queue:api.traced"
    with tracing.publishing(name, {"n": 1}) as properties:
        assert set(properties) == {"n", "traceparent"}
        path = f"/api/v1/{at(name, '/messages')}"
        visitor.ask("POST", path, {"body": "by HTTP"}, traceparent=str(properties["traceparent"]))

    async def exchange() -> None:
        async with heliograph.connect(stage.url) as connection:
            producer, consumer = await connection.producer(name), await connection.consumer(name)
            await producer.send("by our client", properties=properties)
            for _ in range(2):
                message = await consumer.receive(timeout=30)
                assert message is not None
                with tracing.processing(message, name):
                    pass

    stage.run(exchange())
    sent, *processed = spans.get_finished_spans()
    assert sent.name == f"{name} publish"
    assert [each.name for each in processed] == [f"{name} process"] * 2
    assert {each.parent.span_id for each in processed} == {sent.context.span_id}
    assert {each.context.trace_id for each in processed} == {sent.context.trace_id}


def test_pages_of_messages_and_of_destinations(visitor: Visitor) -> None:
    for number in range(25):
        visitor.post(at("queue:api.pages", "/messages"), {"body": str(number)})
    seen: list[str] = []
    skip = 0
    while True:
        page = visitor.get(at("queue:api.pages", f"/messages?limit=10&skip={skip}"))
        seen += [each["preview"] for each in page["messages"]]
        skip = page["next"]
        if not skip:
            break
    assert seen == [str(number) for number in range(25)]
    for number in range(7):
        visitor.post("destinations", {"destination": f"queue:api.many.{number}"})
    for sort, expected in (("name", [f"queue:api.many.{number}" for number in range(7)]), ("depth", None)):
        names: list[str] = []
        after = ""
        while True:
            page = visitor.get(f"destinations?contains=API.many&limit=3&sort={sort}&after={after}")
            names += [each["address"] for each in page["destinations"]]
            after = page["next"]
            if not after:
                break
        assert page["total"] == 7
        assert sorted(names) == (expected or sorted(names))
        assert len(set(names)) == 7


def test_a_dead_message_goes_again_once(stage: Stage, visitor: Visitor) -> None:
    policy = {"redelivery_limit": 1}
    visitor.post("destinations", {"destination": "queue:api.poison", "policy": policy})

    async def poison() -> None:
        async with heliograph.connect(stage.url) as connection:
            session = await connection.session(acknowledge="individual")
            producer = await session.producer("queue:api.poison")
            for number in range(3):
                await producer.send_confirmed({"n": number}, properties={"n": number})
            consumer = await session.consumer("queue:api.poison")
            for _ in range(3):
                message = await consumer.receive(timeout=30)
                assert message is not None
                await message.reject("no room")

    stage.run(poison())
    dead = "queue:_DMQ"
    selector = "JMS_helio_original_destination = 'queue:api.poison'"
    look = at(dead, f"/messages?selector={quote(selector)}")
    wait_for(lambda: len(visitor.get(look)["messages"]) == 3, "all three are dead")
    messages = visitor.get(look)["messages"]
    assert {each["properties"]["JMS_helio_last_error"] for each in messages} == {"no room"}
    one = visitor.post(at(dead, "/messages/redrive"), {"ids": [messages[0]["id"]]})
    assert (one["redriven"], one["stayed"]) == (1, 0)
    rest = visitor.post(at(dead, "/messages/redrive"), {"selector": selector})
    assert (rest["redriven"], rest["stayed"]) == (2, 0)
    assert not visitor.get(look)["messages"]
    again = visitor.get(at("queue:api.poison", "/messages"))["messages"]
    assert sorted(each["properties"]["n"] for each in again) == [0, 1, 2]
    assert all("JMS_helio_reason" not in each["properties"] for each in again)
    nothing = visitor.post(at(dead, "/messages/redrive"), {"selector": selector})
    assert nothing["redriven"] == 0


def test_move_and_delete_need_a_pause(visitor: Visitor) -> None:
    for number in range(4):
        visitor.post(at("queue:api.from", "/messages"), {"body": str(number)})
    visitor.post("destinations", {"destination": "queue:api.to"})
    ids = [each["id"] for each in visitor.get(at("queue:api.from", "/messages"))["messages"]]
    order = {"target": "queue:api.to", "ids": ids[:2]}
    status, said = visitor.ask("POST", at("queue:api.from", "/messages/move"), order)
    assert (status, said["error"]["code"]) == (409, "destination-not-paused")
    visitor.post(at("queue:api.from", "/pause"), {"consumption": True})
    assert visitor.get(at("queue:api.from"))["consumption_paused"] is True
    assert visitor.post(at("queue:api.from", "/messages/move"), order)["messages"] == 2
    assert visitor.post(at("queue:api.from", "/messages/delete"), {"ids": ids[2:3]})["messages"] == 1
    visitor.post(at("queue:api.from", "/resume"))
    moved = [each["id"] for each in visitor.get(at("queue:api.to", "/messages"))["messages"]]
    assert moved == ids[:2], "a message that is moved keeps its id"
    assert visitor.get(at("queue:api.from"))["depth"] == 1


def test_a_destination_from_birth_to_death(visitor: Visitor) -> None:
    status, shown = visitor.ask("POST", "destinations", {"destination": "queue:api.life"})
    assert (status, shown["depth"]) == (201, 0)
    assert visitor.ask("POST", "destinations", {"destination": "queue:api.life"})[0] == 409
    status, changed = visitor.ask("PATCH", at("queue:api.life"), {"policy": {"redelivery_limit": 4}})
    assert (status, changed["policy"]["redelivery_limit"]) == (200, 4)
    assert visitor.ask("PATCH", at("queue:api.life"), {"policy": {"redelivery_limit": -4}})[0] == 400
    visitor.post(at("queue:api.life", "/messages"), {"body": "x"})
    status, said = visitor.ask("DELETE", at("queue:api.life"))
    assert (status, said["error"]["code"]) == (409, "destination-not-empty")
    assert visitor.post(at("queue:api.life", "/purge"))["messages"] == 1
    assert visitor.ask("DELETE", at("queue:api.life"))[0] == 200
    assert visitor.ask("GET", at("queue:api.life"))[0] == 404


def test_who_consumes_and_which_units_wait(stage: Stage, visitor: Visitor) -> None:
    policy = {"redelivery_limit": 1, "unit_stops": True}
    visitor.post("destinations", {"destination": "queue:api.units", "policy": policy})

    async def fail() -> tuple[Any, Any]:
        connection = await heliograph.connect(stage.url)
        session = await connection.session(acknowledge="individual")
        producer = await session.producer("queue:api.units")
        for number in range(3):
            await producer.send_confirmed(str(number), unit_of_order="account-17")
        consumer = await session.consumer("queue:api.units")
        message = await consumer.receive(timeout=30)
        assert message is not None
        await message.reject("no")
        return connection, consumer

    connection, _ = stage.run(fail())
    (who,) = visitor.get(at("queue:api.units", "/consumers"))["consumers"]
    assert who["user"] == "guest"
    wait_for(lambda: visitor.get(at("queue:api.units"))["stopped_units"] == 1, "the unit is stopped")
    stuck = [each for each in visitor.get("units")["units"] if each["destination"] == "queue:api.units"]
    assert [each["name"] for each in stuck] == ["account-17"]
    stage.run(connection.close())
    visitor.post(at("queue:api.units", "/units/account-17/resume"), {"give_up": True})
    assert visitor.get(at("queue:api.units"))["stopped_units"] == 0
    assert visitor.ask("POST", at("queue:api.units", "/units/account-17/resume"), {})[0] == 404


def test_alerts(visitor: Visitor) -> None:
    mild = visitor.post("alerts/api", {"destination": "TAG:disk", "body": "91 %", "priority": 3})
    urgent = visitor.post("alerts/api", {"destination": "TAG:network", "priority": 10, "duration": 60})
    page = visitor.get("alerts/api")
    assert [each["id"] for each in page["alerts"]] == [urgent["id"], mild["id"]]
    found = visitor.get("alerts/api?topics=TAG:disk")["alerts"]
    assert [each["id"] for each in found] == [mild["id"]]
    assert visitor.get(f"alerts/api/{urgent['id']}")
    status, said = visitor.ask("DELETE", f"alerts/api/{mild['id']}")
    assert (status, said.get("error", {}).get("code")) in ((200, None), (403, "not-allowed"))


def test_the_server_as_a_whole(stage: Stage, visitor: Visitor) -> None:
    visitor.post(at("queue:api.whole", "/messages"), {"body": "x"})
    wait_for(lambda: visitor.get("overview")["totals"]["published"] > 0, "it is counted")
    assert visitor.get("configuration")["server"]["host"] == "127.0.0.1"
    assert "defaults" in visitor.get("policies")
    assert isinstance(visitor.get("sessions")["sessions"], list)
    assert visitor.get("transactions")["transactions"] == []
    assert any(each["event"] == "destination-created" for each in visitor.get("log")["events"])
    drawn = visitor.get("cluster")
    if drawn["cluster"]:
        assert drawn["sub_clusters"]["main"]["state"] == "A"
        assert len(drawn["nodes"]) == 3
    else:
        assert drawn["sub_clusters"] == {}
    assert visitor.ask("GET", "/health") == (200, {"status": "ok"})
    assert visitor.ask("GET", "/ready") == (200, {"status": "ready"})


def test_metrics_of_all_and_of_each(visitor: Visitor) -> None:
    visitor.post(at('queue:api.metrics"\\', "/messages"), {"body": "x"})
    lines = visitor.get("/metrics").decode().splitlines()
    values = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines if line[0] != "#"}
    assert float(values["heliograph_messages_published_total"]) >= 0
    assert float(values["heliograph_connections"]) >= 1
    assert not any("queue:api.metrics" in line for line in lines)
    each = visitor.get("/metrics?destinations=api.metrics").decode()
    assert 'heliograph_destination_messages_waiting{destination="queue:api.metrics\\"\\\\"} 1' in each
    for line in each.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0


def test_news_come_by_themselves(stage: Stage, visitor: Visitor) -> None:
    visitor.post("destinations", {"destination": "queue:api.news"})
    with stage.dial() as bare:
        path = "/api/v1/events?topics=overview,log,cluster&destination=queue:api.news"
        bare.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        heard = b""

        def listen(until: str) -> bool:
            nonlocal heard
            heard += bare.recv(65536)
            return until.encode() in heard

        for topic in ("overview", "log", "cluster", "destination"):
            wait_for(lambda topic=topic: listen(f"event: {topic}\n"), topic)  # type: ignore[misc]
        visitor.post(at("queue:api.news", "/messages"), {"body": "x"})
        wait_for(lambda: listen('"depth":1,'), "the message is seen")
        visitor.post("destinations", {"destination": "queue:api.news.too"})
        wait_for(lambda: listen('"destination":"queue:api.news.too"'), "what happened is told")
        bare.shutdown(socket.SHUT_RDWR)


def test_who_does_not_know_may_ask_the_description(visitor: Visitor) -> None:
    described = visitor.get("openapi.json")
    assert described["openapi"].startswith("3.1")
    assert "/api/v1/destinations/{destination}/messages" in described["paths"]
    json.dumps(described)


def test_the_console_is_served_with_care(visitor: Visitor) -> None:
    status, headers, _ = visitor.whole("GET", "/")
    assert (status, headers["Location"]) == (302, "/console/")
    status, headers, page = visitor.whole("GET", "/console/")
    assert status == 200
    assert b"<title>Heliograph</title>" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert visitor.ask("GET", "/console/", If_None_Match=headers["ETag"])[0] == 304
    assert visitor.ask("GET", "/console/../../pyproject.toml")[0] == 404
    assert b"http" not in visitor.get("/console/style.css"), "nothing comes from elsewhere"

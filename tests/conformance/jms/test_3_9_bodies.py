"""JMS 2.0, sections 3.6 and 3.9 to 3.12: what may be done with a message, and its body."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.conformance.jms.adapter import Body, MessageFormat, Mode
from tests.conformance.jms.stage import Stage, bodies_of, next_of, take

pytestmark = pytest.mark.req("J2")


@pytest.mark.req("J4")
def test_3_6_acknowledging_is_ignored_where_it_happens_by_itself(stage: Stage) -> None:
    """3.6: with automatic acknowledgement, calls to acknowledge are ignored."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    consumer = stage.session(Mode.AUTO).consumer(queue)
    next_of(consumer).acknowledge()
    last = next_of(consumer)
    last.acknowledge()
    last.acknowledge()
    consumer.close()
    assert stage.left_in(queue) == []


def test_3_9_changing_a_sent_map_does_not_change_the_message(stage: Stage) -> None:
    """3.9: after the send a client may change what it sent, without any effect on the message."""
    queue = stage.queue()
    body: dict[str, Any] = {"state": "sent"}
    properties: dict[str, Any] = {"state": "sent"}
    producer = stage.session().producer(queue)
    producer.send(body, properties=properties)
    body["state"] = properties["state"] = "changed"
    message = next_of(stage.session().consumer(queue))
    assert (message.body, message.properties) == ({"state": "sent"}, {"state": "sent"})


def test_3_9_the_same_body_may_be_sent_many_times(stage: Stage) -> None:
    """3.9: the same message object may be sent again, changed or not."""
    queue = stage.queue()
    body: dict[str, Any] = {"n": 0}
    producer = stage.session().producer(queue)
    for n in range(3):
        body["n"] = n
        producer.send(body)
    assert bodies_of(take(stage.session().consumer(queue), 3)) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_3_10_a_redelivered_message_is_the_original_whatever_its_receiver_did(stage: Stage) -> None:
    """3.10: changes that a consumer made to a message are not in the message that is delivered again."""
    queue = stage.queue()
    stage.send(queue, {"state": "original"})
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    cast(dict[str, Any], next_of(consumer).body)["state"] = "scribbled over"
    session.recover()
    assert next_of(consumer).body == {"state": "original"}


def test_3_10_a_redelivered_message_has_all_its_headers(stage: Stage) -> None:
    """3.10: apart from the marks of redelivery, nothing differs from the first time."""
    queue, answers = stage.queue(), stage.queue()
    stage.send(
        queue,
        "body",
        properties={"a": 1},
        correlation_id="c",
        reply_to=answers,
        type="t",
        group_id="g",
        group_sequence=3,
        priority=6,
        time_to_live=60,
    )
    session = stage.session(Mode.CLIENT)
    consumer = session.consumer(queue)
    first = next_of(consumer)
    session.recover()
    again = next_of(consumer)
    changed = {
        name
        for name in first.__slots__
        if name != "on_acknowledge" and getattr(first, name) != getattr(again, name)
    }
    assert changed == {"redelivered", "delivery_count"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x00\xff bytes \n", id="bytes"),
        pytest.param(b"", id="bytes-empty"),
        pytest.param(bytes(range(256)), id="bytes-every-one"),
        pytest.param("text", id="text"),
        pytest.param("", id="text-empty"),
        pytest.param("Zürich – 東京 – 𝄞\x00\n", id="text-unicode"),
        pytest.param(b"x" * 1_000_000, id="bytes-large"),
        pytest.param("ü" * 500_000, id="text-large"),
    ],
)
def test_3_11_a_body_arrives_as_it_was_sent(stage: Stage, body: Body) -> None:
    """3.11: bytes are not interpreted and texts are Unicode, of any length including none."""
    received = stage.passed(stage.queue(), body).body
    assert received == body
    assert type(received) is type(body)


@pytest.mark.needs("data-bodies")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"name": "Ω", "count": 2**63 - 1, "rate": -0.5, "ok": True, "raw": b"\x00"}, id="map"),
        pytest.param({}, id="map-empty"),
        pytest.param({"nothing": None}, id="map-null"),
        pytest.param([1, "two", 3.0, False, b"\x05", None], id="list"),
        pytest.param([], id="list-empty"),
        pytest.param({"list": [1, {"deep": [[]]}]}, id="nested"),
    ],
)
def test_3_11_maps_and_streams_keep_their_values_and_types(stage: Stage, body: Body) -> None:
    """3.11: a map has named values and a stream has values in order; each keeps its type."""
    received = stage.passed(stage.queue(), body).body
    assert repr(received) == repr(body)  # which tells 1, 1.0 and True apart


@pytest.mark.needs("data-bodies")
def test_3_11_4_a_message_keeps_its_kind_on_its_way(stage: Stage) -> None:
    """3.11.4: a message sent as a map does not arrive as bytes, nor a text as anything else."""
    queue = stage.queue()
    stage.send(queue, {"a": 1}, "text", b"bytes", [1])
    received = take(stage.session().consumer(queue), 4)
    assert [type(message.body) for message in received] == [dict, str, bytes, list]


@pytest.mark.parametrize("body", [object(), {1, 2}, 5, {"a": object()}])
def test_3_12_a_body_of_an_unknown_kind_is_refused(stage: Stage, body: object) -> None:
    """3.12 and 10.3: a value of a kind that no message can hold is a wrong format, found by the send."""
    producer = stage.session().producer(stage.queue())
    with pytest.raises(MessageFormat):
        producer.send(cast(Body, body))

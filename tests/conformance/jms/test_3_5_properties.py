"""JMS 2.0, section 3.5: the properties of a message."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import pytest

from tests.conformance.jms.adapter import MessageFormat, Mode, Property
from tests.conformance.jms.stage import Stage, next_of, take

pytestmark = pytest.mark.req("J2")


@pytest.mark.parametrize("name", ["a", "_x", "$y", "camelCase", "with_123", "größe", "名前", "x" * 300])
def test_3_5_1_a_property_name_is_a_selector_identifier(stage: Stage, name: str) -> None:
    """3.5.1: any identifier of the selector language names a property."""
    assert stage.passed(stage.queue(), properties={name: 1}).properties[name] == 1


def test_3_5_1_property_names_are_case_sensitive(stage: Stage) -> None:
    """3.5.1: names that differ in case are different properties."""
    message = stage.passed(stage.queue(), properties={"colour": "red", "Colour": "blue"})
    assert (message.properties["colour"], message.properties["Colour"]) == ("red", "blue")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="boolean-true"),
        pytest.param(False, id="boolean-false"),
        pytest.param(-128, id="byte"),
        pytest.param(32767, id="short"),
        pytest.param(-(2**31), id="int"),
        pytest.param(2**63 - 1, id="long-largest"),
        pytest.param(-(2**63), id="long-smallest"),
        pytest.param(0.5, id="float"),
        pytest.param(1.7976931348623157e308, id="double"),
        pytest.param("text", id="string"),
        pytest.param("", id="string-empty"),
        pytest.param("Grüße ✓ 𝄞", id="string-unicode"),
    ],
)
def test_3_5_2_property_values_keep_their_type(stage: Stage, value: Property) -> None:
    """3.5.2: booleans, whole numbers of 64 bits, doubles and texts arrive as what they are."""
    found = stage.passed(stage.queue(), properties={"value": value}).properties["value"]
    assert found == value
    assert type(found) is type(value)


def test_3_5_2_many_properties_travel_together(stage: Stage) -> None:
    """3.5.2: a message has any number of properties."""
    properties = {f"property{n}": n for n in range(100)}
    assert stage.passed(stage.queue(), properties=properties).properties == properties


def test_3_5_3_the_properties_of_a_received_message_cannot_be_written(stage: Stage) -> None:
    """3.5.3: a received message's properties are read-only, or at least those of nobody else change."""
    topic = stage.topic()
    session = stage.session()
    first, second = session.consumer(topic), session.consumer(topic)
    stage.send(topic, b"", properties={"a": 1})
    mine = cast(dict[str, Any], next_of(first).properties)
    with suppress(TypeError):
        mine["a"] = 2
    assert next_of(second).properties == {"a": 1}


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, object(), 1j])
def test_3_5_5_a_property_of_another_type_is_refused(stage: Stage, value: object) -> None:
    """3.5.5: an attempt to set a property to anything else fails as a wrong format."""
    producer = stage.session().producer(stage.queue())
    with pytest.raises(MessageFormat):
        producer.send(b"", properties={"value": cast(Property, value)})


def test_3_5_5_a_property_may_be_null(stage: Stage) -> None:
    """3.5.5: reading a property that was set to null gives null."""
    message = stage.passed(stage.queue(), properties={"nothing": None, "something": 1})
    assert message.properties.get("nothing") is None
    assert message.properties["something"] == 1


def test_3_5_6_the_names_of_the_properties_do_not_include_headers(stage: Stage) -> None:
    """3.5.6: iterating over the properties does not show the standard headers."""
    message = stage.passed(
        stage.queue(), properties={"mine": 1}, correlation_id="c", type="t", priority=7, time_to_live=60
    )
    assert set(message.properties) == {"mine"}


def test_3_5_7_a_message_without_properties_has_an_empty_set(stage: Stage) -> None:
    """3.5.7: without any set, there is nothing to iterate over, and the body is none the worse."""
    message = stage.passed(stage.queue(), "body", properties={})
    assert (dict(message.properties), message.body) == ({}, "body")


def test_3_5_8_a_property_that_does_not_exist_is_null(stage: Stage) -> None:
    """3.5.8: asking for a property that nobody set gives null."""
    assert stage.passed(stage.queue(), properties={"a": 1}).properties.get("b") is None


@pytest.mark.needs("user-id")
def test_3_5_9_the_user_id_is_set_by_the_provider_on_send(stage: Stage) -> None:
    """3.5.9: JMSXUserID is the identity of the sender, as the provider knows it."""
    assert stage.passed(stage.queue()).user_id == stage.connection.user


@pytest.mark.needs("user-id")
def test_3_5_9_a_client_cannot_say_that_it_is_somebody_else(stage: Stage) -> None:
    """3.5.9: JMSXUserID is the provider's; what a client claims does not count."""
    queue = stage.queue()
    producer = stage.session().producer(queue)
    try:
        producer.send(b"", properties={"JMSXUserID": "root"})
    except MessageFormat:
        return  # refused, which is as good
    assert next_of(stage.session().consumer(queue)).user_id == stage.connection.user


def test_3_5_9_group_id_and_sequence_pass_through(stage: Stage) -> None:
    """3.5.9: clients group messages by JMSXGroupID and count them from 1; every provider supports that."""
    queue = stage.queue()
    producer = stage.session().producer(queue)
    for sequence in (1, 2, 3):
        producer.send(b"", group_id="parcel 7", group_sequence=sequence)
    messages = take(stage.session().consumer(queue), 3)
    assert [(message.group_id, message.group_sequence) for message in messages] == [
        ("parcel 7", 1),
        ("parcel 7", 2),
        ("parcel 7", 3),
    ]


def test_3_5_9_without_a_group_there_is_none(stage: Stage) -> None:
    """3.5.9: the provider makes no group up."""
    message = stage.passed(stage.queue())
    assert (message.group_id, message.group_sequence) == (None, 0)


@pytest.mark.req("J4")
def test_3_5_11_the_delivery_count_is_1_at_first(stage: Stage) -> None:
    """3.5.11: the first time that a message is received its JMSXDeliveryCount is 1."""
    assert stage.passed(stage.queue()).delivery_count == 1


@pytest.mark.req("J4")
def test_3_5_11_the_delivery_count_grows_with_each_delivery(stage: Stage) -> None:
    """3.5.11: JMSXDeliveryCount is the number of times that the message was delivered."""
    queue = stage.queue()
    stage.send(queue, b"")
    counts = []
    for _ in range(4):
        with stage.session(Mode.CLIENT) as session:
            counts.append(next_of(session.consumer(queue)).delivery_count)
    assert counts == [1, 2, 3, 4]


@pytest.mark.req("J4")
def test_3_5_11_a_redelivered_message_has_a_count_of_2_or_more(stage: Stage) -> None:
    """3.5.11: where JMSRedelivered is set, JMSXDeliveryCount is at least 2, and the other way round."""
    queue = stage.queue()
    stage.send(queue, "a", "b")
    with stage.session(Mode.CLIENT) as session:
        seen = take(session.consumer(queue), 2)
    seen += take(stage.session().consumer(queue), 2)
    assert [message.redelivered for message in seen] == [False, False, True, True]
    assert [message.delivery_count >= 2 for message in seen] == [False, False, True, True]

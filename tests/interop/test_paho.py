"""paho-mqtt, the usual MQTT client, in versions 3.1.1 and 5: send, receive, acknowledge, subscribe durably,
reconnect; wills, retained messages, shared subscriptions."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from heliograph import connect_blocking
from tests.interop.stage import SECONDS, Place, Stage, wait_for

pytestmark = pytest.mark.req("X1")
V3, V5 = mqtt.MQTTv311, mqtt.MQTTv5


class Client:
    """A paho client and what it was told."""

    def __init__(self, stage: Place, name: str = "", *, version: int = V5, **options: Any) -> None:
        self._stage = stage
        self.is_clean = options.pop("clean", True)
        self.expiry = options.pop("expiry", 0)
        arguments: dict[str, Any] = {} if version == V5 else {"clean_session": self.is_clean}
        self.paho = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=version, **arguments
        )
        self.version = version
        self.messages: list[mqtt.MQTTMessage] = []
        self.connected = threading.Event()
        self.lost: list[Any] = []
        self.flags: Any = None
        self.reason: Any = None
        self.granted: dict[int, list[Any]] = {}
        self.ended: dict[int, Any] = {}
        self.published: dict[int, Any] = {}
        self.paho.on_connect = self._on_connect
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.lost.append(reason)
        self.paho.on_message = lambda _c, _u, message: self.messages.append(message)
        self.paho.on_subscribe = lambda _c, _u, mid, reasons, _p: self.granted.__setitem__(mid, reasons)
        self.paho.on_unsubscribe = lambda _c, _u, mid, reasons, _p: self.ended.__setitem__(mid, reasons)
        self.paho.on_publish = lambda _c, _u, mid, reason, _p: self.published.__setitem__(mid, reason)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        self.flags, self.reason = flags, reason
        self.connected.set()

    def connect(self, **options: Any) -> None:
        if self.version == V5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = self.expiry
            for name, value in options.pop("properties", {}).items():
                setattr(properties, name, value)
            options |= {"clean_start": self.is_clean, "properties": properties}
        self.paho.connect(self._stage.host, self._stage.port, **options)
        self.paho.loop_start()
        assert self.connected.wait(SECONDS)

    def subscribe(self, topic: str, qos: int = 1, **options: Any) -> list[Any]:
        if options:
            _, mid = self.paho.subscribe(topic, options=SubscribeOptions(qos=qos, **options))
        else:
            _, mid = self.paho.subscribe(topic, qos)
        assert mid is not None
        wait_for(lambda: mid in self.granted, f"the subscription to {topic} was answered")
        return self.granted[mid]

    def unsubscribe(self, topic: str) -> None:
        _, mid = self.paho.unsubscribe(topic)
        assert mid is not None
        wait_for(lambda: mid in self.ended, "it was unsubscribed")

    def publish(self, topic: str, payload: bytes | str, qos: int = 1, **options: Any) -> None:
        """Until the server has it."""
        properties = options.pop("properties", None)
        if properties:
            said = Properties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(said, name, value)
            options["properties"] = said
        info = self.paho.publish(topic, payload, qos, **options)
        if qos:
            info.wait_for_publish(SECONDS)
            assert info.is_published()

    def await_messages(self, count: int) -> list[mqtt.MQTTMessage]:
        wait_for(lambda: len(self.messages) >= count, f"{count} messages came, not {len(self.messages)}")
        return self.messages

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def vanish(self) -> None:
        """Without a word."""
        raw = self.paho.socket()
        assert raw is not None
        self.paho.on_disconnect = None
        self.paho._reconnect_on_failure = False
        raw.shutdown(socket.SHUT_RDWR)
        self.paho.loop_stop()


@contextmanager
def client(stage: Place, name: str = "", **options: Any) -> Iterator[Client]:
    made = Client(stage, name, **options)
    made.connect()
    try:
        yield made
    finally:
        made.leave()


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_each_quality_arrive_once_and_in_order(stage: Stage, version: int, qos: int) -> None:
    topic = f"plain/{version}/{qos}"
    with client(stage, version=version) as one, client(stage, version=version) as other:
        assert [int(getattr(code, "value", code)) for code in one.subscribe(topic, qos)] == [qos]
        for number in range(50):
            other.publish(topic, b"%d" % number, qos)
        one.await_messages(50)
        assert one.payloads == [b"%d" % number for number in range(50)]
        assert {(message.topic, message.qos, message.retain) for message in one.messages} == {
            (topic, qos, False)
        }
        other.publish(topic, b"end", 1)
        one.await_messages(51)


@pytest.mark.parametrize(("published", "subscribed"), [(2, 1), (1, 2), (2, 0), (0, 2)])
def test_the_lower_quality_counts(stage: Stage, published: int, subscribed: int) -> None:
    topic = f"lower/{published}{subscribed}"
    with client(stage) as one:
        one.subscribe(topic, subscribed)
        one.publish(topic, b"x", published)
        assert one.await_messages(1)[0].qos == min(published, subscribed)


@pytest.mark.parametrize("version", [V3, V5])
def test_filters_mean_many_topics_those_to_come_too(stage: Stage, version: int) -> None:
    root = f"house{version}"
    with client(stage, version=version) as one:
        one.publish(f"{root}/hall/light", b"before")
        one.subscribe(f"{root}/+/light")
        one.subscribe(f"{root}/cellar/#")
        one.publish(f"{root}/hall/light", b"1")
        one.publish(f"{root}/attic/light", b"2")
        one.publish(f"{root}/attic/light/deep", b"-")
        one.publish(f"{root}/cellar", b"3")
        one.publish(f"{root}/cellar/a/b", b"4")
        one.await_messages(4)
        assert sorted(one.payloads) == [b"1", b"2", b"3", b"4"]
        one.unsubscribe(f"{root}/+/light")
        one.publish(f"{root}/hall/light", b"-")
        one.publish(f"{root}/cellar", b"5")
        one.await_messages(5)
        assert one.payloads[-1] == b"5"


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("topic", ["kept/exact", "kept/many/+"])
def test_a_session_that_outlives_its_connection_keeps_messages(
    stage: Stage, version: int, topic: str
) -> None:
    name = f"keeper-{version}-{topic[-1]}"
    options: dict[str, Any] = {"version": version, "clean": False, "expiry": 1000}
    target = topic.replace("+", f"new{version}")
    with client(stage, name, **options) as one:
        assert not one.flags.session_present
        one.subscribe(topic, 1)
    with client(stage) as other:
        for number in range(5):
            other.publish(target, b"%d" % number, 1)
    with client(stage, name, **options) as one:  # and does not subscribe again
        assert one.flags.session_present
        one.await_messages(5)
        assert one.payloads == [b"%d" % number for number in range(5)]
    with client(stage, name, version=version, clean=True) as one:  # what was kept is given up
        assert not one.flags.session_present
    with client(stage) as other:
        other.publish(target, b"for nobody", 1)
    with client(stage, name, **options) as one:
        assert not one.flags.session_present
        one.subscribe(topic, 1)
        one.publish(target, b"after", 1)
        one.await_messages(1)
        assert one.payloads == [b"after"]


@pytest.mark.slow
def test_a_session_ends_when_its_time_is_over(stage: Stage) -> None:
    with client(stage, "short", clean=False, expiry=1) as one:
        one.subscribe("short/lived", 1)
    with client(stage) as other:
        other.publish("short/lived", b"kept for a second", 1)

    def is_gone() -> bool:
        with connect_blocking(stage.url) as ours:
            shown = ours.ask("destination.show", destination="topic:short/lived")
        return not shown["subscribers"]

    wait_for(is_gone, "the subscription has ended")
    with client(stage, "short", clean=False, expiry=1) as one:
        assert not one.flags.session_present


def test_what_was_not_acknowledged_comes_again_after_a_reconnect(stage: Stage) -> None:
    one = Client(stage, "again", version=V5, clean=False, expiry=1000)
    one.paho.manual_ack_set(True)
    one.connect()
    one.subscribe("again", 1)
    one.publish("again", b"once", 1)
    one.await_messages(1)
    one.vanish()
    with client(stage, "again", clean=False, expiry=1000) as one:
        assert one.flags.session_present
        one.await_messages(1)
        one.publish("again", b"next", 1)
        one.await_messages(2)
        assert one.payloads == [b"once", b"next"]


def test_a_session_that_is_resumed_has_its_shared_subscriptions_and_queues_too(stage: Stage) -> None:
    with client(stage, "sharing", clean=False, expiry=1000) as one:
        one.subscribe("$share/crew/sharing/task", 1)
        one.subscribe("$queue/sharing", 1)
    with client(stage, "sharing", clean=False, expiry=1000) as one:
        assert one.flags.session_present
        one.publish("sharing/task", b"shared", 1)
        one.publish("$queue/sharing", b"queued", 1)
        one.await_messages(2)
        assert sorted(one.payloads) == [b"queued", b"shared"]


def test_a_message_of_quality_2_goes_on_where_it_was_when_its_client_comes_back(stage: Stage) -> None:
    """The application must not get it twice, whatever was lost with the connection."""

    def come() -> socket.socket:
        raw = stage.dial()
        raw.sendall(b"\x10\x10\x00\x04MQTT\x04\x00\x00\x3c\x00\x04goon")
        assert raw.recv(4)[:2] == b"\x20\x02"
        return raw

    with come() as raw:
        raw.sendall(b"\x82\x0a\x00\x01\x00\x05exact\x02")
        assert raw.recv(5) == b"\x90\x03\x00\x01\x02"
        with client(stage) as other:
            other.publish("exact", b"x", 2)
        packet = raw.recv(12)
        assert packet[:9] == b"\x34\x0a\x00\x05exact"
        number = packet[9:11]
    with come() as raw:  # the PUBREC was lost
        assert raw.recv(12) == b"\x3c\x0a\x00\x05exact" + number + b"x"
        raw.sendall(b"\x50\x02" + number)
        assert raw.recv(4) == b"\x62\x02" + number
    with come() as raw:  # the PUBCOMP was lost
        assert raw.recv(4) == b"\x62\x02" + number
        raw.sendall(b"\x70\x02" + number)
        with client(stage) as other:
            other.publish("exact", b"y", 2)
        assert raw.recv(12)[-1:] == b"y"


def test_a_message_of_quality_2_that_is_sent_again_is_stored_once(stage: Stage) -> None:
    def publish_packet(duplicate: bool) -> bytes:
        body = b"\x00\x05twice" + b"\x00\x07" + b"payload"
        return bytes(((0x3C if duplicate else 0x34), len(body))) + body

    with client(stage, version=V3) as one, stage.dial() as raw:
        one.subscribe("twice", 2)
        raw.sendall(b"\x10\x10\x00\x04MQTT\x04\x00\x00\x3c\x00\x04self")
        assert raw.recv(4) == b"\x20\x02\x00\x00"
        raw.sendall(publish_packet(False))
        assert raw.recv(4) == b"\x50\x02\x00\x07"
        with stage.dial() as again:  # it has not seen the answer
            again.sendall(b"\x10\x10\x00\x04MQTT\x04\x00\x00\x3c\x00\x04self")
            assert again.recv(4) == b"\x20\x02\x01\x00"
            again.sendall(publish_packet(True))
            assert again.recv(4) == b"\x50\x02\x00\x07"
            again.sendall(b"\x62\x02\x00\x07")
            assert again.recv(4) == b"\x70\x02\x00\x07"
            again.sendall(b"\x32\x0b\x00\x05twice\x00\x08zz")
            assert again.recv(4) == b"\x40\x02\x00\x08"
        one.await_messages(2)
        assert one.payloads == [b"payload", b"zz"]


@pytest.mark.parametrize("version", [V3, V5])
def test_a_retained_message_is_what_a_newcomer_gets_first(stage: Stage, version: int) -> None:
    root = f"state{version}"
    with client(stage, version=version) as one:
        for value in (b"on", b"off"):
            one.publish(f"{root}/lamp", value, 1, retain=True)
        one.publish(f"{root}/door", b"open", 0, retain=True)
        one.publish(f"{root}/door", b"not retained", 1)
        one.publish(f"{root}/gone", b"x", 1, retain=True)
        one.publish(f"{root}/gone", b"", 1, retain=True)
    with client(stage, version=version) as two:
        two.subscribe(f"{root}/+", 1)
        two.await_messages(2)
        found = sorted((message.topic, message.payload, message.retain) for message in two.messages)
        assert found == [(f"{root}/door", b"open", True), (f"{root}/lamp", b"off", True)]
        two.publish(f"{root}/lamp", b"on", 1, retain=True)
        live = two.await_messages(3)[2]
        assert (live.payload, live.retain) == (b"on", False)


def test_retained_messages_are_asked_for_and_marked_as_version_5_says(stage: Stage) -> None:
    with client(stage) as one:
        one.publish("asked/for", b"kept", 1, retain=True)
        one.subscribe(
            "asked/for", 1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND, retainAsPublished=True
        )
        one.publish("asked/for", b"live", 1, retain=True)
        (live,) = one.await_messages(1)
        assert (live.payload, live.retain) == (b"live", True)
        one.subscribe("asked/for", 1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        one.subscribe("asked/for", 1)
        again = one.await_messages(2)[1]
        assert (again.payload, again.retain) == (b"live", True)


@pytest.mark.parametrize("version", [V3, V5])
def test_the_will_of_a_client_that_vanishes_is_carried_out(stage: Stage, version: int) -> None:
    topic = f"wills/{version}"
    with client(stage, version=version) as heir:
        heir.subscribe(topic, 1)
        proper = Client(stage, version=version)
        proper.paho.will_set(topic, b"not sent", 1)
        proper.connect()
        proper.leave()
        dead = Client(stage, version=version)
        dead.paho.will_set(topic, b"goodbye", 1)
        dead.connect()
        dead.vanish()
        heir.await_messages(1)
        assert heir.payloads == [b"goodbye"]


@pytest.mark.slow
def test_a_will_waits_for_its_client(stage: Stage) -> None:
    def with_will(delay: int) -> Client:
        made = Client(stage, "testator", clean=False, expiry=100)
        properties = Properties(PacketTypes.WILLMESSAGE)
        properties.WillDelayInterval = delay
        made.paho.will_set("wills/late", b"%d" % delay, 1, properties=properties)
        made.connect()
        return made

    with client(stage) as heir:
        heir.subscribe("wills/late", 1)
        with_will(100).vanish()
        with_will(1).vanish()
        heir.await_messages(1)
        assert heir.payloads == [b"1"]


@pytest.mark.slow
def test_a_second_connection_takes_the_name_over(stage: Stage) -> None:
    one = Client(stage, "single", expiry=0)
    one.paho.reconnect_delay_set(60, 60)
    one.connect()
    with client(stage, "single") as two:
        wait_for(lambda: one.lost, "the first was sent away")
        assert one.lost[0].getName() == "Session taken over"
        two.subscribe("single", 1)
        two.publish("single", b"x", 1)
        two.await_messages(1)
    one.paho.loop_stop()


def test_subscribers_share_messages(stage: Stage) -> None:
    with client(stage) as one, client(stage) as two, client(stage) as sender:
        for each in (one, two):
            each.subscribe("$share/group/shared/work", 1)
            each.subscribe("$share/group/shared/many/#", 1)
        for number in range(40):
            sender.publish("shared/work", b"%d" % number, 1)
            sender.publish("shared/many/x", b"m%d" % number, 1)
        wait_for(lambda: len(one.messages) + len(two.messages) >= 80, "all came")
        expected = [b"%d" % number for number in range(40)] + [b"m%d" % number for number in range(40)]
        assert sorted(one.payloads + two.payloads) == sorted(expected)
        assert one.messages
        assert two.messages


def test_properties_travel(stage: Stage) -> None:
    said = {
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 100,
        "ContentType": "text/x",
        "ResponseTopic": "answers/here",
        "CorrelationData": b"\xff\x00\x01",
        "UserProperty": [("a", "b"), ("c", "ü")],
    }
    with client(stage) as one:
        one.subscribe("said", 1)
        one.publish("said", "text", 1, properties=said)
        (message,) = one.await_messages(1)
        got = message.properties
        assert got is not None
        assert got.PayloadFormatIndicator == 1
        assert 90 <= got.MessageExpiryInterval <= 100
        assert (got.ContentType, got.ResponseTopic) == ("text/x", "answers/here")
        assert got.CorrelationData == b"\xff\x00\x01"
        assert got.UserProperty == [("a", "b"), ("c", "ü")]


def test_topic_aliases_shorten_both_ways(stage: Stage) -> None:
    one = Client(stage)
    one.connect(properties={"TopicAliasMaximum": 5})
    one.subscribe("a/topic/with/a/long/name", 1)
    one.publish("a/topic/with/a/long/name", b"1", 1, properties={"TopicAlias": 3})
    one.publish("", b"2", 1, properties={"TopicAlias": 3})
    first, second = one.await_messages(2)
    assert first.properties is not None
    assert second.properties is not None
    assert (first.topic, first.properties.TopicAlias) == ("a/topic/with/a/long/name", 1)
    assert (second.topic, second.properties.TopicAlias) == ("", 1)
    one.leave()


def test_a_client_gets_no_more_than_it_can_take(stage: Stage) -> None:
    one = Client(stage)
    one.paho.manual_ack_set(True)
    one.connect(properties={"ReceiveMaximum": 3})
    one.subscribe("slow", 1)
    for number in range(10):
        one.publish("slow", b"%d" % number, 1)
    one.await_messages(3)
    for count in range(3, 10):
        assert len(one.messages) == count
        one.paho.ack(one.messages[count - 3].mid, 1)
        one.await_messages(count + 1)
    assert one.payloads == [b"%d" % number for number in range(10)]
    one.leave()


def test_what_cannot_be_is_refused_with_a_reason(stage: Stage) -> None:
    with client(stage) as one:
        assert [code.getName() for code in one.subscribe("$share/nothing", 1)] == ["Topic filter invalid"]
        assert [code.getName() for code in one.subscribe("_private", 1)] == ["Topic filter invalid"]
        info = one.paho.publish("_private", b"x", 1)
        wait_for(lambda: info.mid in one.published, "the message was answered")
        assert one.published[info.mid].getName() == "Topic name invalid"
        one.subscribe("fine", 1)
        one.publish("fine", b"x", 1)
        one.await_messages(1)


def test_queues_are_for_mqtt_clients_too_and_messages_cross_protocols(stage: Stage) -> None:
    with client(stage) as one, connect_blocking(stage.url) as ours:
        one.subscribe("$queue/jobs", 1)
        producer = ours.producer("queue:jobs")
        producer.send(
            {"n": 1}, properties={"flag": True, "n": 5}, reply_to="topic:answers", correlation_id="c"
        )
        (job,) = one.await_messages(1)
        assert (job.topic, job.payload) == ("$queue/jobs", b'{"n":1}')
        assert job.properties is not None
        assert (job.properties.ResponseTopic, job.properties.CorrelationData) == ("answers", b"c")
        assert job.properties.UserProperty == [("flag", "true"), ("n", "5")]
        one.publish(
            "$queue/from-mqtt",
            "grüezi",
            1,
            properties={"PayloadFormatIndicator": 1, "UserProperty": ("x", "y")},
        )
        message = ours.consumer("queue:from-mqtt").receive(timeout=30)
        assert message is not None
        assert (message.body, message.properties["x"], message.persistent) == ("grüezi", "y", True)


@pytest.mark.slow
def test_a_quiet_client_is_kept_by_its_pings_and_a_dead_one_is_noticed(stage: Stage) -> None:
    with client(stage) as heir:
        heir.subscribe("wills/quiet", 1)
        with stage.dial() as raw:
            # Keep alive one second, a will, and then nothing.
            body = b"\x00\x04MQTT\x04\x0e\x00\x01\x00\x03dog" + b"\x00\x0bwills/quiet" + b"\x00\x04gone"
            raw.sendall(bytes((0x10, len(body))) + body)
            assert raw.recv(4) == b"\x20\x02\x00\x00"
            for _ in range(3):
                began = time.monotonic()
                raw.sendall(b"\xc0\x00")
                assert raw.recv(2) == b"\xd0\x00"
            heir.await_messages(1)
            assert time.monotonic() - began > 1.0

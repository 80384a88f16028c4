"""Alerts for clients of MQTT: in version 5 all there is to them, in 3.1.1 publishing, subscribing and taking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import heliograph
from heliograph.nodes.users import UserStore
from tests.interop.stage import SECONDS, Stage, wait_for
from tests.interop.test_mqtt_others import needs_mosquitto, publish, subscribing
from tests.interop.test_paho import V3, V5, Client
from tests.suites.test_alerts import CHEAP

pytestmark = pytest.mark.req("X1", "A8")


class Alerted(Client):
    """A paho client that keeps what answers say."""

    def __init__(self, stage: Stage, name: str = "", **options: Any) -> None:
        super().__init__(stage, name, **options)
        self.answers: dict[int, tuple[Any, Any]] = {}
        self.whys: dict[int, Any] = {}
        self.paho.on_publish = lambda _c, _u, mid, reason, said: self.answers.__setitem__(mid, (reason, said))
        self.paho.on_subscribe = self._on_subscribe

    def _on_subscribe(self, _c: Any, _u: Any, mid: int, reasons: Any, said: Any) -> None:
        self.whys[mid] = said
        self.granted[mid] = reasons

    def put(self, topic: str, body: str = "", qos: int = 1, **said: Any) -> tuple[int, str, str]:
        """The reason, its sentence, and the id of the alert."""
        properties = Properties(PacketTypes.PUBLISH)
        if "Correlation" in said:
            properties.CorrelationData = said.pop("Correlation").encode()
        if "Response" in said:
            properties.ResponseTopic = said.pop("Response")
        if "Expiry" in said:
            properties.MessageExpiryInterval = said.pop("Expiry")
        if said:
            properties.UserProperty = list(said.items())
        options = {"properties": properties} if self.version == V5 else {}
        info = self.paho.publish(topic, body, qos, **options)
        wait_for(lambda: info.mid in self.answers, "it was answered")
        reason, answer = self.answers[info.mid]
        pairs = dict(getattr(answer, "UserProperty", ()))
        return int(reason.value), getattr(answer, "ReasonString", ""), pairs.get("alert_id", "")

    def ask(self, topic: str, qos: int = 1, **said: str) -> tuple[int, str]:
        """The reason with which a subscription is answered, and its sentence."""
        options: dict[str, Any] = {}
        if said:
            properties = Properties(PacketTypes.SUBSCRIBE)
            properties.UserProperty = [(name.replace("_", "-"), text) for name, text in said.items()]
            options = {"properties": properties}
        _, mid = self.paho.subscribe(topic, qos, **options)
        assert mid is not None
        wait_for(lambda: mid in self.granted, f"the subscription to {topic} was answered")
        return int(self.granted[mid][0].value), getattr(self.whys[mid], "ReasonString", "")


@contextmanager
def client(stage: Stage, name: str = "", **options: Any) -> Iterator[Alerted]:
    made = Alerted(stage, name, **options)
    made.connect()
    try:
        yield made
    finally:
        made.leave()


def said_of(message: Any) -> dict[str, str]:
    return dict(message.properties.UserProperty)


def bodies(found: list[Any]) -> list[str]:
    return [message.payload.decode() for message in found]


def come(who: Alerted, count: int) -> list[Any]:
    wait_for(lambda: len(who.messages) >= count, f"{count} alerts came, not {len(who.messages)}")
    return who.messages


@pytest.mark.parametrize("version", [V3, V5])
def test_who_subscribes_gets_what_is_live_and_then_what_comes_in_both_versions(
    stage: Stage, version: int
) -> None:
    base = f"$alerts/mqtt-both-{int(version)}"
    with client(stage, version=version) as one:
        for body in ("first", "second"):
            assert one.put(f"{base}/TAG:disk.full", body)[0] == 0
        one.put(f"{base}/TAG:network", "other")
        assert one.ask(f"{base}/TAG:^disk,cpu;USER:anna") == (1, "")
        assert bodies(come(one, 2)) == ["first", "second"]
        one.put(f"{base}/USER:anna", "come")
        assert bodies(come(one, 3))[2] == "come"
        assert {message.topic for message in one.messages} == {f"{base}/TAG:^disk,cpu;USER:anna"}
        assert {message.qos for message in one.messages} == {1}
        one.unsubscribe(f"{base}/TAG:^disk,cpu;USER:anna")
        one.put(f"{base}/USER:anna", "unheard")
        assert len(one.messages) == 3


def test_in_version_5_an_alert_has_all_there_is_to_it(stage: Stage) -> None:
    with client(stage) as one:
        for priority in ("2", "8", "0", "9"):
            one.put("$alerts/mqtt-all", f"p{priority}", priority=priority, alert_destination="TAG:a+b#")
        _, _, identity = one.put(
            "$alerts/mqtt-all",
            "last",
            priority="9",
            Expiry=60,
            alert_destination="USER:anna",
            alert_classification="secret",
            alert_cancel="any",
            alert_acknowledge="client",
        )
        assert one.ask("$alerts/mqtt-all", topics=r"TAG:a\+;USER:anna") == (1, "")
        found = come(one, 5)
        assert bodies(found) == ["p9", "last", "p8", "p2", "p0"]
        said = said_of(found[1])
        assert said.pop("alert_arrived").isdigit()
        assert said == {
            "alert_id": identity,
            "alert_destination": "USER:anna",
            "alert_type": "alert",
            "alert_classification": "secret",
            "alert_cancel": "any",
            "alert_acknowledge": "client",
            "alert_user": "guest",
            "priority": "9",
        }
        assert len(identity) == 24
        assert 50 < found[1].properties.MessageExpiryInterval <= 60
        assert found[0].topic == "$alerts/mqtt-all"

    async def live() -> Any:
        async with heliograph.connect(stage.url) as own:
            return await own.alerts("mqtt-all").list()

    assert identity in [each["id"] for each in stage.run(live())]


def test_an_alert_is_cancelled_acknowledged_and_receipted(stage: Stage) -> None:
    channel = "$alerts/mqtt-words"
    with client(stage) as one, client(stage) as other:
        one.ask("$acknowledgements/mqtt-words/TAG:pump")
        one.ask("mqtt-words/answers")
        other.ask(channel, topics="TAG:pump")
        _, _, identity = one.put(f"{channel}/TAG:pump", "hot", alert_acknowledge="client")
        (seen,) = come(other, 1)
        assert said_of(seen)["alert_id"] == identity
        assert other.put(channel, "on my way", alert_action="acknowledge", Correlation=identity)[0] == 0
        (word,) = come(one, 1)
        assert (word.payload, word.properties.CorrelationData) == (b"on my way", identity.encode())
        assert (said_of(word)["alert_type"], word.topic) == (
            "acknowledgement",
            "$acknowledgements/mqtt-words/TAG:pump",
        )
        wants: dict[str, Any] = {"Response": "mqtt-words/answers", "Correlation": "mine"}
        _, _, cold = one.put(f"{channel}/TAG:pump", "cold", alert_acknowledge="receipt", **wants)
        answer, receipt = come(one, 3)[1:]
        for each in (answer, receipt):
            assert each.properties.CorrelationData == b"mine"
            assert said_of(each)["alert_id"] == cold
        assert said_of(receipt)["alert_receipt_user"] == "guest"
        assert one.put(channel, alert_action="cancel", Correlation=identity)[0] == 0
        reason, sentence, _ = one.put(channel, alert_action="cancel", Correlation="0" * 24)
        assert (reason, "alert" in sentence) == (0x83, True)
        with client(stage) as late:
            late.ask(channel, topics="TAG:pump")
            assert bodies(come(late, 1)) == ["cold"]


def test_what_is_acknowledged_is_taken_and_under_a_name_the_rest_comes_again(stage: Stage) -> None:
    channel = "$alerts/mqtt-named"
    first = Alerted(stage)
    first.paho.manual_ack_set(True)
    first.connect()
    first.ask(channel, topics="TAG:.", subscription_name="night")
    first.put(f"{channel}/TAG:a", "1", priority="9")
    first.put(f"{channel}/TAG:a", "2")
    taken, _ = come(first, 2)
    first.paho.ack(taken.mid, taken.qos)
    first.put(f"{channel}/TAG:b", "3")  # behind the acknowledgement
    first.leave()
    with client(stage) as second:
        second.ask(channel, topics="TAG:.", subscription_name="night")
        assert bodies(come(second, 2)) == ["2", "3"]


def test_a_will_can_be_an_alert(stage: Stage) -> None:
    with client(stage) as watching:
        watching.ask("$alerts/mqtt-will", topics="USER:ops")
        lost = Alerted(stage)
        lost.paho.will_set("$alerts/mqtt-will/USER:ops", "the pump is gone", 1)
        lost.connect()
        lost.vanish()
        (found,) = come(watching, 1)
        assert (found.payload, said_of(found)["alert_destination"]) == (b"the pump is gone", "USER:ops")


@needs_mosquitto
@pytest.mark.slow
@pytest.mark.parametrize("version", ["311", "5"])
def test_a_client_in_c_publishes_and_gets_alerts(stage: Stage, version: str) -> None:
    channel = f"$alerts/mosquitto-{version}"
    asks: tuple[str, ...] = ("-t", f"{channel}/TAG:^disk;USER:anna")
    says: tuple[str, ...] = ("-t", f"{channel}/TAG:disk.full")
    if version == "5":
        asks = ("-t", channel, "-D", "subscribe", "user-property", "topics", "TAG:^disk;USER:anna")
        named = ("user-property", "alert_destination", "TAG:disk.full")
        says = ("-t", channel, "-D", "publish", *named, "-D", "publish", "user-property", "priority", "9")
    with subscribing(stage, "-V", version, "-q", "1", *asks, "-C", "2", "-F", "got %q %p %P") as subscriber:
        publish(stage, "-V", version, "-q", "1", "-t", f"{channel}/TAG:network", "-m", "other")
        publish(stage, "-V", version, "-q", "1", *says, "-m", "full")
        publish(stage, "-V", version, "-q", "1", "-t", f"{channel}/USER:anna", "-m", "come")
        assert subscriber.stdout is not None
        output = subscriber.stdout.read()
        subscriber.wait(SECONDS)
    first, second = [line[4:] for line in output.splitlines() if line.startswith("got ")]
    assert (first.startswith("1 full "), second.startswith("1 come ")) == (True, True)
    assert ("alert_destination:TAG:disk.full" in first, "priority:9" in first) == (version == "5",) * 2


@pytest.mark.parametrize(
    ("filter", "said", "reason", "sentence"),
    [
        ("$alerts/mqtt-refused", {}, 0x8F, "which alerts are wanted"),
        ("$alerts/mqtt-refused/TAG:x", {"topics": "TAG:y"}, 0x8F, "not both"),
        ("$alerts/mqtt-refused", {"topics": "DISK:x"}, 0x8F, "topics begin with TAG:"),
        ("$alerts/mqtt-refused/TAG:(", {}, 0x8F, "missing"),
        ("$share/g/$alerts/mqtt-refused/TAG:x", {}, 0x8F, "not shared"),
        ("$alerts/mqtt-refused/TAG:x/#", {}, 0x8F, "+ and #"),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused_with_its_reason(
    stage: Stage, filter: str, said: dict[str, Any], reason: int, sentence: str
) -> None:
    with client(stage) as one:
        found = one.ask(filter, **said)
        assert found[0] == reason
        assert sentence in found[1]
        assert one.ask("$alerts/mqtt-refused/TAG:fine")[0] == 1  # and the connection goes on


def test_a_session_that_outlives_its_connection_has_no_alerts(stage: Stage) -> None:
    with client(stage, "mqtt-lasting", expiry=60) as one:
        reason, sentence = one.ask("$alerts/mqtt-lasting/TAG:x")
        assert (reason, "subscription-name" in sentence) == (0x83, True)
    with client(stage, "mqtt-lasting-3", version=V3, clean=False) as one:
        assert one.ask("$alerts/mqtt-lasting/TAG:x")[0] == 0x80


@pytest.mark.parametrize(
    ("topic", "body", "said", "reason", "sentence"),
    [
        ("$alerts/mqtt-wrong", "", {}, 0x83, "alert_destination"),
        ("$alerts/mqtt-wrong", "", {"alert_destination": "NOBODY"}, 0x90, "TAG:TEXT"),
        ("$alerts/mqtt-wrong/TAG:x", "", {"alert_destination": "TAG:y"}, 0x83, "another destination"),
        ("$alerts/mqtt-wrong/TAG:x", "", {"alert_cancel": "never"}, 0x83, "is one of"),
        ("$alerts/mqtt-wrong/TAG:x", "", {"delay": "5"}, 0x83, "not delayed"),
        ("$alerts/mqtt-wrong/TAG:x", "x" * 40_000, {}, 0x83, "at most 32768 bytes"),
        ("$alerts/mqtt-wrong", "", {"alert_action": "applaud"}, 0x83, "alert_action is"),
        ("$acknowledgements/mqtt-wrong/TAG:x", "", {}, 0x90, ""),
    ],
)
def test_what_is_wrong_with_an_alert_is_the_answer(
    stage: Stage, topic: str, body: str, said: dict[str, Any], reason: int, sentence: str
) -> None:
    with client(stage) as one:
        found = one.put(topic, body, **said)
        assert found[0] == reason
        assert sentence in found[1]
        assert one.put("$alerts/mqtt-wrong/TAG:fine", "", 2)[0] == 0


def test_version_3_cannot_be_told_so_it_is_cut_off(stage: Stage) -> None:
    with client(stage, version=V3) as one:
        one.paho.publish("$alerts/mqtt-wrong", "for nobody", 1)
        wait_for(lambda: one.lost, "the connection ended")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    store = UserStore.load(folder / "data" / "users.toml")
    store.add("ann", "x", ["admin"], clearance="secret", cost=CHEAP)
    store.add("bob", "x", ["admin"], cost=CHEAP)
    store.add("eve", "x", cost=CHEAP)
    with Stage(folder) as stage:
        yield stage


@contextmanager
def logged_in(stage: Stage, user: str) -> Iterator[Alerted]:
    made = Alerted(stage)
    made.paho.username_pw_set(user, "x")
    made.connect()
    try:
        yield made
    finally:
        made.leave()


def test_what_somebody_is_not_cleared_for_does_not_exist_for_them(guarded: Stage) -> None:
    with logged_in(guarded, "ann") as ann, logged_in(guarded, "bob") as bob:
        ann.ask("$alerts/ops/TAG:.*")
        bob.ask("$alerts/ops/TAG:.*")
        said: dict[str, Any] = {"alert_classification": "secret", "alert_cancel": "any"}
        _, _, raid = ann.put("$alerts/ops/TAG:raid", "raid", **said)
        ann.put("$alerts/ops/TAG:lunch", "lunch")
        assert bodies(come(ann, 2)) == ["raid", "lunch"]
        assert bodies(come(bob, 1)) == ["lunch"]
        assert bob.put("$alerts/ops", alert_action="cancel", Correlation=raid)[0] == 0x83
        assert bob.put("$alerts/ops/TAG:x", alert_classification="secret")[0] == 0x87
        assert len(bob.messages) == 1


def test_who_has_no_right_is_told_so(guarded: Stage) -> None:
    with logged_in(guarded, "eve") as eve:
        assert eve.put("$alerts/ops/TAG:x")[0] == 0x87
        assert eve.ask("$alerts/ops/TAG:x")[0] == 0x87

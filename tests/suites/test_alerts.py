"""Alerts as applications use them, on a real server: publishing, sweeping, cancelling, acknowledging, receipts,
classification, restarts (A1–A8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.client.alert import Receipt
from heliograph.model.alert_topics import TopicFault
from heliograph.model.errors import ClientFault, HeliographError, NotAllowed, Unavailable
from heliograph.model.patterns import PatternFault
from heliograph.nodes.users import UserStore
from tests.servers import embedded, play, until, url_of

CHEAP = (16, 8, 1)  # these passwords are no secrets


def at_a_server(folder: Path, story: Callable[[str], Awaitable[None]], **settings: object) -> None:
    async def whole() -> None:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        async with embedded(folder, given) as server:
            await story(url_of(server))

    play(whole())


@pytest.mark.req("A1", "A4")
def test_who_comes_later_gets_what_is_live_the_most_urgent_first(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            for priority in (3, 9, 1, 10, 9):
                await ops.publish("TAG:db.eu", f"p{priority}", priority=priority)
            consumer = await ops.subscribe("TAG:db")
            got = [await consumer.receive(30) for _ in range(5)]
            assert [(alert.priority, alert.text) for alert in got if alert] == [
                (10, "p10"),
                (9, "p9"),
                (9, "p9"),
                (3, "p3"),
                (1, "p1"),
            ]
            await ops.publish("TAG:db.us", b"", duration=60.0, classification="secret")
            last = await consumer.receive(30)
            assert last is not None
            assert (last.destination, last.classification, last.duration) == ("TAG:db.us", "secret", 60.0)
            assert (last.user, last.channel, last.persistent) == ("guest", "alerts:ops", True)
            assert await consumer.receive(0.1) is None

    at_a_server(tmp_path, story)


@pytest.mark.req("A2")
def test_topics_are_tags_profiles_and_users_several_at_once(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            consumer = await ops.subscribe(r"TAG: ^a\,b , c$ ; USER:ann; PROFILE: night")
            for destination in ("TAG:a,b!", "TAG:xa,b", "TAG:abc", "USER:anna", "USER:ann", "PROFILE:night"):
                await ops.publish(destination, destination)
            got = [await consumer.receive(30) for _ in range(4)]
            assert [alert.destination for alert in got if alert] == [
                "TAG:a,b!",
                "TAG:abc",
                "USER:ann",
                "PROFILE:night",
            ]
            assert await consumer.receive(0.1) is None
            with pytest.raises(TopicFault, match="position 1"):
                await ops.subscribe("a,b")
            with pytest.raises(PatternFault, match="position 2"):
                await ops.subscribe("TAG:a(b")

    at_a_server(tmp_path, story)


@pytest.mark.req("A3", "A6")
def test_acknowledgements_are_alerts_for_whoever_wants_them(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as one, heliograph.connect(url) as two:
            ops = one.alerts("ops")
            chain = await one.alerts("ops").subscribe(acknowledgements="TAG:db")
            wanted = await ops.publish("TAG:db", acknowledge="client")
            await ops.publish("TAG:db", "no need", priority=1)
            consumer = await two.alerts("ops").subscribe("TAG:db")
            first, second = await consumer.receive(30), await consumer.receive(30)
            assert first is not None
            assert second is not None
            assert await second.acknowledge() == ""  # nobody asked for it
            identity = await first.acknowledge("seen by the night shift")
            told = await chain.receive(30)
            assert told is not None
            assert (told.id, told.correlation_id, told.is_acknowledgement) == (identity, wanted, True)
            assert told.text == "seen by the night shift"
            assert await consumer.receive(0.1) is None
            with pytest.raises(ClientFault, match="alert-unknown"):
                await ops.acknowledge("00" * 12)

    at_a_server(tmp_path, story)


@pytest.mark.req("A6")
def test_a_receipt_comes_when_the_application_has_the_alert(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as one, heliograph.connect(url) as two:
            ops, receipts = one.alerts("ops"), list[Receipt]()
            ops.on_receipt = receipts.append
            consumer = await two.alerts("ops").subscribe("TAG:db", name="console")
            identity = await ops.publish("TAG:db", acknowledge="receipt")
            await until(lambda: consumer._inbox, "it is in the inbox")
            assert not receipts
            assert await consumer.receive(30) is not None
            await until(lambda: receipts, "the producer knows")
            assert [(each.id, each.user, each.name) for each in receipts] == [(identity, "guest", "console")]

    at_a_server(tmp_path, story)


@pytest.mark.req("A5")
def test_what_is_cancelled_nobody_receives_though_it_is_in_their_inbox(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as one, heliograph.connect(url) as two:
            ops = one.alerts("ops")
            consumer = await two.alerts("ops").subscribe("TAG:db")
            mine = await ops.publish("TAG:db.1")
            await ops.publish("TAG:db.2")
            await until(lambda: len(consumer._inbox) == 2, "both are in the inbox")
            await ops.cancel(mine)
            left = await consumer.receive(30)
            assert left is not None
            assert left.destination == "TAG:db.2"
            assert await consumer.receive(0.1) is None
            await ops.cancel(mine)  # asked again, it is still so
            late = await two.alerts("ops").subscribe("TAG:db", name="late")
            alert = await late.receive(30)
            assert alert is not None
            assert alert.destination == "TAG:db.2"

    at_a_server(tmp_path, story)


@pytest.mark.req("A3")
def test_after_an_unsubscribe_nothing_is_handed_over(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            consumer = await ops.subscribe("TAG:db,web")
            for tag in ("db", "web", "db.web"):
                await ops.publish(f"TAG:{tag}")
            await until(lambda: len(consumer._inbox) == 3, "all are in the inbox")
            await consumer.unsubscribe("TAG:db")
            got = [await consumer.receive(30), await consumer.receive(30)]
            assert [alert.destination for alert in got if alert] == ["TAG:web", "TAG:db.web"]
            assert await consumer.receive(0.1) is None
            await consumer.subscribe("TAG:^d")  # what it has had comes no more, what it has not comes now
            again = await consumer.receive(30)
            assert again is not None
            assert again.destination == "TAG:db"
            assert await consumer.receive(0.1) is None

    at_a_server(tmp_path, story)


@pytest.mark.req("A4", "A7")
def test_under_a_name_alerts_wait_and_none_comes_twice_over_a_restart(tmp_path: Path) -> None:
    async def before(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            consumer = await ops.subscribe("TAG:.*", name="console")
            for number in range(5):
                await ops.publish(f"TAG:{number}", priority=number + 1)
            # A confirmation may come before what it confirms.
            await until(lambda: len(consumer._inbox) == 5, "all are in the inbox")
            got = [await consumer.receive(30) for _ in range(2)]
            assert [alert.priority for alert in got if alert] == [5, 4]
            await ops.publish("TAG:fleeting", persistent=False)
            await ops.publish("TAG:short", duration=0.05)
            await consumer.close()
            await ops.publish("TAG:urgent", priority=10)
            while await ops.list("TAG:short"):
                await asyncio.sleep(0.01)

    async def after(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            consumer = await ops.subscribe("TAG:.*", name="console")
            got = [await consumer.receive(30) for _ in range(4)]
            assert [alert.priority for alert in got if alert] == [10, 3, 2, 1]
            assert not any(alert.redelivered for alert in got if alert)
            assert await consumer.receive(0.1) is None
            assert len(await ops.list()) == 6

    at_a_server(tmp_path, before)
    at_a_server(tmp_path, after)


@pytest.mark.req("A1")
def test_who_lists_alerts_reads_what_each_begins_with_however_long_they_are(tmp_path: Path) -> None:
    """A page of the longest destinations is longer than a control frame."""

    async def story(url: str) -> None:
        async with heliograph.connect(url, reconnect_seconds=0.0) as connection:
            ops = connection.alerts("ops")
            await ops.publish("TAG:disk", "disk of db-3 is 91 % full", priority=9)
            for number in range(60):
                await ops.publish(f"TAG:{'x' * 4000}{number}", "é" * 200, priority=5)
            listed = await ops.list()
            assert len(listed) == 61
            assert listed[0]["beginning"] == "disk of db-3 is 91 % full"
            assert listed[1]["beginning"] == "é" * 120, "letters stay whole"
            assert listed[1]["bytes"] == 400

    at_a_server(tmp_path, story)


@pytest.mark.req("A7")
def test_the_life_of_an_alert_is_told(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            consumer = await ops.subscribe("TAG:.*", name="console")
            identity = await ops.publish("TAG:db", acknowledge="client", cancel="any")
            alert = await consumer.receive(30)
            assert alert is not None
            acknowledgement = await alert.acknowledge()
            await ops.cancel(identity)
            life = await ops.audit(identity)
            assert [(entry["what"], entry["who"]) for entry in life["entries"]] == [
                ("published", "guest"),
                ("delivered", "guest/console"),
                ("acknowledged", "guest"),
                ("cancelled", "guest"),
            ]
            assert life["entries"][2]["id"] == acknowledgement
            assert not life["live"]
            with pytest.raises(ClientFault, match="alert-unknown"):
                await ops.audit("ff" * 12)

    at_a_server(tmp_path, story)


@pytest.mark.req("A5")
def test_expired_alerts_vanish_and_endless_ones_are_counted(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as connection:
            ops = connection.alerts("ops")
            identity = await ops.publish("TAG:short", duration=0.05)
            while await ops.list():
                await asyncio.sleep(0.01)
            consumer = await ops.subscribe("TAG:.*")
            assert await consumer.receive(0.1) is None
            assert (await ops.audit(identity))["entries"][-1]["what"] == "expired"
            first = await ops.publish("TAG:one")
            await ops.publish("TAG:two")
            with pytest.raises(Unavailable, match="too-many-alerts"):
                await ops.publish("TAG:three")
            await ops.publish("TAG:bounded", duration=60.0)
            await ops.cancel(first)
            await ops.publish("TAG:three")

    at_a_server(tmp_path, story, policies=[{"destinations": "alerts:*", "endless_alerts": 2}])


def _with_users(folder: Path) -> None:
    store = UserStore.load(folder / "data" / "users.toml")
    for name, clearance in (("ann", "secret"), ("bob", ""), ("eve", "top-secret")):
        store.add(name, "x", ["admin"], clearance=clearance, cost=CHEAP)


@pytest.mark.req("A1")
def test_what_somebody_is_not_cleared_for_does_not_exist_for_them(tmp_path: Path) -> None:
    _with_users(tmp_path)

    async def story(url: str) -> None:
        def as_user(name: str) -> Any:
            return heliograph.connect(url, user=name, password="x")

        async with as_user("ann") as ann, as_user("bob") as bob, as_user("eve") as eve:
            hers = await ann.alerts("ops").subscribe("TAG:.*")
            his = await bob.alerts("ops").subscribe("TAG:.*")
            secret = await ann.alerts("ops").publish("TAG:raid", classification="secret", cancel="any")
            top = await eve.alerts("ops").publish("TAG:king", classification="top-secret", cancel="any")
            await bob.alerts("ops").publish("TAG:lunch")
            got = [await hers.receive(30), await hers.receive(30)]
            assert [alert.destination for alert in got if alert] == ["TAG:raid", "TAG:lunch"]
            assert await hers.receive(0.1) is None
            lunch = await his.receive(30)
            assert lunch is not None
            assert lunch.destination == "TAG:lunch"
            assert await his.receive(0.1) is None
            assert [each["destination"] for each in await bob.alerts("ops").list()] == ["TAG:lunch"]
            assert len(await ann.alerts("ops").list()) == 2
            shown = await bob.ask("destination.show", destination="alerts:ops")
            assert (shown["depth"], shown["published"]) == (1, 1)
            never = "aa" * 12
            for connection, identity in ((bob, secret), (bob, top), (ann, top)):
                told = []
                for each in (identity, never):
                    channel = connection.alerts("ops")
                    for attempt in (channel.cancel, channel.audit, channel.acknowledge):
                        with pytest.raises(ClientFault) as refused:
                            await attempt(each)
                        told.append(str(refused.value).replace(each, "ID"))
                assert told[:3] == told[3:]  # as if it had never been
            with pytest.raises(NotAllowed, match="not cleared"):
                await bob.alerts("ops").publish("TAG:plan", classification="confidential")
            await eve.alerts("ops").cancel(secret)

    at_a_server(tmp_path, story)


@pytest.mark.req("A5")
def test_only_who_published_an_alert_cancels_it_unless_it_says_otherwise(tmp_path: Path) -> None:
    _with_users(tmp_path)

    async def story(url: str) -> None:
        async with (
            heliograph.connect(url, user="ann", password="x") as ann,
            heliograph.connect(url, user="bob", password="x") as bob,
        ):
            mine = await ann.alerts("ops").publish("TAG:a")
            anybodys = await ann.alerts("ops").publish("TAG:b", cancel="any")
            with pytest.raises(NotAllowed):
                await bob.alerts("ops").cancel(mine)
            await bob.alerts("ops").cancel(anybodys)
            await ann.alerts("ops").cancel(mine)
            assert await ann.alerts("ops").list() == []

    at_a_server(tmp_path, story)


@pytest.mark.req("A3")
def test_a_name_is_for_one_consumer_at_a_time(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as one, heliograph.connect(url) as two:
            consumer = await one.alerts("ops").subscribe("TAG:.*", name="console")
            with pytest.raises(ClientFault, match="subscription-in-use"):
                await two.alerts("ops").subscribe("TAG:.*", name="console")
            await consumer.close()
            await two.alerts("ops").subscribe("TAG:.*", name="console")

    at_a_server(tmp_path, story)


@pytest.mark.req("A8")
def test_messages_and_alerts_do_not_mix(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        async with heliograph.connect(url) as connection:
            for attempt in (connection.producer, connection.consumer, connection.browse):
                with pytest.raises(HeliographError, match="alerts-only"):
                    await attempt("alerts:ops")
            with pytest.raises(HeliographError, match="invalid-destination"):
                await connection._make_temporary("alerts")

    at_a_server(tmp_path, story)


@pytest.mark.req("A8", "J12")
def test_the_blocking_face_has_the_same_shape(tmp_path: Path) -> None:
    async def story(url: str) -> None:
        await asyncio.to_thread(_blocking, url)

    at_a_server(tmp_path, story)


def _blocking(url: str) -> None:
    with heliograph.connect_blocking(url) as connection:
        ops = connection.alerts("ops")
        identity = ops.publish("TAG:db", "full", priority=9, acknowledge="client")
        with ops.subscribe("TAG:db") as consumer, ops.subscribe(acknowledgements="TAG:.*") as chain:
            alert = consumer.receive(30)
            assert alert is not None
            assert (alert.id, alert.text, alert.priority) == (identity, "full", 9)
            acknowledgement = alert.acknowledge()
            told = chain.receive(30)
            assert told is not None
            assert (told.id, told.correlation_id) == (acknowledgement, identity)
            consumer.subscribe("USER:ann")
            consumer.unsubscribe("TAG:db")
            ops.publish("USER:ann")
            for each in consumer:
                assert each.destination == "USER:ann"
                break
        assert len(ops.list("TAG:db")) == 2
        ops.cancel(identity)
        assert ops.audit(identity)["entries"][-1]["what"] == "cancelled"

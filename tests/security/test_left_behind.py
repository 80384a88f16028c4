"""What a client of MQTT left for its next time is nobody else's, whatever client id others come with."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph import connect
from heliograph.client.connection import Connection
from heliograph.frontends.mqtt.packets import CONNACK, packet
from heliograph.model.errors import HeliographError
from heliograph.nodes.users import UserStore
from tests.security.test_mqtt_scram import Line
from tests.servers import embedded, play, until, url_of

pytestmark = pytest.mark.req("X1", "X2")

_CHEAP = (16, 8, 1)
_CONNECT, _PUBLISH, _PUBREC, _PUBREL, _PUBCOMP, _SUBSCRIBE, _SUBACK = 1, 3, 5, 6, 7, 8, 9
_NUMBER = b"\x00\x07"
_NOT_AUTHORIZED = 0x87


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


async def _come(port: int, user: str, *, expiry: int = 0xFFFFFFFF, clean: bool = False) -> tuple[Line, bytes]:
    """Under Ann's client id; what it is told: whether a session was there, and a reason."""
    line = Line()
    await line.open(port)
    flags = b"\xc2" if clean else b"\xc0"
    said = b"\x05\x11" + expiry.to_bytes(4, "big")
    kind, body = await line.say(
        packet(
            _CONNECT,
            0,
            _text("MQTT"),
            b"\x05",
            flags,
            b"\x00\x3c",
            said,
            _text("anns"),
            _text(user),
            _text(user),
        )
    )
    assert kind == CONNACK
    return line, body[:2]


def _message(*, again: bool) -> bytes:
    return packet(_PUBLISH, 0x0C if again else 0x04, _text("$queue/doors"), _NUMBER, b"\x00", b"open")


@pytest.mark.parametrize("clean", [True, False])
def test_another_user_under_the_same_client_id_gets_and_destroys_nothing(tmp_path: Path, clean: bool) -> None:
    users = UserStore(tmp_path / "data" / "users.toml")
    for name in ("ann", "mallory"):
        users.add(name, name, ["admin"], cost=_CHEAP)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            port, manager = server.address[1], server._clients
            assert manager is not None
            ann, answer = await _come(port, "ann")
            assert answer == b"\x00\x00"
            kind, _ = await ann.say(packet(_SUBSCRIBE, 2, b"\x00\x01\x00", _text("news"), b"\x01"))
            assert kind == _SUBACK
            assert (await ann.say(_message(again=False)))[0] == _PUBREC
            ann.close()
            await until(lambda: not manager.connections, "she is gone")
            async with connect(url_of(server), user="ann", password="ann") as other:
                await (await other.producer("topic:news")).send_confirmed(b"for ann")
            for expiry in (0, 1, 1000):
                mallory, answer = await _come(port, "mallory", expiry=expiry, clean=clean)
                assert answer == bytes((0, _NOT_AUTHORIZED))
                mallory.close()
            await until(lambda: not manager.connections, "he is gone")
            ann, answer = await _come(port, "ann")
            assert answer == b"\x01\x00", "her session is as it was"
            kind, body = await ann.hear()
            assert (kind, body[-7:]) == (_PUBLISH, b"for ann")
            kind, body = await ann.say(_message(again=True))
            assert (kind, body[:3]) == (_PUBREC, _NUMBER), "it is known, and is not stored once more"
            kind, _ = await ann.say(packet(_PUBREL, 2, _NUMBER))
            assert kind == _PUBCOMP
            ann.close()
            async with connect(url_of(server), user="ann", password="ann") as other:
                assert (await other.ask("destination.show", destination="queue:doors"))["depth"] == 1

    play(story())


def test_a_subscription_to_a_pattern_without_topics_is_there_for_whom_rules_would_let_receive(
    tmp_path: Path,
) -> None:
    users = UserStore(tmp_path / "data" / "users.toml")
    for name in ("root", "ann", "mallory"):
        users.add(name, name, ["admin"] if name == "root" else [], cost=_CHEAP)
    wide, narrow = "wide → topic:glob:*", "narrow → topic:glob:secret.*"

    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            connect(url_of(server), user="root", password="root") as root,
        ):
            for topics, who in (("secret.*", ["ann"]), ("public.*", ["mallory"])):
                await root.ask(
                    "access.grant", destinations=f"topic:{topics}", users=who, rights=["receive", "create"]
                )
            async with connect(url_of(server), user="ann", password="ann", client_id="anns") as ann:
                await ann.consumer("topic:glob:secret.*", durable="narrow")
                await ann.consumer("topic:glob:*", durable="wide")
            async with connect(
                url_of(server), user="mallory", password="mallory", client_id="anns"
            ) as mallory:
                assert await _names(mallory) == [wide], "it could mean something that he may receive"
                refused = await _ended(mallory, "never was")
                assert refused[0] == "subscription-unknown"
                for name in ("narrow", "wide"):
                    assert await _ended(mallory, name) == refused
            async with connect(url_of(server), user="ann", password="ann", client_id="anns") as ann:
                assert await _names(ann) == [narrow, wide]
                assert await _ended(ann, "narrow") == ("", "")

    play(story())


async def _names(connection: Connection) -> list[str]:
    names: list[str] = (await connection.ask("client.subscriptions"))["subscriptions"]
    return sorted(names)


async def _ended(connection: Connection, name: str) -> tuple[str, str]:
    """How it is refused."""
    try:
        await connection.unsubscribe(name)
    except HeliographError as error:
        return error.code, error.sentence.replace(name, "NAME")
    return "", ""


def test_durable_subscriptions_are_there_for_those_who_may_receive_where_they_are(tmp_path: Path) -> None:
    users = UserStore(tmp_path / "data" / "users.toml")
    for name in ("root", "ann", "mallory"):
        users.add(name, name, ["admin"] if name == "root" else [], cost=_CHEAP)
    names = ["both", "pattern → topic:glob:secret.*", "secret"]

    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            connect(url_of(server), user="root", password="root") as root,
        ):
            for topics, who in (("secret.*", ["ann"]), ("public.*", ["ann", "mallory"])):
                rights = ["receive", "create"]
                await root.ask("access.grant", destinations=f"topic:{topics}", users=who, rights=rights)
            async with connect(url_of(server), user="ann", password="ann", client_id="anns") as ann:
                await ann.consumer("topic:secret.plans", durable="secret")
                await ann.consumer("topic:public.news", durable="both")
                await ann.consumer("topic:glob:secret.*", durable="pattern")
            async with connect(
                url_of(server), user="mallory", password="mallory", client_id="anns"
            ) as mallory:
                assert await _names(mallory) == ["both"]
                refused = await _ended(mallory, "never was")
                assert refused[0] == "subscription-unknown"
                for name in ("secret", "pattern"):
                    assert await _ended(mallory, name) == refused
            async with connect(url_of(server), user="root", password="root", client_id="anns") as other:
                assert await _names(other) == names
            async with connect(url_of(server), user="ann", password="ann", client_id="anns") as ann:
                assert await _names(ann) == names
                for name in ("secret", "both", "pattern"):
                    assert await _ended(ann, name) == ("", "")
                assert await _names(ann) == []

    play(story())


def test_a_clean_start_under_the_client_id_of_another_ends_nothing_where_it_has_no_right(
    tmp_path: Path,
) -> None:
    """Also after a restart, which remembers no longer whose session it was."""
    users = UserStore(tmp_path / "data" / "users.toml")
    for name in ("root", "ann", "mallory"):
        users.add(name, name, ["admin"] if name == "root" else [], cost=_CHEAP)

    async def begin() -> None:
        async with (
            embedded(tmp_path) as server,
            connect(url_of(server), user="root", password="root") as root,
        ):
            rights = ["receive", "create"]
            await root.ask("access.grant", destinations="topic:news", users=["ann"], rights=rights)
            await root.ask("access.grant", destinations="topic:x", users=["mallory"], rights=rights)
            ann, answer = await _come(server.address[1], "ann")
            assert answer == b"\x00\x00"
            assert (await ann.say(packet(_SUBSCRIBE, 2, b"\x00\x01\x00", _text("news"), b"\x01")))[
                0
            ] == _SUBACK
            ann.close()

    async def go_on() -> None:
        async with embedded(tmp_path) as server:
            manager = server._clients
            assert manager is not None
            for clean in (False, True):
                mallory, answer = await _come(server.address[1], "mallory", expiry=0, clean=clean)
                assert answer == b"\x00\x00", "there is nothing of his"
                mallory.close()
                await until(lambda: not manager.connections, "he is gone")
            ann, answer = await _come(server.address[1], "ann")
            assert answer == b"\x01\x00", "her subscription is there"
            ann.close()

    play(begin())
    play(go_on())

"""Rights that are given and taken while everybody is at work."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heliograph import connect
from heliograph.client import Producer
from heliograph.client.connection import Connection
from heliograph.model.errors import HeliographError, NotAllowed
from heliograph.nodes.embedded import EmbeddedServer
from heliograph.nodes.users import UserStore
from tests.servers import embedded, play, until, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)
ORDERS = {"destinations": "queue:orders.*", "users": ["bob"]}


def with_users(folder: Path) -> Path:
    users = UserStore(folder / "data" / "users.toml")
    users.add("ann", "a", ["admin"], cost=_CHEAP)
    users.add("bob", "b", ["clerk"], cost=_CHEAP)
    return users.path


def ann(server: EmbeddedServer) -> Any:
    return connect(url_of(server), user="ann", password="a")


def bob(server: EmbeddedServer) -> Any:
    return connect(url_of(server), user="bob", password="b")


async def may(connection: Connection, destination: str) -> bool:
    try:
        producer = await connection.producer(destination)
        await producer.send_confirmed(b"x")
    except NotAllowed:
        return False
    return True


async def _send_on(producer: Producer) -> None:
    """Until somebody minds."""
    async with asyncio.timeout(60):
        while True:
            await producer.send_confirmed(b"two")
            await asyncio.sleep(0.05)


def test_a_right_holds_as_soon_as_it_is_given_and_outlives_a_restart(tmp_path: Path) -> None:
    path = with_users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server, ann(server) as admin, bob(server) as connection:
            assert not await may(connection, "queue:orders.new")
            answer = await admin.ask("access.grant", **ORDERS, rights=["send", "create"])
            assert answer == {"version": 3, "rules": 1}
            assert await may(connection, "queue:orders.new"), "without coming again"
            assert not await may(connection, "queue:payments")
            rules = await admin.ask("access")
            assert rules["rules"] == [
                {
                    "destinations": "queue:orders.*",
                    "rights": ["send", "create"],
                    "users": ["bob"],
                    "roles": [],
                }
            ]
        assert UserStore.load(path).version == 3
        async with embedded(tmp_path) as server, bob(server) as connection:
            assert await may(connection, "queue:orders.new")

    play(story())


def test_who_loses_a_right_loses_what_it_has_by_it(tmp_path: Path) -> None:
    """A consumer that waits gets nothing more, and a producer that is there sends nothing more; others go on."""
    with_users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server, ann(server) as admin, bob(server) as connection:
            for rights in (["send", "create"], ["receive"]):
                await admin.ask("access.grant", **ORDERS, rights=rights)
            producer = await connection.producer("queue:orders.new")
            consumer = await connection.consumer("queue:orders.new")
            await producer.send_confirmed(b"one")
            assert await consumer.receive(timeout=30) is not None
            await admin.ask("access.revoke", **ORDERS)
            with pytest.raises(NotAllowed):
                await _send_on(producer)
            secret = await admin.producer("queue:orders.new")
            await secret.send_confirmed(b"secret")
            seen = []
            with suppress(HeliographError):
                while (message := await consumer.receive(timeout=1)) is not None:
                    seen.append(message.body)
            assert b"secret" not in seen
            assert not await may(connection, "queue:orders.new")

    play(story())


def test_what_is_ordered_is_in_the_log_with_who_ordered_it(tmp_path: Path) -> None:
    with_users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server, ann(server) as admin:
            log = await admin.consumer("topic:_LOG")
            await admin.ask("access.grant", **ORDERS, rights=["send"], by="somebody else")
            await admin.ask("access.revoke", **ORDERS, rights=["send"])
            seen: list[dict[str, Any]] = []
            while len(seen) < 2:
                message = await log.receive(timeout=30)
                assert message is not None
                assert isinstance(message.body, dict)
                if message.body["event"].startswith("access-"):
                    seen.append(message.body)
            assert [(event["event"], event["by"], event["version"]) for event in seen] == [
                ("access-granted", "ann", 3),
                ("access-revoked", "ann", 4),
            ]
            for event in seen:
                assert (event["destinations"], event["rights"], event["users"]) == (
                    "queue:orders.*",
                    ["send"],
                    ["bob"],
                )

    play(story())


@pytest.mark.parametrize(
    ("subject", "arguments", "code"),
    [
        ("access.revoke", ORDERS, "rule-unknown"),
        ("access.grant", {**ORDERS, "rights": ["sned"]}, "rule-invalid"),
        ("access.grant", {**ORDERS, "rights": []}, "rule-invalid"),
        ("access.grant", {"destinations": "queue:*", "rights": ["send"]}, "rule-invalid"),
        ("access.grant", {**ORDERS, "destinations": "orders", "rights": ["send"]}, "pattern-invalid"),
        ("access.grant", {**ORDERS, "users": ["no such: name"], "rights": ["send"]}, "user-invalid"),
        ("access.grant", {**ORDERS, "users": "bob", "rights": ["send"]}, "argument-invalid"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    tmp_path: Path, subject: str, arguments: dict[str, Any], code: str
) -> None:
    path = with_users(tmp_path)
    before = path.read_bytes()

    async def story() -> None:
        async with embedded(tmp_path) as server:
            async with ann(server) as admin:
                with pytest.raises(HeliographError, match=code):
                    await admin.ask(subject, **arguments)
            async with bob(server) as connection:
                for each in ("access", "access.grant", "access.revoke"):
                    with pytest.raises(NotAllowed):
                        await connection.ask(each, **ORDERS, rights=["send"])

    play(story())
    assert path.read_bytes() == before


def test_a_server_that_is_open_to_everyone_is_not_closed_by_a_rule(tmp_path: Path) -> None:
    async def story() -> None:
        async with embedded(tmp_path) as server, connect(url_of(server)) as guest:
            with pytest.raises(HeliographError, match="users-missing"):
                await guest.ask("access.grant", **ORDERS, rights=["send"])
        async with embedded(tmp_path) as server, connect(url_of(server)) as guest:
            assert guest.user == "guest"

    play(story())


async def _posted(server: EmbeddedServer, path: str, form: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    reader, writer = await asyncio.open_connection(*server.address)
    body = json.dumps(form).encode()
    login = base64.b64encode(b"ann:a").decode()
    writer.write(
        f"POST /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.address[1]}\r\nAuthorization: Basic {login}\r\n"
        f"X-Heliograph: test\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n".encode()
        + body
    )
    head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(rest)


def test_rights_by_http(tmp_path: Path) -> None:
    path = with_users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            form = {"destinations": "queue:orders.*", "roles": ["clerk"]}
            assert await _posted(server, "access/grant", {**form, "rights": ["send", "create"]}) == (
                200,
                {"version": 3, "rules": 1},
            )
            async with bob(server) as connection:
                assert await may(connection, "queue:orders.new")
                assert (await _posted(server, "access/revoke", form))[0] == 200
                await until(lambda: not UserStore.load(path).rules, "the rule is gone")
                assert not await may(connection, "queue:orders.other")
            status, body = await _posted(server, "access/revoke", form)
            assert (status, body["error"]["code"]) == (404, "rule-unknown")

    play(story())

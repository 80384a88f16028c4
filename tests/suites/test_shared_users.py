"""The users of a cluster (M14): each client manager has a copy, the newest is right, and a stale one is rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest

import heliograph
from heliograph import HeliographError
from heliograph.model.errors import NotAllowed, NotAuthenticated
from heliograph.nodes.users import UserStore, hash_password
from tests.servers import play, until
from tests.suites.cluster_in_process import CLIENTS, Cluster, url
from tests.suites.test_command_line import serving

pytestmark = pytest.mark.req("M14")


def users(base: Path, node: int) -> UserStore:
    return UserStore.load(base / f"n{node}" / "users.toml")


def copied(base: Path, *nodes: int) -> None:
    text = (base / "n1" / "users.toml").read_text()
    for node in nodes:
        path = base / f"n{node}" / "users.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


async def lets_in(cluster: Cluster, node: int, name: str) -> bool:
    try:
        async with heliograph.connect(
            url(cluster, node), user=name, password=f"{name}'s", reconnect_seconds=0
        ):
            return True
    except NotAuthenticated:
        return False


def test_a_stale_users_file_is_rewritten_from_the_cluster_and_kept_beside_it(tmp_path: Path) -> None:
    users(tmp_path, 1).add("ann", "ann's", ["admin"])
    copied(tmp_path, 5)
    stale = (tmp_path / "n5" / "users.toml").read_text()
    newer = users(tmp_path, 1)
    newer.add("bob", "bob's", ["clerk"])
    assert newer.version == 2

    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.add(1, CLIENTS)
        for node in (2, 3):
            await cluster.add(node)
        try:
            late = await cluster.add(5, CLIENTS)
            await until(lambda: users(tmp_path, 5).version == 2, "it has the cluster's")
            assert (tmp_path / "n5" / "users.toml.previous").read_text() == stale
            assert (tmp_path / "n5" / "users.toml").stat().st_mode & 0o077 == 0
            assert await lets_in(cluster, 5, "bob")
            events = [event["event"] for event in late._events.remembered]
            assert "users-acquired" in events
            # The journal of the message managers has it: the one that comes to lead tells the same.
            cluster.crash(cluster.leader())
            copied_again = users(tmp_path, 5)
            copied_again.remove("bob")
            assert copied_again.version == 3
            await cluster.nodes.pop(5).stop()
            await cluster.add(5, CLIENTS)
            await until(lambda: users(tmp_path, 1).version == 3, "what is newer on a node's disk wins")
            assert not await lets_in(cluster, 1, "bob")
            assert await lets_in(cluster, 1, "ann")
        finally:
            await cluster.stop()

    play(story())


def test_a_client_manager_without_users_gets_those_of_the_cluster_and_lets_nobody_else_in(
    tmp_path: Path,
) -> None:
    users(tmp_path, 1).add("ann", "ann's", ["admin"])

    async def story() -> None:
        cluster = Cluster(tmp_path)
        await cluster.add(1, CLIENTS)
        await cluster.add(2)
        try:
            await cluster.add(5, CLIENTS)
            await until((tmp_path / "n5" / "users.toml").exists, "it has them")
            assert await lets_in(cluster, 5, "ann")
            with pytest.raises(HeliographError, match="not-authenticated"):
                await heliograph.connect(url(cluster, 5), reconnect_seconds=0)
        finally:
            await cluster.stop()

    play(story())


@pytest.mark.req("M13")
def test_a_user_who_is_added_online_can_log_in_everywhere_whoever_leads(tmp_path: Path) -> None:
    users(tmp_path, 1).add("ann", "ann's", ["admin"])
    copied(tmp_path, 5)

    async def story() -> None:
        cluster = Cluster(tmp_path)
        for node in (1, 5):
            await cluster.add(node, CLIENTS)
        for node in (2, 3):
            await cluster.add(node)
        try:
            async with heliograph.connect(url(cluster), user="ann", password="ann's") as connection:
                added = {
                    "name": "bob",
                    "password": hash_password("bob's"),
                    "roles": ["clerk"],
                }
                assert (await connection.ask("user.add", **added))["version"] == 2
                with pytest.raises(HeliographError, match="user-exists"):
                    await connection.ask("user.add", **added)
                with pytest.raises(HeliographError, match="user-invalid"):
                    await connection.ask("user.add", **{**added, "name": "eve", "password": "plain"})
                names = [entry["name"] for entry in (await connection.ask("users"))["users"]]
                assert names == ["ann", "bob"]
                await until(lambda: users(tmp_path, 5).version == 2, "the others have it too")
                assert await lets_in(cluster, 5, "bob")
                cluster.crash(cluster.leader())
                asked = cluster.nodes[1]._administration
                await until(lambda: asked._leader_of_keeper() == "1.3", "another leads")
                await connection.ask("user.remove", name="bob")
                await until(lambda: users(tmp_path, 5).version == 3, "the others hear of it")
                assert not await lets_in(cluster, 5, "bob")
        finally:
            await cluster.stop()

    play(story())


@pytest.mark.req("M13", "X2")
def test_rights_that_change_online_change_everywhere_whoever_leads(tmp_path: Path) -> None:
    users(tmp_path, 1).add("ann", "ann's", ["admin"])
    users(tmp_path, 1).add("bob", "bob's", ["clerk"])
    copied(tmp_path, 5)
    rule = {"destinations": "queue:orders", "rights": ["receive", "create"], "roles": ["clerk"]}

    async def story() -> None:
        cluster = Cluster(tmp_path)
        for node in (1, 5):
            await cluster.add(node, CLIENTS)
        for node in (2, 3):
            await cluster.add(node)
        try:
            async with (
                heliograph.connect(url(cluster), user="ann", password="ann's") as ann,
                heliograph.connect(url(cluster, 5), user="bob", password="bob's") as bob,
            ):
                with pytest.raises(NotAllowed):
                    await bob.consumer("queue:orders")
                assert (await ann.ask("access.grant", **rule))["version"] == 3
                await until(lambda: users(tmp_path, 5).version == 3, "the others have it too")
                await bob.consumer("queue:orders")
                cluster.crash(cluster.leader())
                asked = cluster.nodes[1]._administration
                await until(lambda: asked._leader_of_keeper() == "1.3", "another leads")
                assert len((await ann.ask("access"))["rules"]) == 1
                await ann.ask("access.revoke", **rule)
                await until(lambda: users(tmp_path, 5).version == 4, "the others hear of it")
                with pytest.raises(NotAllowed):
                    await bob.consumer("queue:orders")
        finally:
            await cluster.stop()

    play(story())


@pytest.mark.slow
@pytest.mark.req("X2", "X4")
def test_rights_are_changed_at_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        rule = ("queue:orders.*", "send", "create", "--role", "clerk")
        assert b"[users-missing]" in server.run("admin", "access", "grant", *rule, code=2).stderr
        for name, role in ((b"ann", "admin"), (b"bob", "clerk")):
            server.run(
                "user", "add", name.decode(), "--role", role, "--online", "--password-stdin", input=b"lamp\n"
            )
            server.environment |= {"HELIO_USER": "ann", "HELIO_PASSWORD": "lamp"}
        granted = server.run("admin", "access", "grant", *rule)
        assert granted.stdout == b"granted, the users are now of version 3\n"
        listed = server.run("admin", "access", "list").stdout
        assert listed.split() == b"queue:orders.* send, create role clerk".split()
        bob = {"HELIO_USER": "bob"}
        ann = {"HELIO_USER": "ann"}
        server.environment |= bob
        server.run("send", "queue:orders.new", "x")
        assert b"[not-allowed]" in server.run("admin", "access", "list", code=2).stderr
        server.environment |= ann
        revoked = server.run("admin", "access", "revoke", "queue:orders.*", "send", "--role", "clerk")
        assert revoked.stdout == b"revoked, the users are now of version 4\n"
        assert (
            b"[rule-unknown]"
            in server.run(
                "admin", "access", "revoke", "queue:orders.*", "send", "--role", "clerk", code=2
            ).stderr
        )
        server.environment |= bob
        assert b"[not-allowed]" in server.run("send", "queue:orders.new", "x", code=2).stderr


@pytest.mark.slow
@pytest.mark.req("X4")
def test_users_are_changed_online_at_the_command_line(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        added = server.run(
            "user", "add", "ann", "--role", "admin", "--online", "--password-stdin", input=b"lamp\n"
        )
        assert added.stdout == b"user ann added, the users are now of version 1\n"
        assert b"[not-authenticated]" in server.run("admin", "server", code=2).stderr
        server.environment |= {"HELIO_USER": "ann", "HELIO_PASSWORD": "lamp"}
        assert server.run("user", "list", "--online").stdout.split() == [b"ann", b"admin"]
        server.run("user", "add", "bob", "--online", "--password-stdin", input=b"oil\n")
        removed = server.run("user", "remove", "bob", "--online")
        assert removed.stdout == b"user bob removed, the users are now of version 3\n"

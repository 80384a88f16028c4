"""Who may ask what, where there are users: the rights are those that hold everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.nodes.users import UserStore
from heliograph.sessions.access import Right, Rule
from tests.api.visitor import Visitor, at
from tests.interop.stage import Stage, wait_for

pytestmark = [pytest.mark.req("X3"), pytest.mark.req("X2")]
CHEAP = (16, 8, 1)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("guarded")
    with Stage(folder, "single", {"identity.users_file": str(users_in(folder))}) as stage:
        yield stage


def users_in(folder: Path) -> Path:
    """Ann administers, Bob may browse and send to some queues."""
    path = folder / "users.toml"
    rule = Rule(destinations="queue:bob.*", rights=[Right.SEND, Right.BROWSE, Right.CREATE], users=["bob"])
    store = UserStore(path, {}, [rule])
    store.add("ann", "ann's secret", ["admin"], cost=CHEAP)
    store.add("bob", "bob's secret", cost=CHEAP)
    return path


def test_nobody_learns_anything_without_a_name(guarded: Stage) -> None:
    stranger = Visitor(guarded.port)
    for path in ("overview", "destinations", "users", "log", "cluster", "me", "/metrics", "configuration"):
        status, said = stranger.ask("GET", path)
        assert (status, said["error"]["code"]) == (401, "not-authenticated"), path
    assert stranger.ask("GET", "/health")[0] == 200
    status, headers, _ = stranger.whole("GET", "me")
    assert "WWW-Authenticate" not in headers, "the console asks by itself"
    stranger.headers.clear()
    assert "Basic" in stranger.whole("GET", "me")[1]["WWW-Authenticate"]


def test_a_wrong_password_is_no_password(guarded: Stage) -> None:
    assert Visitor(guarded.port, user="ann", password="bob's secret").ask("GET", "me")[0] == 401
    ann = Visitor(guarded.port, user="ann", password="ann's secret")
    assert ann.get("me") == {"user": "ann"}
    ann.headers["Authorization"] = "Basic nonsense"
    assert ann.ask("GET", "me")[0] == 401


def test_bob_may_do_what_bob_may(guarded: Stage) -> None:
    bob = Visitor(guarded.port, user="bob", password="bob's secret")
    assert bob.post(at("queue:bob.own", "/messages"), {"body": "x"})["id"]
    assert len(bob.get(at("queue:bob.own", "/messages"))["messages"]) == 1
    for method, path, body in (
        ("GET", "overview", None),
        ("GET", "users", None),
        ("GET", "/metrics", None),
        ("GET", at("queue:bob.own"), None),
        ("POST", at("queue:bob.own", "/purge"), {}),
        ("POST", at("queue:others", "/messages"), {"body": "x"}),
        ("GET", at("queue:_DMQ", "/messages"), None),
        ("POST", at("queue:_DMQ", "/messages/redrive"), {}),
        ("POST", "users", {"name": "eve", "password": "x", "roles": ["admin"]}),
        ("GET", "events", None),
    ):
        status, said = bob.ask(method, path, body)
        assert status == 403, path
        assert said["error"]["code"] in ("not-allowed", "name-reserved"), path


def test_a_log_in_lasts_until_the_log_out(guarded: Stage) -> None:
    browser = Visitor(guarded.port)
    assert browser.ask("POST", "login", {"user": "ann", "password": "no"})[0] == 401
    browser = Visitor(guarded.port)
    status, headers, _ = browser.whole("POST", "login", {"user": "ann", "password": "ann's secret"})
    assert status == 200
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    browser.headers["Cookie"] = cookie.partition(";")[0]
    assert browser.get("me") == {"user": "ann"}
    assert browser.get("overview")["totals"]
    del browser.headers["X-Heliograph"]
    assert browser.ask("POST", at("queue:bob.own", "/purge"), {})[0] == 403, "a form of another page"
    browser.headers["X-Heliograph"] = "1"
    assert browser.ask("POST", "users", {}, Origin="http://evil.example")[0] == 403
    assert browser.ask("POST", "logout")[0] == 204
    assert browser.ask("GET", "me")[0] == 401


def test_two_people_on_one_connection_are_two(guarded: Stage) -> None:
    """As behind a proxy."""
    both = Visitor(guarded.port, user="ann", password="ann's secret")
    bob = Visitor(guarded.port, user="bob", password="bob's secret").headers
    ann = dict(both.headers)
    for _ in range(2):
        both.headers = dict(ann)
        assert both.get("me") == {"user": "ann"}
        assert both.ask("GET", "users")[0] == 200
        both.headers = dict(bob)
        assert both.get("me") == {"user": "bob"}
        assert both.ask("GET", "users")[0] == 403


def test_users_come_and_go(guarded: Stage) -> None:
    ann = Visitor(guarded.port, user="ann", password="ann's secret")
    ann.post("users", {"name": "carol", "password": "carol's secret", "roles": ["admin"]})
    carol = Visitor(guarded.port, user="carol", password="carol's secret")
    assert [user["name"] for user in carol.get("users")["users"]] == ["ann", "bob", "carol"]
    assert ann.ask("POST", "users", {"name": "carol", "password": "x"})[0] == 409
    assert ann.ask("DELETE", "users/carol")[0] == 200

    def is_out() -> bool:
        return Visitor(guarded.port, user="carol", password="carol's secret").ask("GET", "me")[0] == 401

    wait_for(is_out, "carol is nobody")

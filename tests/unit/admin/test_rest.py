"""The table of the API: what is described is what answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.admin.rest.about_server import log_in
from heliograph.admin.rest.forms import LogInForm
from heliograph.admin.rest.metrics import OF_ALL, OF_EACH, OF_PARTITIONS, OF_SERVER
from heliograph.admin.rest.openapi import document, reference
from heliograph.admin.rest.table import ROUTES, Table
from heliograph.frontends.http.requests import BadRequest, Head, Request
from heliograph.frontends.http.steps import Call, Proof

pytestmark = pytest.mark.req("X3")
ROOT = Path(__file__).parent.parent.parent.parent


def nobody(*_: object) -> Call:
    raise AssertionError("it was not asked")


def test_every_route_is_described_and_found() -> None:
    described: dict[str, Any] = document()["paths"]
    assert sum(len(methods) for methods in described.values()) == len(ROUTES)
    names = [operation["operationId"] for methods in described.values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "")
        found = Table().find(Request(Head(route.method, path, "HTTP/1.1", {})), nobody)
        assert found.is_public == route.is_public


def test_the_reference_has_the_same_table() -> None:
    assert reference() in (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")


@pytest.mark.req("X2")
@pytest.mark.parametrize("is_secure", [True, False])
def test_within_tls_a_log_in_never_leaves_in_the_clear(is_secure: bool) -> None:
    form = LogInForm(user="ann", password="secret")
    call = Call({}, None, form, "", "", is_secure, {}, 0.0)
    steps = log_in(call)
    assert next(steps) == Proof("ann", "secret")
    with pytest.raises(StopIteration) as end:
        steps.send("token")
    ((name, cookie),) = end.value.value.headers
    assert name == "Set-Cookie"
    assert cookie.startswith("heliograph=token; Path=/; HttpOnly; SameSite=Strict")
    assert cookie.endswith("; Secure") == is_secure


def test_the_dashboard_asks_for_what_there_is() -> None:
    dashboard = (ROOT / "deploy" / "grafana" / "heliograph.json").read_text(encoding="utf-8")
    asked = set(re.findall(r"heliograph_(\w+)", dashboard))
    there = {name for table in (OF_ALL, OF_EACH, OF_SERVER) for name, *_ in table} | set(OF_PARTITIONS)
    assert asked
    assert asked <= there, asked - there


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/v1/nothing", 404), ("PUT", "/api/v1/users", 405), ("GET", "/api/v1/destinations/", 404)],
)
def test_what_is_not_there_is_told_from_what_is_not_done_so(method: str, path: str, status: int) -> None:
    with pytest.raises(BadRequest) as refusal:
        Table().find(Request(Head(method, path, "HTTP/1.1", {})), nobody)
    assert refusal.value.status == status

"""Commands in messages: what is understood, for whom it is meant, and where the reply goes (M13)."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.admin.by_message import ByMessage, commands_of, reply
from heliograph.admin.subjects import argument, needed
from heliograph.model.block import BodyKind, pack, unpack
from heliograph.model.errors import ClientFault, NotAllowed
from heliograph.model.ids import IdIssuer, lane_of
from heliograph.model.message import Body, Head, encode_body, encode_head
from heliograph.sessions.access import Right

pytestmark = pytest.mark.req("M13")

LANE = lane_of(IdIssuer(site=1, node=1, started_ms=1).session(), 1)


def understood(*messages: tuple[Body, Head]) -> list[Any]:
    kinds, bodies, heads = [], [], []
    for body, head in messages:
        kind, raw = encode_body(body)
        head.kind = kind
        kinds.append(kind)
        bodies.append(raw)
        heads.append(encode_head(head))
    kind = kinds[0] if len(set(kinds)) == 1 else BodyKind.MIXED
    return commands_of(unpack(pack(bodies, lane=LANE, first=5, kind=kind, heads=heads)))


def test_maps_texts_and_bytes_are_commands() -> None:
    found = understood(
        ({"command": "server"}, Head(reply_to="queue:r", correlation_id="c")),
        ('{"command": "server", "arguments": {"a": 1}}', Head()),
        (b'{"command": "server"}', Head(reply_to="queue:r")),
    )
    assert [type(each) for each in found] == [ByMessage] * 3
    assert (found[0].reply_to, found[0].correlation_id) == ("queue:r", "c")
    assert found[1].arguments == {"a": 1}
    assert found[2].correlation_id.endswith("-7")  # without one, the reply names the message


def test_a_command_says_which_nodes_are_meant() -> None:
    meant: list[list[str] | None] = [[], ["1.1"], ["2.1", "2.2"], None]
    bodies: list[Body] = [{"command": "server", "nodes": nodes} for nodes in meant]
    assert [found.nodes for found in understood(*((body, Head()) for body in bodies))] == meant


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"command": 5},
        {"command": "a", "arguments": []},
        b"",
        "x",
        b"\xff",
        {"command": "a", "nodes": 1},
    ],
)
def test_what_is_no_command_is_said_to_whoever_asked(body: Body) -> None:
    ((reply_to, correlation, fault),) = understood((body, Head(reply_to="queue:r", correlation_id="c")))
    assert (reply_to, correlation, fault.code) == ("queue:r", "c", "command-malformed")


def test_a_reply_says_how_many_to_expect() -> None:
    assert reply("1.1", {"a": 1}) == {
        "expected": 1,
        "replies": [{"node": "1.1", "ok": True, "body": {"a": 1}}],
    }
    refused = reply("1.1", NotAllowed("no"))["replies"][0]
    assert refused == {"node": "1.1", "ok": False, "error": {"code": "not-allowed", "sentence": "no"}}


def test_which_right_is_needed_over_what() -> None:
    assert needed("server", {}) == [(Right.ADMIN, "")]
    assert needed("log", {}) == [(Right.RECEIVE, "topic:_LOG")]
    assert needed("destination.set", {"destination": "queue:a"}) == [(Right.ADMIN, "queue:a")]
    create = needed("destination.create", {"destination": "queue:a"})
    assert create == [(Right.ADMIN, "queue:a"), (Right.CREATE, "queue:a")]
    for subject, arguments, code in (
        ("x" * 1000, {}, "subject-unknown"),
        ("destination.set", {}, "argument-invalid"),
        ("destination.set", {"destination": 5}, "argument-invalid"),
        ("destination.set", {"destination": "a"}, "invalid-destination"),
        ("destination.set", {"destination": "queue:" + "x" * 300}, "name-too-long"),
    ):
        with pytest.raises(ClientFault) as fault:
            needed(subject, arguments)
        assert fault.value.code == code


def test_arguments_have_types() -> None:
    assert argument({"n": 5}, "n", int) == 5
    assert argument({}, "n", int, 3) == 3
    for arguments, kind in (
        ({"n": True}, int),
        ({"n": "5"}, int),
        ({"n": 1}, bool),
        ({}, str),
        ({"n": []}, dict),
    ):
        with pytest.raises(ClientFault, match="the argument n"):
            argument(arguments, "n", kind)

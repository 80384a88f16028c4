"""Answers about destinations: which there are, what is in them, who consumes, what is stuck."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from heliograph.admin.subjects import FIND
from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.steps import Call, Question, Steps
from heliograph.model.errors import ClientFault

# Destinations with stopped units that are looked into for one answer.
_LOOKED_INTO = 20


def find(call: Call) -> Steps:
    query = call.query
    arguments: dict[str, Any] = {
        "contains": query.contains,
        "kind": query.kind,
        "sort": query.sort,
        "own": query.own,
        "limit": query.limit,
    }
    if query.after:
        arguments["after"] = _place(query.after)
    body = yield Question(FIND, arguments)
    places = body["places"]
    is_last = len(places) < query.limit
    return Reply(
        200,
        {
            "destinations": body["destinations"],
            "total": body["total"],
            "next": "" if is_last or not places else _text(places[-1]),
        },
    )


def _text(place: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _place(text: str) -> list[Any]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.MsgspecError):
        found = None
    if not isinstance(found, list):
        raise ClientFault("`after` is the `next` of an earlier page", code="argument-invalid")
    return found


def create(call: Call) -> Steps:
    arguments = {"destination": call.body.destination, "policy": call.body.policy}
    return Reply(201, (yield Question("destination.create", arguments)))


def show(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.show", _named(call))))


def change(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.set", {**_named(call), "policy": call.body.policy})))


def delete(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.delete", {**_named(call), "force": call.query.force})))


def purge(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.purge", _named(call))))


def pause(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.pause", {**_named(call), **_what(call)})))


def resume(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.resume", {**_named(call), **_what(call)})))


def consumers(call: Call) -> Steps:
    arguments = {**_named(call), "after": call.query.after}
    return Reply(200, (yield Question("destination.consumers", arguments)))


def units(call: Call) -> Steps:
    return Reply(200, (yield Question("destination.units", {**_named(call), "after": call.query.after})))


def resume_unit(call: Call) -> Steps:
    arguments = {**_named(call), "unit": call.path["unit"], "give_up": call.body.give_up}
    return Reply(200, (yield Question("destination.resume_unit", arguments)))


def stuck_units(_call: Call) -> Steps:
    """Of the destinations that have some, those first that have the most."""
    found = yield Question(FIND, {"sort": "stopped_units", "limit": _LOOKED_INTO})
    entries: list[dict[str, Any]] = []
    for destination in found["destinations"]:
        if not destination["stopped_units"]:
            break
        name = destination["address"]
        page = yield Question("destination.units", {"destination": name})
        entries += [{"destination": name, **unit} for unit in page["units"] if unit["reason"] == "stopped"]
    return Reply(200, {"units": entries})


def _named(call: Call) -> dict[str, Any]:
    return {"destination": call.path["destination"]}


def _what(call: Call) -> dict[str, bool]:
    return {"production": call.body.production, "consumption": call.body.consumption}

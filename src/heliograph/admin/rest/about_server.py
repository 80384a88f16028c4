"""Answers about the server and the cluster as a whole, its users, sessions and settings."""

from __future__ import annotations

from typing import Any, Final

from heliograph.admin.subjects import (
    ACCESS,
    ACCESS_GRANT,
    ACCESS_REVOKE,
    ASK_NODES,
    NODE,
    OVERRIDE,
    REMOVE_NODE,
    TOTALS,
    USER_ADD,
    USER_REMOVE,
)
from heliograph.frontends.http.asking import NAME_OF_COOKIE
from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.steps import Call, Leave, Proof, Question, Steps

_GONE: Final = "Thu, 01 Jan 1970 00:00:00 GMT"


def log_in(call: Call) -> Steps:
    token = yield Proof(call.body.user, call.body.password)
    return Reply(200, {"user": call.body.user}, headers=[("Set-Cookie", _cookie(call, token))])


def log_out(call: Call) -> Steps:
    yield Leave(call.token)
    expired = _cookie(call, "") + f"; Expires={_GONE}"
    return Reply(204, headers=[("Set-Cookie", expired)])


def _cookie(call: Call, token: str) -> str:
    """No script reads it, no other site has it sent, and within TLS it never leaves in the clear."""
    secure = "; Secure" if call.is_secure else ""
    return f"{NAME_OF_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"


def me(call: Call) -> Steps:
    yield from ()
    return Reply(200, {"user": call.user})


def overview(_call: Call) -> Steps:
    totals = yield Question(TOTALS)
    server = yield Question("server")
    return Reply(200, {"totals": totals, "server": server})


def sessions(call: Call) -> Steps:
    return Reply(200, (yield Question("sessions", {"after": call.query.after})))


def transactions(call: Call) -> Steps:
    return Reply(200, (yield Question("transactions", {"after": call.query.after})))


def policies(_call: Call) -> Steps:
    return Reply(200, (yield Question("policies")))


def configuration(_call: Call) -> Steps:
    return Reply(200, (yield Question("configuration")))


def log(_call: Call) -> Steps:
    return Reply(200, (yield Question("log")))


# ---- users


def users(_call: Call) -> Steps:
    return Reply(200, (yield Question("users")))


def add_user(call: Call) -> Steps:
    form = call.body
    arguments = {
        "name": form.name,
        "plain": form.password,
        "roles": form.roles,
        "clearance": form.clearance,
    }
    return Reply(201, (yield Question(USER_ADD, arguments)))


def remove_user(call: Call) -> Steps:
    return Reply(200, (yield Question(USER_REMOVE, {"name": call.path["name"]})))


def rules(_call: Call) -> Steps:
    return Reply(200, (yield Question(ACCESS)))


def grant(call: Call) -> Steps:
    return Reply(200, (yield Question(ACCESS_GRANT, _rule_of(call))))


def revoke(call: Call) -> Steps:
    return Reply(200, (yield Question(ACCESS_REVOKE, _rule_of(call))))


def _rule_of(call: Call) -> dict[str, Any]:
    form = call.body
    return {
        "destinations": form.destinations,
        "rights": list(form.rights),
        "users": form.users,
        "roles": form.roles,
    }


# ---- the cluster

CLUSTER: Final = Question(ASK_NODES, {"command": NODE})


def cluster(_call: Call) -> Steps:
    return Reply(200, map_of((yield CLUSTER)))


def map_of(composite: dict[str, Any]) -> dict[str, Any]:
    """Who is here, what each sub-cluster is in, who leads, who is missing, what is held back."""
    nodes = [
        {"node": reply["node"], "ok": reply["ok"], **(reply["body"] if reply["ok"] else reply["error"])}
        for reply in composite["replies"]
    ]
    sub_clusters: dict[str, dict[str, Any]] = {}
    for node in nodes:
        for name, view in node.get("partitions", {}).items():
            if view.get("view", 0) >= sub_clusters.get(name, {}).get("view", -1):
                sub_clusters[name] = dict(view)
    for node in nodes:
        manager = node.get("message-manager", {})
        here = sub_clusters.get(manager.get("sub_cluster", ""))
        if here is not None and "held_back" in manager:
            here["held_back"], here["held_back_why"] = manager["held_back"], manager["held_back_why"]
    name = next((node["cluster"] for node in nodes if "cluster" in node), "")
    return {"cluster": name, "nodes": nodes, "sub_clusters": sub_clusters, "expected": composite["expected"]}


def override(_call: Call) -> Steps:
    return Reply(200, (yield Question(ASK_NODES, {"command": OVERRIDE})))


def remove_node(call: Call) -> Steps:
    arguments = {"command": REMOVE_NODE, "arguments": {"node": call.path["node"]}}
    return Reply(200, (yield Question(ASK_NODES, arguments)))

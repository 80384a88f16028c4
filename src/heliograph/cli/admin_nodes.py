"""`helio admin nodes`, `helio admin ask` and `helio cluster status`: nodes, each of which answers for itself."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server, confirm
from heliograph.cli.presentation import bytes_of, count_of, duration_of, harmless
from heliograph.cli.send import parse_properties
from heliograph.model.errors import ClientFault

_CLIENTS, _MESSAGES = "client-manager", "message-manager"
_ROLES = {(True, True): "both", (True, False): "client manager", (False, True): "message manager"}

Nodes = Annotated[
    list[str] | None,
    typer.Option("--node", metavar="NODE", help="A node that is to answer, as in 1.2; repeatable."),
]


@at_server
def nodes(server: Server) -> None:
    """List the nodes that are here, and how each of them is."""
    server.tell(server.ask("nodes.ask", command="node"), _show_nodes)


def _show_nodes(composite: dict[str, Any]) -> None:
    typer.echo(f"{'node':<8} {'role':<16} {'version':<10} {'up':<12} {'memory':<10} state")
    for reply in composite["replies"]:
        typer.echo(f"{harmless(reply['node']):<8} {_in_a_line(reply)}")


def _in_a_line(reply: dict[str, Any]) -> str:
    if not reply["ok"]:
        return f"– {harmless(reply['error']['sentence'])} [{reply['error']['code']}]"
    facts = reply["body"]
    up, memory = duration_of(int(facts["uptime_seconds"])), bytes_of(facts["rss_bytes"])
    return (
        f"{role_of(facts):<16} {facts['version']:<10} {up:<12} {memory:<10} {'; '.join(_states(facts, {}))}"
    )


def role_of(facts: dict[str, Any]) -> str:
    return _ROLES.get((_CLIENTS in facts, _MESSAGES in facts), "–")


def _states(facts: dict[str, Any], indexes: dict[str, int]) -> list[str]:
    """What it does, in words; with the indexes of those who lead also how far it is behind."""
    states = []
    if manager := facts.get(_MESSAGES):
        state = str(manager["standing"])
        leader_index = indexes.get(manager.get("sub_cluster", ""), 0)
        behind = leader_index - manager.get("stored", 0)
        if state == "leads" and leader_index:
            state += f", its log has {count_of(leader_index, 'record')}"
        elif leader_index:
            state += f", {count_of(behind, 'record')} behind" if behind > 0 else ", up to date"
        states.append(state + (", its disk is full" if manager["disk_full"] else ""))
    if clients := facts.get(_CLIENTS):
        connections, sessions = clients["connections"], clients["sessions"]
        states.append(f"{count_of(connections, 'connection')}, {count_of(sessions, 'session')}")
    return states


@at_server
def ask(
    server: Server,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What to ask, as in destination.show.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE…", help="Arguments; KEY:=JSON for what is no text."),
    ] = None,
    nodes: Nodes = None,
    everybody: Annotated[bool, typer.Option("--all", help="Every node is to answer.")] = False,
) -> None:
    """Ask the cluster, or nodes of it, each for itself. The answer is JSON."""
    if nodes and everybody:
        raise ClientFault("either --all nodes or certain ones with --node", code="usage")
    given = parse_properties(arguments or [])
    if nodes or everybody:
        body = server.ask("nodes.ask", command=subject, arguments=given, nodes=nodes or None)
    else:
        body = server.ask(subject, **given)
    server.tell(body, _show_composite if nodes or everybody else _show_body)


def _show_body(body: dict[str, Any]) -> None:
    typer.echo(json.dumps(body, indent=2, ensure_ascii=True))


def _show_composite(composite: dict[str, Any]) -> None:
    for reply in composite["replies"]:
        typer.secho(f"node {harmless(reply['node'])}", bold=True)
        if reply["ok"]:
            _show_body(reply["body"])
        else:
            typer.secho(f"{harmless(reply['error']['sentence'])} [{reply['error']['code']}]", fg="red")
    answered = sum(reply["ok"] for reply in composite["replies"])
    typer.echo(f"{answered} of {count_of(composite['expected'], 'node')} answered", err=True)


@at_server
def status(server: Server) -> None:
    """Say who is in the cluster, who leads, and how far the others are behind."""
    server.tell(server.ask("nodes.ask", command="node"), _show_status)


def _show_status(composite: dict[str, Any]) -> None:
    answered = {reply["node"]: reply["body"] for reply in composite["replies"] if reply["ok"]}
    first: dict[str, Any] = next(iter(answered.values()), {})
    if "cluster" not in first:
        typer.echo("this server stands alone: it is not a node of a cluster")
        return
    leaders = {name: node for facts in answered.values() for name, node in facts["leaders"].items()}
    told = ", ".join(_who_leads(name, leaders) for name in sorted(leaders))
    there = count_of(composite["expected"], "node")
    typer.secho(f"cluster {harmless(first['cluster'])}: {there}, {told}\n", bold=True)
    indexes = {
        facts[_MESSAGES]["sub_cluster"]: facts[_MESSAGES]["index"]
        for facts in answered.values()
        if _leads(facts)
    }
    for reply in composite["replies"]:
        _show_node(reply, indexes)
    for lacks in sorted({facts["lacks"] for facts in answered.values() if facts["lacks"]}):
        typer.secho(f"\nit waits for {harmless(lacks)}", fg="yellow")


@at_server
def remove(
    server: Server,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The message manager that is lost, as in 1.3.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Let the message managers go on without one that is lost for good, where they wait for it."""
    confirm(
        f"Whatever {node} alone has is lost with it, and if it still runs somewhere, both go on for themselves. Is"
        f" the disk of {node} gone for good?",
        yes,
    )
    given = {"node": node}
    composite = server.ask("nodes.ask", command="node.remove", arguments=given)
    server.tell(composite, lambda composite: _show_removed(node, composite))


def _show_removed(node: str, composite: dict[str, Any]) -> None:
    answered = {reply["node"]: reply["body"] for reply in composite["replies"] if reply["ok"]}
    waited = [name for name, body in answered.items() if body["waited"]]
    for error in (reply["error"] for reply in composite["replies"] if not reply["ok"]):
        raise ClientFault(error["sentence"], code=error["code"])
    if not waited:
        raise ClientFault(
            f"nobody waits for node {node}: `helio cluster status` says for whom", code="node-not-awaited"
        )
    typer.echo(f"{' and '.join(waited)} {'goes' if len(waited) == 1 else 'go'} on without {node}")
    typer.echo(
        "if it comes back, it takes over what the others have; `helio cluster status` shows who leads",
        err=True,
    )


def _leads(facts: dict[str, Any]) -> bool:
    return bool(facts.get(_MESSAGES, {}).get("standing") == "leads")


def _who_leads(sub_cluster: str, leaders: dict[str, str]) -> str:
    leads = f"{leaders[sub_cluster]} leads" if leaders[sub_cluster] else "nobody leads"
    return leads if len(leaders) == 1 else f"{leads} {harmless(sub_cluster)}"


def _show_node(reply: dict[str, Any], indexes: dict[str, int]) -> None:
    node = harmless(reply["node"])
    if not reply["ok"]:
        typer.secho(f"  {node:<8} {harmless(reply['error']['sentence'])}", fg="red")
        return
    facts = reply["body"]
    states = "; ".join(_states(facts, indexes))
    sub_cluster = facts.get(_MESSAGES, {}).get("sub_cluster", "")
    if sub_cluster and len(facts["leaders"]) + len(indexes) > 2:
        states = f"{harmless(sub_cluster)}: {states}"
    address = facts.get(_CLIENTS, {}).get("address", "")
    mark = typer.style("●", fg="green" if not facts["lacks"] else "yellow")
    typer.echo(f"  {mark} {node:<8} {role_of(facts):<16} {states}{'  ' + address if address else ''}")

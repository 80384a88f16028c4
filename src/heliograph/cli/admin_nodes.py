"""`helio admin nodes` and `helio admin ask`: nodes, each of which answers for itself."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import bytes_of, count_of, duration_of, harmless
from heliograph.cli.send import parse_properties
from heliograph.model.errors import ClientFault

CLIENTS, MESSAGES = "client-manager", "message-manager"
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
        f"{role_of(facts):<16} {facts['version']:<10} {up:<12} {memory:<10} {'; '.join(states_of(facts, {}))}"
    )


def role_of(facts: dict[str, Any]) -> str:
    return _ROLES.get((CLIENTS in facts, MESSAGES in facts), "–")


def states_of(facts: dict[str, Any], indexes: dict[str, int]) -> list[str]:
    """What it does, in words; with the indexes of those who lead also how far it is behind."""
    states = []
    if manager := facts.get(MESSAGES):
        state = str(manager["standing"])
        leader_index = indexes.get(manager.get("sub_cluster", ""), 0)
        behind = leader_index - manager.get("stored", 0)
        if state == "leads" and leader_index:
            state += f", its log has {count_of(leader_index, 'record')}"
        elif leader_index:
            state += f", {count_of(behind, 'record')} behind" if behind > 0 else ", up to date"
        states.append(state + (", its disk is full" if manager["disk_full"] else ""))
    if clients := facts.get(CLIENTS):
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

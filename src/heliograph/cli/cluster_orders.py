"""What is ordered of a cluster: `helio cluster remove` and `override` when nodes are gone for good (P10), and
`hand-over` when another message manager is to lead (M9)."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server, confirm
from heliograph.cli.cluster_status import Part
from heliograph.model.errors import ClientFault, Unavailable

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
# A view takes tenths of a second; a cluster that is changing, or a slow machine, more.
_HAND_OVER_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 0.25
_DECREED = (
    "{node} is to be taken out of a part that is restricted: nobody here can know whether another part goes on. If"
    " {node}, or any part with it, still runs, both hand out the same messages, and what it alone has is lost to this"
    " part."
)
_OVERRIDDEN = (
    "This part ({here}) is to hand out everything, as if {missing} were gone for good. If they still run, both parts"
    " hand out the same messages: they are processed twice, and no order holds between them."
)


@at_server
def remove(
    server: Server,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that is lost, as in 1.3.")],
    yes: Yes = False,
) -> None:
    """Take a node that is gone for good out of the cluster, so that nobody waits for it any more."""
    part = _part(server)
    if any(view.get("state") == "D" and node in view["missing"] for view in part.partitions.values()):
        _insist(_DECREED.format(node=node), f"Is the disk of {node} gone for good?", yes)
    else:
        confirm(f"{node} is taken out of the cluster. Is it gone for good?", yes)
    composite = server.ask("nodes.ask", command="node.remove", arguments={"node": node})
    server.tell(composite, lambda composite: _show_removed(node, composite))


def _part(server: Server) -> Part:
    """The cluster as this node sees it. Raises ClientFault if there is none."""
    part = Part((), server.ask("nodes.ask", command="node"))
    if not part.is_cluster:
        raise ClientFault("this server stands alone: it is not a node of a cluster", code="not-clustered")
    return part


def _show_removed(node: str, composite: dict[str, Any]) -> None:
    done = _done(composite)
    if not done:
        raise ClientFault(
            f"nobody waits for node {node}: `helio cluster status` says for whom", code="node-not-awaited"
        )
    if "decreed" in done.values():
        typer.echo(f"{' and '.join(done)} {'goes' if len(done) == 1 else 'go'} on without {node}")
    else:
        typer.echo(f"{' and '.join(done)} told the others that {node} is gone for good")
    typer.echo(
        "should it come back, it takes over what the others have; `helio cluster status` shows how things stand",
        err=True,
    )


@at_server
def override(server: Server, yes: Yes = False) -> None:
    """Let a part that is restricted hand out everything, when the other parts are gone for good."""
    part = _part(server)
    restricted = {name: view for name, view in part.partitions.items() if view.get("state") == "D"}
    if not restricted:
        raise ClientFault(
            "this part is not restricted: `helio cluster status` shows what it is", code="not-restricted"
        )
    missing = [node for view in restricted.values() for node in view["missing"]]
    words = _OVERRIDDEN.format(
        here=", ".join(part.answers), missing=", ".join(dict.fromkeys(missing)) or "the others"
    )
    _insist(words, "Are they gone for good?", yes)
    managers = [node for name in restricted for node in part.managers(name)]
    composite = server.ask("nodes.ask", command="partition.override", nodes=managers)
    server.tell(composite, _show_overridden)


def _show_overridden(composite: dict[str, Any]) -> None:
    done = _done(composite)
    typer.echo(
        f"{' and '.join(done)} {'hands' if len(done) == 1 else 'hand'} out everything from the next view on"
    )
    typer.echo(
        "`helio cluster remove NODE` for each node that will not come back makes the cluster whole", err=True
    )


@at_server
def hand_over(
    server: Server,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that leads, as in 1.3.")],
) -> None:
    """Let another message manager lead instead of this node, which stays as a backup. Clients wait for a moment."""
    asked = _answer_of(node, server.ask("nodes.ask", command="node.hand_over", nodes=[node]))
    sub_cluster = asked["sub_cluster"]
    leader = _successor(server, node, sub_cluster)
    body = {"sub_cluster": sub_cluster, "node": node, "leader": leader}
    server.tell(body, f"{leader} leads {sub_cluster}, {node} stays as a backup")


def _answer_of(node: str, composite: dict[str, Any]) -> dict[str, Any]:
    """Raises ClientFault with the refusal."""
    reply = composite["replies"][0]
    if not reply["ok"]:
        raise ClientFault(reply["error"]["sentence"], code=reply["error"]["code"])
    body: dict[str, Any] = reply["body"]
    return body


def _successor(server: Server, node: str, sub_cluster: str) -> str:
    """Who leads instead. Raises Unavailable."""
    deadline = time.monotonic() + _HAND_OVER_SECONDS
    while time.monotonic() < deadline:
        for name, manager in _part(server).managers(sub_cluster).items():
            if name != node and manager["standing"] == "leads":
                return name
        time.sleep(_LOOK_AGAIN_SECONDS)
    raise Unavailable(
        f"{node} still leads after {_HAND_OVER_SECONDS:g} s: `helio cluster status` shows whether another has all"
        " that it has; try again then",
        code="hand-over-failed",
    )


def _done(composite: dict[str, Any]) -> dict[str, str]:
    """Who did what. Raises ClientFault with the first refusal."""
    for error in (reply["error"] for reply in composite["replies"] if not reply["ok"]):
        raise ClientFault(error["sentence"], code=error["code"])
    return {reply["node"]: reply["body"]["done"] for reply in composite["replies"] if reply["body"]["done"]}


def _insist(warning: str, question: str, yes: bool) -> None:
    """What cannot be undone is never done by a script that did not say so. Raises ClientFault."""
    typer.secho(warning, fg="red", err=True)
    if not yes and not sys.stdin.isatty():
        raise ClientFault("nobody is here to be asked: add --yes if you are sure", code="not-confirmed")
    confirm(question, yes)

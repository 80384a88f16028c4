"""`helio admin access`: who may do what on a running server, and in a cluster on all its nodes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import harmless

app = typer.Typer(help="Access rules: rights of users and roles.", no_args_is_help=True)

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN",
        help="Destinations, as in 'queue:orders.*': * stands for any characters, ? for one.",
    ),
]
Users = Annotated[list[str] | None, typer.Option("--for", metavar="NAME", help="A user, repeatable.")]
Roles = Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="A role, repeatable.")]


@app.command("list")
@at_server
def list_rules(server: Server) -> None:
    """List the access rules."""
    server.tell(server.ask("access"), _show_rules)


def _show_rules(body: dict[str, Any]) -> None:
    width = max((len(rule["destinations"]) for rule in body["rules"]), default=0)
    for rule in body["rules"]:
        who = [*rule["users"], *(f"role {role}" for role in rule["roles"])]
        rights = ", ".join(rule["rights"])
        typer.echo(f"{harmless(rule['destinations']):<{width}}  {rights:<24}  {harmless(', '.join(who))}")
    if not body["rules"]:
        typer.echo("there are no rules: only administrators may do anything", err=True)
    typer.echo(f"version {body['version']}", err=True)


@app.command("grant")
@at_server
def grant(
    server: Server,
    pattern: Pattern,
    rights: Annotated[
        list[str], typer.Argument(metavar="RIGHT…", help="Some of send, receive, browse, create, admin.")
    ],
    users: Users = None,
    roles: Roles = None,
) -> None:
    """Give rights to users and roles. It holds at once."""
    answer = server.ask(
        "access.grant", destinations=pattern, rights=rights, users=users or [], roles=roles or []
    )
    server.tell(answer, f"granted, the users are now of version {answer['version']}")


@app.command("revoke")
@at_server
def revoke(
    server: Server,
    pattern: Pattern,
    rights: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RIGHT…]", help="Which of the rights; all unless told.", show_default=False),
    ] = None,
    users: Users = None,
    roles: Roles = None,
) -> None:
    """Take rights from users and roles that rules with this pattern give. Their connections end and come again."""
    answer = server.ask(
        "access.revoke", destinations=pattern, rights=rights or [], users=users or [], roles=roles or []
    )
    server.tell(answer, f"revoked, the users are now of version {answer['version']}")

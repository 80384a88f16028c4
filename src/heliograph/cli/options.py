"""Options that several commands share, each with one name, one default and one sentence."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Durability(enum.StrEnum):
    """When a producer hears that its message is safe."""

    FSYNC = "fsync"
    WRITE = "write"
    MEMORY = "memory"


class Role(enum.StrEnum):
    """What a node of a cluster is."""

    BOTH = "both"
    CLIENT_MANAGER = "client-manager"
    MESSAGE_MANAGER = "message-manager"


DEFAULT_URL = "helio://localhost:7700"

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="HELIO_URL", help="The server, as helio://HOST:PORT.", rich_help_panel="Server"
    ),
]
User = Annotated[
    str | None,
    typer.Option("--user", envvar="HELIO_USER", help="Log in as this user.", rich_help_panel="Server"),
]
Password = Annotated[
    str | None,
    typer.Option(
        "--password",
        envvar="HELIO_PASSWORD",
        help="The user's password; the environment variable keeps it out of the list of processes.",
        show_default=False,
        rich_help_panel="Server",
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        "--selector",
        "-s",
        metavar="SELECTOR",
        help="Only messages that this selects, as in \"colour = 'red' AND amount > 2\".",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]

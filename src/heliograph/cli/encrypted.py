"""`--tls`, `--ca`, `--cert`, `--key` and `--crl`: each command that has `--url` has these, and they become
part of it."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from typer.core import TyperCommand, TyperGroup

from heliograph.cli.outcome import explained
from heliograph.model.errors import ClientFault

_PANEL: Final = "Server"
_FILES: Final = ("ca", "cert", "key", "crl")


def _options(
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            envvar="HELIO_TLS",
            help="Connect with TLS, as with helios://. Naming a file does the same.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    ca: Annotated[
        str | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            envvar="HELIO_CA",
            help="Who may have signed the server's certificate (PEM), if not those whom this system trusts.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    cert: Annotated[
        str | None,
        typer.Option(
            "--cert",
            metavar="FILE",
            envvar="HELIO_CERT",
            help="This client's certificate (PEM).",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="FILE",
            envvar="HELIO_KEY",
            help="Its key (PEM), if it is not in the same file.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    crl: Annotated[
        str | None,
        typer.Option(
            "--crl",
            metavar="FILE",
            envvar="HELIO_CRL",
            help="Revoked certificates (PEM).",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> None:
    """What is added."""


def with_tls(url: str, tls: bool, files: dict[str, str]) -> str:
    """Raises ClientFault `usage`."""
    if not (tls or files):
        return url
    scheme, separator, rest = url.partition("://")
    if "?" in rest and files:
        raise ClientFault("files for TLS stand in the URL or in options, not in both", code="usage")
    query = "&".join(f"{name}={quote(path)}" for name, path in files.items())
    secure = "helios" if scheme == "helio" else scheme
    return f"{secure}{separator}{rest}" + (f"?{query}" if query else "")


def add_options(group: TyperGroup) -> None:
    """To all commands in it that talk to a server."""
    only = typer.Typer(add_completion=False)
    only.command()(_options)
    _add_to_group(group, [each for each in typer.main.get_command(only).params if each.name != "help"])


def _add_to_group(group: TyperGroup, options: list[Any]) -> None:
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            _add_to_group(command, options)
        elif isinstance(command, TyperCommand) and any(each.name == "url" for each in command.params):
            _add_to(command, options)


def _add_to(command: TyperCommand, options: list[Any]) -> None:
    taken = {each.name for each in command.params} & {each.name for each in options}
    assert not taken, f"{command.name} has its own {taken}"
    command.params.extend(options)
    callback = command.callback
    assert callback is not None

    @functools.wraps(callback)
    def call(**given: Any) -> Any:
        tls = given.pop("tls")
        files = {name: path for name in _FILES if (path := given.pop(name))}
        with explained():
            given["url"] = with_tls(given["url"], tls, files)
        return callback(**given)

    command.callback = call

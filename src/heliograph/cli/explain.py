"""`helio explain`: what an error's code means, and what to do about it."""

from __future__ import annotations

import difflib
import json
from typing import Annotated

import typer

from heliograph.cli import options
from heliograph.cli.advice import entries
from heliograph.cli.outcome import explained
from heliograph.model.errors import ClientFault


def explain(
    code: Annotated[
        str,
        typer.Argument(metavar="CODE", help="As it stands in brackets behind an error.", show_default="all"),
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Say what an error's code means, and who must do what about it; without a code, list all."""
    with explained(as_json=as_json):
        known = entries()
        wanted = code.strip("[]")
        if wanted and wanted not in known:
            near = difflib.get_close_matches(wanted, known, 3, 0.5)
            guess = f"did you mean {' or '.join(near)}?" if near else "`helio explain` lists all"
            raise ClientFault(f"no error has the code {wanted!r}; {guess}", code="usage")
        shown = {wanted: known[wanted]} if wanted else known
        if as_json:
            rows = [
                {"code": name, "happened": each.happened, "to_do": each.to_do} for name, each in shown.items()
            ]
            typer.echo(json.dumps(rows[0] if wanted else {"errors": rows}))
        elif wanted:
            typer.secho(wanted, bold=True)
            typer.echo(f"  {known[wanted].happened}\n  {known[wanted].to_do}")
        else:
            for name, each in shown.items():
                typer.echo(f"{name:<30} {each.happened}")

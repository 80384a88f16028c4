"""How a command ends: its exit code, and an error in words instead of a traceback.

0  done        1  the server had to stop        2  a mistake in the command or its input
3  no server answers, or it went away           130  interrupted from the keyboard
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from heliograph.model.errors import ConnectionLost, HeliographError

NODE_FAILED = 1
MISTAKE = 2
NO_SERVER = 3
INTERRUPTED = 130


class NoServer(ConnectionLost):
    """Nobody answered where a server was expected."""

    default_code = "no-server"


def exit_code(error: HeliographError) -> int:
    """The exit code that tells a script who must act."""
    return NO_SERVER if isinstance(error, ConnectionLost) else MISTAKE


def report(error: HeliographError, *, as_json: bool) -> None:
    """Say what went wrong and what to do now: to programs on standard output, to people on standard error."""
    from heliograph.cli.advice import next_step

    advice = next_step(error.code)
    if as_json:
        told = {"code": error.code, "sentence": error.sentence, "next": advice}
        typer.echo(json.dumps({"error": told}))
        return
    typer.secho("helio: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(f"{error.sentence} [{error.code}]", err=True)
    if advice and "`helio " not in error.sentence:  # which says it already
        typer.secho(f"       {advice}", dim=True, err=True)


@contextmanager
def explained(*, as_json: bool = False) -> Iterator[None]:
    """Everything a command does happens in here: errors come out as words and exit codes."""
    try:
        yield
    except HeliographError as error:
        report(error, as_json=as_json)
        raise typer.Exit(exit_code(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has gone, as in `helio receive … | head`. Without this, Python would
        # complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None

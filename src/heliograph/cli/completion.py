"""`helio completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Shell(enum.StrEnum):
    """Those that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell, typer.Argument(help="Whose language it is to be written in.", show_default=False)
    ],
) -> None:
    """Print a script that completes commands and options in a shell.

    bash: source <(helio completion bash). zsh: the same. fish: helio completion fish | source.
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="helio", complete_var="_HELIO_COMPLETE", shell=shell.value))

"""A shell completes what `helio` knows; and all that it knows can be read by a program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from heliograph.cli.command_reference import commands, rendered
from heliograph.cli.main import app

pytestmark = pytest.mark.req("X4")


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words, with our script sourced."""
    tool = folder / "helio"
    program = "import sys; sys.argv[0] = 'helio'; from heliograph.cli.main import main; main()"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n', "utf-8")
    tool.chmod(0o755)
    script = (
        "source <(helio completion bash)\n"
        f"COMP_WORDS=({' '.join(word or chr(39) * 2 for word in words)})\n"
        f"COMP_CWORD={len(words) - 1}\n"
        "_helio_completion helio\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return shown.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("helio", "rec"), ["receive"]),
        (("helio", "admin", "destination", "p"), ["purge", "pause"]),
        (("helio", "serve", "--dur"), ["--durability"]),
    ],
)
def test_bash_completes_commands_and_options(
    tmp_path: Path, words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(tmp_path, *words) == offered


@pytest.mark.parametrize(
    ("shell", "word"), [("bash", "COMPREPLY"), ("zsh", "compdef"), ("fish", "complete ")]
)
def test_there_is_a_script_for_each_shell(shell: str, word: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert word in result.stdout
    assert "_HELIO_COMPLETE" in result.stdout


def test_every_command_can_answer_in_json() -> None:
    """But for one whose answer is a script."""
    silent = [
        name
        for name, command in commands(typer.main.get_command(app), "helio")
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert silent == ["helio completion"]


def test_the_page_of_all_commands_has_them_all() -> None:
    page = rendered()
    for name, command in commands(typer.main.get_command(app), "helio"):
        section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert command.help.split(".")[0].split("\n")[0][:40] in section, name
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert f"`{max(parameter.opts, key=len)}`" in section, (name, parameter.name)

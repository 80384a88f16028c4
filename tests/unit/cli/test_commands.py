"""What the command line says before any server is involved."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from heliograph import __version__
from heliograph.cli.connecting import ServerAddress
from heliograph.cli.main import app, command
from heliograph.cli.outcome import explained
from heliograph.model.errors import ConnectionLost, InvalidName
from heliograph.nodes.configuration import Configuration, load
from heliograph.nodes.configuration_text import render_defaults

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
NOWHERE = "helio://ann:secret@127.0.0.1:1"

pytestmark = pytest.mark.req("X4")


@pytest.fixture
def run() -> CliRunner:
    return CliRunner(env={"HELIO_URL": None, "HELIO_USER": None, "HELIO_PASSWORD": None, "NO_COLOR": "1"})


def test_it_knows_its_version(run: CliRunner) -> None:
    assert run.invoke(app, ["--version"]).output == f"heliograph {__version__}\n"


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_lists_the_commands_and_is_quick() -> None:
    command = [sys.executable, "-m", "heliograph.cli.main", "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    took = []
    for _ in range(3):
        began = _seconds_of_children()
        shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        took.append(_seconds_of_children() - began)
    names = ("serve", "send", "receive", "browse", "top", "log", "dmq", "admin", "user")
    assert all(name in shown.stdout for name in names)
    # 300 ms is the aim, of its own time: how long it waits for a loaded machine is not its doing.
    assert min(took) < 0.6


def test_heavy_modules_wait_until_a_command_needs_them() -> None:
    program = (
        "import sys, heliograph.cli.main\n"
        "print([name for name in ('uvloop', 'rich', 'msgspec', 're2', 'heliograph.nodes')"
        " if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_the_printed_configuration_is_the_default_one(run: CliRunner, tmp_path: Path) -> None:
    printed = run.invoke(app, ["serve", "--print-config"]).stdout
    assert printed == render_defaults()
    path = tmp_path / "heliograph.toml"
    path.write_text(printed, encoding="utf-8")
    assert load(path) == Configuration()


def test_a_wrong_setting_ends_the_start_in_words(run: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "heliograph.toml"
    path.write_text("[server]\nprt = 1\n", encoding="utf-8")
    result = run.invoke(app, ["serve", "--config", str(path)])
    assert result.exit_code == 2
    assert (
        "there is no setting server.prt; did you mean server.port? [configuration-invalid]" in result.stderr
    )
    result = run.invoke(app, ["serve", "--port", "70000"])
    assert "server.port must be a whole number from 0 to 65535, not 70000" in result.stderr


@pytest.mark.parametrize("role", ["both", "client-manager", "message-manager"])
def test_a_node_that_was_given_a_role_does_not_come_up_alone(
    run: CliRunner, tmp_path: Path, role: str
) -> None:
    result = run.invoke(app, ["serve", "--data", str(tmp_path / "data"), "--role", role])
    assert result.exit_code == 2
    assert "only a node of a cluster has a role: name the cluster, with --cluster NAME" in result.stderr
    path = tmp_path / "heliograph.toml"
    path.write_text('[cluster]\nrole = "message-manager"\n', encoding="utf-8")
    result = run.invoke(app, ["serve", "--data", str(tmp_path / "data"), "--config", str(path)])
    assert "[configuration-invalid]" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["a b", "x" * 41, "Käse", "a/b"])
def test_a_cluster_has_a_name_that_fits_the_bus(run: CliRunner, name: str) -> None:
    result = run.invoke(app, ["serve", "--cluster", name])
    assert result.exit_code == 2
    assert "cluster.name must be a name of at most 40 letters" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["send", "queue:a"], "there is nothing to send: give a BODY"),
        (["send", "queue:a", "b", "--size", "3"], "give a BODY or --size, not both"),
        (["send", "queue:a", "-", "--count", "3"], "with - each line is sent once"),
        (
            ["send", "queue:a", "b", "-p", "colour"],
            "a property is written KEY=TEXT or KEY:=VALUE, not 'colour'",
        ),
        (["send", "queue:a", "b", "-p", "n:=x"], "the value of 'n' is not a number"),
        (["send", "queue:a", "b", "--file", "f"], "--file sends one message"),
        (["receive", "queue:a", "--json", "--bodies-only"], "give --bodies-only, or --json and --output"),
        (["receive", "queue:a", "-o", "a-file", "--follow"], "a file takes one message"),
        (["bench", "run", "-w", "latency", "--size", "4"], "--size must be 8 or more"),
        (["bench", "run", "--url", NOWHERE, "--data", "x"], "leave out --url"),
        (["user", "add", "ann"], "use --password-stdin"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_and_ends_with_2(
    run: CliRunner, arguments: list[str], sentence: str
) -> None:
    result = run.invoke(app, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_errors_are_objects_for_programs(run: CliRunner) -> None:
    result = run.invoke(app, ["send", "queue:a", "--json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("error", "code"), [(InvalidName("no"), 2), (ConnectionLost("gone"), 3), (KeyboardInterrupt(), 130)]
)
def test_the_exit_code_says_who_must_act(error: BaseException, code: int) -> None:
    with pytest.raises(typer.Exit) as ended, explained():
        raise error
    assert ended.value.exit_code == code


@pytest.mark.req("X2")
def test_a_password_is_never_shown() -> None:
    assert ServerAddress(url=NOWHERE).shown == "helio://127.0.0.1:1"
    assert ServerAddress(url="helio://a:b@c:d@h:1,i:2").shown == "helio://h:1,i:2"


@pytest.mark.req("X2")
def test_users_are_added_listed_and_removed(run: CliRunner, tmp_path: Path) -> None:
    at = ["--data", str(tmp_path)]
    added = run.invoke(
        app, ["user", "add", "ann", "--role", "admin", "--password-stdin", *at], input="secret\n"
    )
    assert added.exit_code == 0
    assert f"user ann added to {tmp_path}/users.toml with role admin" in added.stdout
    assert "asks everybody for name and password" in added.stderr
    assert "secret" not in (tmp_path / "users.toml").read_text(encoding="utf-8")
    second = run.invoke(app, ["user", "add", "bob", "--password-stdin", *at], input="hidden\n")
    assert "bob may do nothing until an [[access]] rule" in second.stderr
    listed = run.invoke(app, ["user", "list", "--json", *at])
    assert json.loads(listed.stdout) == {
        "users": [{"name": "ann", "roles": ["admin"]}, {"name": "bob", "roles": []}]
    }
    assert run.invoke(app, ["user", "remove", "ann", *at]).exit_code == 0
    assert run.invoke(app, ["user", "list", *at]).stdout.split() == ["bob", "–"]
    again = run.invoke(app, ["user", "remove", "ann", *at])
    assert (again.exit_code, "there is no user 'ann'" in again.stderr) == (2, True)


def test_every_command_and_option_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    group = command()
    missing = []
    for name, found in sorted(_commands(group, "helio")):
        if f"## {name}\n" not in text:
            missing.append(name)
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0] + text.partition("## Options of")[2]
        for parameter in found.params:
            option = max(parameter.opts, key=len)
            hidden = getattr(parameter, "hidden", False) or option == "--help"
            if option.startswith("--") and not hidden and f"`{option}" not in section:
                missing.append(f"{name} {option}")
    assert missing == []


def _commands(group: Any, name: str) -> list[tuple[str, Any]]:
    found = []
    for sub_name, each in group.commands.items():
        full = f"{name} {sub_name}"
        found += _commands(each, full) if hasattr(each, "commands") else [(full, each)]
    return found

"""What an error says next: from the reference that people read, the same in the terminal."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heliograph.cli.advice import entries, next_step
from heliograph.cli.main import app
from heliograph.cli.outcome import NoServer, report
from heliograph.model.errors import ClientFault
from tests.unit.model.test_errors import codes_of_the_reference

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.req("X4")


@pytest.fixture
def run() -> CliRunner:
    return CliRunner(env={"NO_COLOR": "1"})


def test_every_code_of_the_reference_has_what_happened_and_what_to_do() -> None:
    assert list(entries()) == codes_of_the_reference()
    for code, entry in entries().items():
        assert entry.happened, code
        assert entry.to_do, code
        assert "](" not in entry.happened + entry.to_do, "links are for pages"


def test_what_an_operator_has_to_do_stands_in_the_guide_of_operation() -> None:
    """By its code. What only a client's author or an application can mend is in the reference."""
    guide = (ROOT / "docs" / "guides" / "operation.md").read_text("utf-8")
    who = re.compile("operator|administrator", re.IGNORECASE)
    for_operators = [code for code, each in entries().items() if who.search(each.to_do)]
    assert len(for_operators) > 20
    assert [code for code in for_operators if f"`{code}`" not in guide] == []


def test_an_error_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    fault = ClientFault("there is no queue:a", code="destination-unknown")
    report(fault, as_json=False)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("helio: there is no queue:a [destination-unknown]\n")
    assert "`helio admin destination list` shows those that there are" in said.err
    report(fault, as_json=True)
    told = json.loads(capsys.readouterr().out)["error"]
    assert (told["code"], told["sentence"]) == ("destination-unknown", "there is no queue:a")
    assert told["next"] == next_step("destination-unknown")


def test_what_the_sentence_says_is_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    report(NoServer("no server answers: start one with `helio serve`"), as_json=False)
    report(ClientFault("redelivery_limit is a whole number", code="policy-invalid"), as_json=False)
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert next_step("a-code-of-a-newer-server") == ""


def test_a_code_is_explained(run: CliRunner) -> None:
    shown = run.invoke(app, ["explain", "[journal-locked]"])
    assert shown.output.splitlines()[0] == "journal-locked"
    assert "Another server uses the journal." in shown.output
    assert (
        json.loads(run.invoke(app, ["explain", "journal-locked", "--json"]).stdout)["code"]
        == "journal-locked"
    )
    everything = json.loads(run.invoke(app, ["explain", "--json"]).stdout)["errors"]
    assert [each["code"] for each in everything] == codes_of_the_reference()
    assert "no-server" in run.invoke(app, ["explain"]).output
    wrong = run.invoke(app, ["explain", "journal-loked"])
    assert wrong.exit_code == 2
    assert "did you mean journal-locked" in wrong.output
    assert "`helio explain` lists all" in run.invoke(app, ["explain", "xyzzy"]).output


def test_a_data_folder_that_cannot_be_made_ends_the_start_in_words(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("", "utf-8")
    result = run.invoke(app, ["serve", "--port", "0", "--data", str(tmp_path / "a-file" / "data")])
    assert result.exit_code == 2
    assert "cannot be used: Not a directory [data-folder-unusable]" in result.stderr
    assert "name another with `--data`" in result.stderr

"""Processor time of the fuzzer counts for the code that had it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import sources
from fuzz.tally import Tally, row, table
from fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
SASL, QUEUE, DESK, OWN = (
    "src/heliograph/security/scram.py",
    "src/heliograph/destinations/queue.py",
    "fuzz/desk.py",
    "fuzz/targets.py",
)


@pytest.fixture
def change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Changes a file of a copy of all sources, which is looked at from then on."""
    for room in ("src", "fuzz"):
        ignored = shutil.ignore_patterns("__pycache__", "corpus", "console")
        shutil.copytree(ROOT / room, tmp_path / room, ignore=ignored)
    roots = {"heliograph": tmp_path / "src" / "heliograph", "fuzz": tmp_path / "fuzz"}
    monkeypatch.setattr(sources, "_ROOTS", roots)
    monkeypatch.setattr(sources, "TARGETS", tmp_path / "fuzz" / "targets.py")

    def changed(path: str, more: str) -> None:
        with (tmp_path / path).open("a") as file:
            file.write(more)
        _look_again()

    return changed


def _look_again() -> None:
    sources._tree.cache_clear()
    sources._dumped.cache_clear()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    _look_again()


def test_every_target_reaches_what_it_tries() -> None:
    for name in TARGETS:
        modules = sources.modules_of(name)
        assert modules
        assert not [each for each in modules if not each.startswith(sources.ROOMS)]
    assert "heliograph.security.scram" in sources.modules_of("sasl")
    assert "heliograph.frontends.mqtt.reading" in sources.modules_of("mqtt")
    assert "heliograph.frontends.stomp.conversation" not in sources.modules_of("mqtt")
    assert {"heliograph.journal.recovery", "heliograph.journal.records"} <= set(sources.modules_of("journal"))


def test_what_a_target_tries_is_another_when_its_code_is(change: Callable[[str, str], None]) -> None:
    names = ("journal", "sasl", "selectors", "native")

    def differ() -> set[str]:
        return {name for name in names if sources.digest(name) != before[name]}

    before = {name: sources.digest(name) for name in names}
    change(SASL, "# a remark\n")
    change(QUEUE, "ANOTHER = 1\n")
    change(OWN, "\n_SEGMENT = 2\n")
    assert differ() == {"journal"}
    change(SASL, "ANOTHER = 1\n")
    assert differ() == {"journal", "sasl"}
    change(DESK, "ANOTHER = 1\n")
    assert differ() == {"journal", "sasl", "native"}


def test_minutes_of_other_code_do_not_count(tmp_path: Path) -> None:
    path, code = tmp_path / "kept" / "seconds.json", {"stomp": "one", "mqtt": "one"}
    for _ in range(2):
        tally = Tally(path, code.__getitem__)
        tally.add("stomp", 60.0)
        tally.add("mqtt", 30.0)
    assert (tally.seconds("stomp"), tally.seconds("mqtt")) == (120.0, 60.0)
    code["stomp"] = "other"
    assert tally.seconds("stomp") == 120.0, "what was changed during a run is tried by the next"
    tally = Tally(path, code.__getitem__)
    assert (tally.seconds("stomp"), tally.seconds("mqtt")) == (0.0, 60.0)
    tally.add("stomp", 5.0)
    assert (tally.seconds("stomp"), tally.seconds("mqtt")) == (5.0, 60.0)


def test_a_tally_that_does_not_say_for_which_code_counts_for_none(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    path.write_text(json.dumps({"stomp": 5000.0}))
    tally = Tally(path, lambda _: "code")
    assert tally.seconds("stomp") == 0.0
    tally.add("stomp", 1.0)
    assert tally.seconds("stomp") == 1.0


def test_what_is_told_at_the_end(tmp_path: Path) -> None:
    kept = tmp_path / "stomp"
    kept.mkdir()
    for name in ("0a1b", "2c3d", "finding-crash-4e5f"):
        (kept / name).write_bytes(b"x")
    tally = Tally(tmp_path / "seconds.json", lambda _: "code")
    tally.add("stomp", 90.0)
    told = row("stomp", tally, kept, failed=True)
    assert (told.processor_minutes, told.inputs_kept, told.findings) == (1.5, 2, 1)
    never = row("mqtt", tally, tmp_path / "mqtt", failed=False)
    assert (never.processor_minutes, never.inputs_kept, never.findings) == (0.0, 0, 0)
    head, stomp, mqtt = table([told, never]).splitlines()
    assert head.split() == ["target", "processor", "minutes", "inputs", "kept", "findings"]
    assert stomp.split() == ["stomp", "1.5", "2", "1", "!"]
    assert mqtt.split() == ["mqtt", "0.0", "0", "0"]

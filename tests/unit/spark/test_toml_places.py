"""Where keys of a file in TOML stand, however it is written (D5)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.spark.pipelines.toml_places import Path, lines_of

pytestmark = pytest.mark.req("D5")

TEXT = r"""# a comment = 1
top = 1 # [no.table]
"quo.ted" . 'in' = "a # b = ]\" {"
[table."x y"] # c
dates = 2026-01-01T00:00:00Z
many = [ 1, # one
  [2, '''
[[not]]
b = 1'''],
  { z = 3, w.v = '''
a = 'quoted''''' },
]
last = ""
[[rules]]
[rules.events]
a = 'b'
[[rules]]
[[rules.parts]]
[[rules.parts]]
p = true"""
EXPECTED: dict[Path, int] = {
    ("top",): 2,
    ("quo.ted", "in"): 3,
    ("table", "x y"): 4,
    ("table", "x y", "dates"): 5,
    ("table", "x y", "many"): 6,
    ("table", "x y", "many", 1, 1): 7,
    ("table", "x y", "many", 2, "z"): 10,
    ("table", "x y", "many", 2, "w", "v"): 10,
    ("table", "x y", "last"): 13,
    ("rules", 0): 14,
    ("rules", 0, "events", "a"): 16,
    ("rules", 1): 17,
    ("rules", 1, "parts", 0): 18,
    ("rules", 1, "parts", 1, "p"): 20,
}


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Of everything that tomllib found."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_each_key_has_its_line(ending: str) -> None:
    text = TEXT.replace("\n", ending)
    found = lines_of(text)
    assert {path: found[path] for path in EXPECTED} == EXPECTED
    assert set(found) == set(paths(tomllib.loads(text)))


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "a = ''", "a = []", "a = {}", "a = [ # b\n]"])
def test_short_files_end(text: str) -> None:
    assert all(line == 1 for line in lines_of(text).values())

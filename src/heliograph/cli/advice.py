"""What there is to do about an error, by its code: the rows of the reference of errors, which comes with the package.

Only a command that failed, or was asked, reads them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

# In the repository a link to where people read it, in a package that was built a copy of that.
_REFERENCE = Path(__file__).with_name("errors.md")
_ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A row: what happened, and who must act, and how."""

    happened: str
    to_do: str


@functools.cache
def entries() -> dict[str, Entry]:
    """All rows by code; none where whoever packed it left the reference out."""
    text = _REFERENCE.read_text("utf-8") if _REFERENCE.is_file() else ""
    return {code: Entry(_plain(happened), _plain(to_do)) for code, happened, to_do in _ROW.findall(text)}


def next_step(code: str) -> str:
    """What to do now. Nothing where only the sentence of the error itself knows, or nobody has to do anything."""
    entry = entries().get(code)
    if entry is None or "sentence" in entry.to_do or entry.to_do.startswith("Nobody."):
        return ""
    return entry.to_do


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text)

"""The pages of the documentation, and what of them can be executed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\s*$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Something between fences. `line`: where it begins; `title`: the name of the file that it is."""

    language: str
    title: str
    line: int
    text: str

    @property
    def is_program(self) -> bool:
        """Python that stands alone; otherwise it is a part of something."""
        return self.language == "python" and (
            "asyncio.run(" in self.text
            or ("import heliograph" in self.text and "connect_blocking(" in self.text)
        )


@dataclass(frozen=True, kw_only=True)
class DocumentPage:
    """A file in Markdown."""

    name: str  # from the root of the repository
    blocks: tuple[Block, ...]

    def of(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]


def all_pages() -> list[DocumentPage]:
    """But for decisions, which tell what was, and the list of changes."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read(path) for path in paths if "decisions" not in path.parts]


def read(path: Path) -> DocumentPage:
    blocks: list[Block] = []
    begun: tuple[str, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if begun is None:
            if (match := _FENCE.match(line)) is not None:
                begun, lines = (match[1], match[2] or "", number), []
        elif line.startswith("```"):
            language, title, first = begun
            blocks.append(Block(language=language, title=title, line=first, text="\n".join(lines) + "\n"))
            begun = None
        else:
            lines.append(line)
    assert begun is None, f"{path} has a fence that is not closed"
    return DocumentPage(name=str(path.relative_to(ROOT)), blocks=tuple(blocks))

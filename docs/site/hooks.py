"""What the documentation site has beyond the pages in docs/: pages made from the code, and those at the root of the
repository.

Links that lead out of docs/ into the repository become plain names: the site stands alone. If what they name is not
there, that is a warning, and warnings are errors.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.heliograph")

ROOT = Path(__file__).resolve().parents[2]
AT_THE_ROOT = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
_RESULTS = re.compile(r"<!-- results: (\S+) -->")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made from the code."""
    from mkdocs.structure.files import File, InclusionLevel

    sys.path.insert(0, str(ROOT / "src"))
    from heliograph.cli.command_reference import rendered

    made = {"reference/commands.md": rendered(), "decisions/index.md": _list_of_decisions()}
    made |= {name: (ROOT / name).read_text("utf-8") for name in AT_THE_ROOT}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for file in files.documentation_pages():
        if re.match(r"decisions/0", file.src_uri):  # listed on a page of their own
            file.inclusion = InclusionLevel.NOT_IN_NAV
        elif file.src_uri not in str(config.nav) and config.nav is not None:
            config.nav.append(file.src_uri)  # nobody has thought of a place for it yet
    return files


def _list_of_decisions() -> str:
    lines = [
        "# Decisions",
        "",
        "Choices that everything else leans on, with their reasons and measurements.",
        "",
    ]
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        title = path.read_text("utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def _results(match: re.Match[str]) -> str:
    """A file of benchmarks/results with its date, one level deeper, without its title and picture."""
    path = ROOT / "benchmarks" / "results" / match[1]
    measured = datetime.fromisoformat(json.loads(path.with_suffix(".json").read_text("utf-8"))["measured_at"])
    lines = [line for line in path.read_text("utf-8").splitlines()[1:] if not line.startswith("![")]
    deeper = "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)
    return f"Measured on {measured.day} {measured:%B %Y}.\n{deeper}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    markdown = _RESULTS.sub(_results, markdown)

    def settled(match: re.Match[str]) -> str:
        words, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group()
        path, _, anchor = target.partition("#")
        source = page.file.src_uri
        origin = ROOT if source in AT_THE_ROOT else ROOT / "docs" / Path(source).parent
        place = Path(os.path.normpath(origin / path))
        inside = _name_in_the_site(place)
        if inside is not None:
            there = os.path.relpath(inside, Path(source).parent or ".")
            return f"[{words}]({there}{'#' + anchor if anchor else ''})"
        if not place.exists():
            log.warning("%s names %s, which is not there", source, target)
        name = place.relative_to(ROOT) if place.is_relative_to(ROOT) else place.name
        return words if f"`{name}`" in words or str(name) in words else f"{words} (`{name}`)"

    return _LINK.sub(settled, markdown)


def _name_in_the_site(place: Path) -> str | None:
    if place.parent == ROOT and place.name in AT_THE_ROOT:
        return place.name
    if place == ROOT / "README.md":
        return "index.md"
    return str(place.relative_to(ROOT / "docs")) if place.is_relative_to(ROOT / "docs") else None

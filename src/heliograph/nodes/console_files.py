"""Reads the console's files, which are part of the package, once for all who ask."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final

from heliograph.admin.rest.answering import Page

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "webmanifest": "application/manifest+json",
}


@cache
def console_files() -> Mapping[str, Page]:
    """By name."""
    folder = resources.files("heliograph.admin") / "console"
    pages: dict[str, Page] = {}
    for file in folder.iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            pages[file.name] = Page(content, kind, hashlib.sha256(content).hexdigest()[:16])
    return pages

"""Who answers a request: the table of the API, its description, whether the server is ready, the console's pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from heliograph.admin.rest.metrics import ready
from heliograph.admin.rest.openapi import document
from heliograph.admin.rest.table import ROOT, Table
from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.requests import BadRequest, Request
from heliograph.frontends.http.steps import Call, Found, Steps

CONSOLE: Final = "/console/"


class Page(msgspec.Struct, frozen=True):
    """A file of the console."""

    content: bytes
    content_type: str
    tag: str


class Answering:
    """For all HTTP connections of a server. `lacks` says what it waits for before it serves clients well."""

    def __init__(self, pages: Mapping[str, Page], lacks: Callable[[], str]) -> None:
        self._table = Table()
        self._pages = pages
        self._lacks = lacks
        self._document = b""

    def __call__(self, request: Request, call: Callable[..., Call]) -> Found:
        """Raises BadRequest."""
        path = request.head.target.partition("?")[0]
        if path == f"{ROOT}/openapi.json":
            return self._plain(request, self._describe)
        if path == "/ready":
            return self._plain(request, lambda: ready(self._lacks()))
        if path in ("/", "/console"):
            return self._plain(request, lambda: _said(Reply(302, headers=[("Location", CONSOLE)])))
        if path.startswith(CONSOLE):
            page = self._pages.get(path[len(CONSOLE) :] or "index.html")
            if page is None:
                raise BadRequest(f"there is nothing at {path[:80]}", 404, code="path-unknown")
            return self._plain(request, lambda: _said(_of(page, request)))
        return self._table.find(request, call)

    def _plain(self, request: Request, handle: Callable[[], Steps]) -> Found:
        if request.head.method not in ("GET", "HEAD"):
            raise BadRequest("here the method is GET", 405, code="method-unknown")
        return Found(handle, is_public=True)

    def _describe(self) -> Steps:
        self._document = self._document or msgspec.json.encode(document())
        return _said(Reply(200, self._document))


def _said(reply: Reply) -> Steps:
    yield from ()
    return reply


def _of(page: Page, request: Request) -> Reply:
    """A browser keeps a file, and asks each time whether it is still the same."""
    headers = [("ETag", f'"{page.tag}"'), ("Cache-Control", "no-cache")]
    if request.header("if-none-match") == f'"{page.tag}"':
        return Reply(304, headers=headers)
    return Reply(200, page.content, page.content_type, headers)

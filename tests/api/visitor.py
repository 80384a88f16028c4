"""Somebody who asks by HTTP, as a script would, with what Python has in its box."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote


class Visitor:
    """Asks one server, over one connection as long as that holds."""

    def __init__(self, port: int, *, user: str = "", password: str = "", host: str = "127.0.0.1") -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=60)
        self.headers: dict[str, str] = {"X-Heliograph": "1"}
        if user:
            self.headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status, and what was said: JSON as what it is, the rest as bytes."""
        status, _, said = self.whole(method, path, body, **headers)
        return status, said

    def whole(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        target = path if path.startswith("/") else f"/api/v1/{path}"
        self._connection.request(method, target, raw, sent)
        reply = self._connection.getresponse()
        content = reply.read()
        is_json = reply.headers.get_content_type() == "application/json"
        return reply.status, dict(reply.headers), json.loads(content) if is_json and content else content

    def get(self, path: str) -> Any:
        """What there is, which must be there."""
        status, said = self.ask("GET", path)
        assert status == 200, said
        return said

    def post(self, path: str, body: object = None) -> Any:
        status, said = self.ask("POST", path, {} if body is None else body)
        assert status in (200, 201), said
        return said

    def close(self) -> None:
        self._connection.close()


def at(destination: str, rest: str = "") -> str:
    """The path of a destination."""
    return f"destinations/{quote(destination, safe='')}{rest}"

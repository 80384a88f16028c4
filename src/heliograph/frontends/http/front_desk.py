"""What all HTTP connections of a server share: who answers, who is logged in, and how many streams there are."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from heliograph.frontends.http.requests import BadRequest, Request
from heliograph.frontends.http.steps import Call, Found
from heliograph.model.errors import NotAuthenticated
from heliograph.model.limits import (
    LOG_IN_IDLE_SECONDS,
    LOG_IN_SECONDS,
    MAX_LOG_INS,
    PASSWORD_REMEMBERED_SECONDS,
)

COOKIE: Final = "cookie"
"""The mechanism of a greeting whose password is the token of a log-in."""
_TOKEN_BYTES: Final = 32
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]", "::1")

Answerer = Callable[[Request, Callable[..., Call]], Found]


class _LogIn(msgspec.Struct):
    user: str
    since: float
    used: float


class FrontDesk:
    """`secret` gives random bytes, times are seconds since 1970."""

    def __init__(
        self,
        answerer: Answerer | None = None,
        *,
        secret: Callable[[int], bytes] = bytes,
        is_open: bool = True,
        hosts: Sequence[str] = (),
    ) -> None:
        """`is_open`: there are no users. `hosts`: names under which the server is known besides those of the machine
        itself."""
        self._answerer = answerer or _nobody
        self._secret = secret
        self._salt = b""  # made when it is first needed
        self.is_open = is_open
        self.hosts = tuple(host.lower() for host in hosts)
        self.streams = 0
        self.requests = 0
        self._log_ins: dict[bytes, _LogIn] = {}
        self._proved: dict[bytes, tuple[str, float]] = {}

    def find(self, request: Request, call: Callable[..., Call]) -> Found:
        """Raises BadRequest."""
        self.requests += 1
        return self._answerer(request, call)

    def check_host(self, host: str) -> None:
        """A name that somebody else made to lead here would let their pages ask as if they were ours. Where there are
        users, they have no log-in under that name; where there are none, the name has to be one of ours."""
        if not self.is_open:
            return
        name = host_in(host)
        if name in _LOOPBACK or name.startswith("127.") or name in self.hosts:
            return
        raise BadRequest(
            "this server is open to its own machine only: ask localhost, or name the host in server.advertise",
            421,
            code="host-refused",
        )

    # ---- log-ins

    def log_in(self, user: str, now: float) -> str:
        """The token by which somebody is known from here on."""
        if len(self._log_ins) >= MAX_LOG_INS:
            self._drop_old(now)
        if len(self._log_ins) >= MAX_LOG_INS:
            self._log_ins.pop(next(iter(self._log_ins)))
        token = self._secret(_TOKEN_BYTES).hex()
        self._log_ins[self._digest(token)] = _LogIn(user, now, now)
        return token

    def who(self, token: str, now: float) -> str:
        """The user of a log-in. Raises NotAuthenticated."""
        found = self._log_ins.get(self._digest(token))
        if found is None or now - found.used > LOG_IN_IDLE_SECONDS or now - found.since > LOG_IN_SECONDS:
            self.log_out(token)
            raise NotAuthenticated("the log-in has ended: log in again")
        found.used = now
        return found.user

    def log_out(self, token: str) -> None:
        self._log_ins.pop(self._digest(token), None)

    def _drop_old(self, now: float) -> None:
        self._log_ins = {
            key: each for key, each in self._log_ins.items() if now - each.used < LOG_IN_IDLE_SECONDS
        }

    # ---- passwords that were right a moment ago

    def remember(self, user: str, password: str, now: float) -> None:
        if len(self._proved) >= MAX_LOG_INS:
            self._proved.clear()
        self._proved[self._digest(f"{user}\0{password}")] = (user, now)

    def remembers(self, user: str, password: str, now: float) -> bool:
        found = self._proved.get(self._digest(f"{user}\0{password}"))
        return found is not None and found[0] == user and now - found[1] < PASSWORD_REMEMBERED_SECONDS

    def forget_passwords(self) -> None:
        """There are other users now."""
        self._proved.clear()

    def _digest(self, text: str) -> bytes:
        self._salt = self._salt or self._secret(_TOKEN_BYTES)
        return hmac.new(self._salt, text.encode(errors="surrogatepass"), hashlib.sha256).digest()


def host_in(authority: str) -> str:
    """Without the port."""
    host, _, port = authority.rpartition(":")
    return (host if port.isdecimal() and host else authority).lower()


def _nobody(_request: Request, _call: Any) -> Found:
    raise BadRequest("there is nothing here", 404, code="path-unknown")

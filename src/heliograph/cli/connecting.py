"""Reaching the server that a command talks to, and saying what to do when there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heliograph.cli.outcome import NoServer
from heliograph.model.errors import HeliographError, Unavailable

if TYPE_CHECKING:
    from heliograph.client import Connection

# How long a command that runs on, such as `receive --follow`, looks for a server that it has lost.
FOLLOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server is and as whom to log in."""

    url: str
    user: str | None = None
    password: str | None = None

    @property
    def shown(self) -> str:
        """The URL without a password in it."""
        scheme, separator, rest = self.url.partition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _heard_elsewhere(_error: HeliographError) -> None:
    """A command waits for all that it starts, so it meets every error itself; one report is enough."""


@asynccontextmanager
async def connected(
    address: ServerAddress, *, purpose: str, reconnect_seconds: float = 0.0
) -> AsyncIterator[Connection]:
    """A connection for one command. Raises NoServer when nobody answers now."""
    from heliograph.client import connect

    try:
        connection = await connect(
            address.url,
            user=address.user,
            password=address.password,
            client_name=f"helio {purpose}",
            reconnect_seconds=reconnect_seconds,
            on_error=_heard_elsewhere,
        )
    except Unavailable as error:
        # Somebody is there who does not speak our protocol, or whom one of us does not trust.
        if error.code in ("no-greeting", "certificate-refused", "own-certificate-refused", "tls-failed"):
            raise NoServer(error.sentence, code=error.code) from None
        raise NoServer(
            f"no server answers at {address.shown}: start one with `helio serve`, or name another with --url"
        ) from None
    async with connection:
        yield connection

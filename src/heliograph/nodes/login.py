"""One client's log-in: `security/sasl.py` decides, passwords are checked on a thread, and who it is comes of it."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from heliograph.frontends.http.front_desk import COOKIE
from heliograph.frontends.native.frames import Hello
from heliograph.model.errors import NotAuthenticated
from heliograph.nodes.users import UserStore
from heliograph.security.sasl import (
    ANONYMOUS,
    EXTERNAL,
    PLAIN,
    Challenge,
    Channel,
    CheckPassword,
    Proof,
    Refused,
    Step,
    plain_message,
)
from heliograph.sessions.access import GUEST, Identity

NONCE_BYTES: Final = 18
_SHOWN: Final = COOKIE.upper()


class Admitted(msgspec.Struct, frozen=True):
    """It is who it says. `proof`: what it is told along with that."""

    user: Identity
    proof: bytes = b""


class Login:
    """Of one connection. What `begin` and `respond` give is who it is, or a challenge that it has to answer."""

    def __init__(
        self,
        users: UserStore,
        check: Callable[[str, str], Awaitable[bool]],
        channel: Channel,
        *,
        nonce: bytes,
        plain_anywhere: bool,
        known: Callable[[UserStore, Hello], Identity | None] = lambda _users, _hello: None,
    ) -> None:
        """`check` finds out whether a password is right; `known` says who proved it a moment ago."""
        self._known = known
        self._shows_secrets = channel.is_private or plain_anywhere
        self._users = users
        self._check = check
        self._channel = channel
        self._proof = Proof(
            channel,
            keys=users.keys,
            nonce=base64.b64encode(nonce).decode(),
            plain_anywhere=plain_anywhere,
        )

    @property
    def claimed(self) -> str:
        """Whom it says it is, if it came to that."""
        return self._proof.user

    async def begin(self, hello: Hello) -> Admitted | Challenge:
        """Raises HeliographError for who could not prove it."""
        known = self._known(self._users, hello) if self._shows_secrets else None
        if known is not None:
            return Admitted(known)
        mechanism, initial = hello.mechanism.upper(), hello.initial
        if mechanism == _SHOWN and not self._shows_secrets:
            mechanism = PLAIN  # it is refused for the same reason
        if mechanism == PLAIN and not initial:
            initial = plain_message(hello.user, hello.password)
        elif mechanism == ANONYMOUS and self._channel.certificate_user:
            mechanism = EXTERNAL  # who names nobody and shows a certificate is whom that names
        elif mechanism == ANONYMOUS:
            raise NotAuthenticated("this server wants a user and a password: helio://USER:PASSWORD@HOST")
        return await self._follow(self._proof.begin(mechanism, initial))

    async def respond(self, data: bytes) -> Admitted | Challenge:
        """Raises HeliographError."""
        return await self._follow(self._proof.respond(data))

    async def _follow(self, step: Step) -> Admitted | Challenge:
        if isinstance(step, CheckPassword):
            step = self._proof.password_checked(await self._check(step.user, step.password))
        if isinstance(step, Challenge):
            return step
        if isinstance(step, Refused):
            raise step.error
        assert not isinstance(step, CheckPassword)
        identity = self._users.identity(step.user)
        if identity is None:  # only a certificate names somebody whom nobody asked for a password
            raise NotAuthenticated(
                f"the certificate is good, but there is no user {step.user[:64]!r} here: `helio user add NAME"
                " --no-password` makes one",
                code="certificate-user-unknown",
            )
        return Admitted(identity, step.data)


class OpenDoor:
    """Where there are no users, everybody is a guest."""

    claimed = ""

    async def begin(self, _hello: Hello) -> Admitted | Challenge:
        return Admitted(GUEST)

    async def respond(self, _data: bytes) -> Admitted | Challenge:
        return Admitted(GUEST)

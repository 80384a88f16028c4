"""How a client proves who it is, whatever protocol it speaks (SASL, RFC 4422): one machine for the server's side.

    begin ──▶ Challenge ──respond──▶ … ──▶ Proved, or Refused
      └─────▶ CheckPassword ──password_checked──▶

Mechanisms:

    PLAIN           name and password as they are: only where nobody can listen (TLS, or within one machine)
    SCRAM-SHA-256   see `scram`
    EXTERNAL        the certificate that the client showed when TLS began
    ANONYMOUS       nobody in particular; for servers that have no users, which is decided elsewhere

What is refused says the same for a name that nobody has and for a password that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from heliograph.model.errors import HeliographError, NotAuthenticated, ProtocolFault
from heliograph.security import scram
from heliograph.security.scram import MALFORMED, MAX_MESSAGE_BYTES

PLAIN: Final = "PLAIN"
SCRAM: Final = scram.NAME
EXTERNAL: Final = "EXTERNAL"
ANONYMOUS: Final = "ANONYMOUS"

WRONG: Final = "the user is not known or the password is wrong"
"""The one sentence for all who could not prove who they are."""


class Channel(msgspec.Struct, frozen=True):
    """What is known about the way on which a client comes."""

    is_private: bool  # nobody can listen: it is encrypted, or never leaves the machine
    certificate_user: str = ""  # the name in the certificate that the client showed, if it was found good


class Challenge(msgspec.Struct, frozen=True):
    """The client has to answer this."""

    data: bytes


class CheckPassword(msgspec.Struct, frozen=True):
    """Whether it is so takes long to find out: `password_checked` says."""

    user: str
    password: str


class Proved(msgspec.Struct, frozen=True):
    """The client is this user. `data`: what it is to be told along with that."""

    user: str
    data: bytes = b""


class Refused(msgspec.Struct, frozen=True):
    """It could not prove it. `user`: whom it claimed to be, if it came to that."""

    error: HeliographError
    user: str


Step = Challenge | CheckPassword | Proved | Refused


def offered(channel: Channel, *, has_users: bool, plain_anywhere: bool = False) -> list[str]:
    """The mechanisms that make sense for this client, the best first."""
    if not has_users:
        return [ANONYMOUS, PLAIN]
    found = [EXTERNAL] if channel.certificate_user else []
    found.append(SCRAM)
    if channel.is_private or plain_anywhere:
        found.append(PLAIN)
    return found


def plain_message(user: str, password: str) -> bytes:
    """What a client says in PLAIN."""
    return b"\0".join((b"", user.encode(errors="replace"), password.encode(errors="replace")))


class Proof:
    """One client's attempt."""

    def __init__(
        self,
        channel: Channel,
        *,
        keys: Callable[[str], scram.Keys],
        nonce: str,
        plain_anywhere: bool = False,
    ) -> None:
        """`keys` gives those of a user, and a decoy for a name that nobody has. `plain_anywhere`: passwords may come
        as they are though others might listen."""
        self._channel = channel
        self._keys = keys
        self._scram = scram.Server(nonce)
        self._plain_anywhere = plain_anywhere
        self._mechanism = ""
        self._is_challenged = False
        self._is_over = False
        self.user = ""  # whom it claims to be

    def begin(self, mechanism: str, initial: bytes | None = None) -> Step:
        """`initial`: what the client said along with its choice; None if nothing."""
        self._mechanism = mechanism.upper()
        try:
            self._check_way(mechanism)
        except NotAuthenticated as refusal:
            return self._ended(refusal)
        return Challenge(b"") if initial is None else self.respond(initial)

    def respond(self, data: bytes) -> Step:
        """The client's answer."""
        if self._is_over:
            return self._ended(ProtocolFault("the log-in is over", code=MALFORMED))
        try:
            match self._mechanism:
                case "PLAIN":
                    return self._plain(data)
                case "EXTERNAL":
                    return self._external(data)
                case _:
                    return self._scram_step(data)
        except (ProtocolFault, NotAuthenticated) as fault:
            return self._ended(fault)

    def password_checked(self, is_right: bool) -> Step:
        return Proved(self.user) if is_right else self._ended(NotAuthenticated(WRONG))

    def _check_way(self, mechanism: str) -> None:
        if self._mechanism not in (PLAIN, SCRAM, EXTERNAL):
            raise NotAuthenticated(
                f"{mechanism[:40]!r} is not a way to log in here: use PLAIN, SCRAM-SHA-256 or EXTERNAL",
                code="mechanism-unknown",
            )
        if self._mechanism == PLAIN and not (self._channel.is_private or self._plain_anywhere):
            raise NotAuthenticated(
                "others could read the password on its way: connect with TLS, or log in with SCRAM-SHA-256",
                code="plain-refused",
            )
        if self._mechanism == EXTERNAL and not self._channel.certificate_user:
            raise NotAuthenticated(
                "without a password a certificate says who you are: connect with TLS and show one",
                code="certificate-missing",
            )

    def _plain(self, data: bytes) -> Step:
        self._is_over = True
        parts = data.split(b"\0")
        if len(parts) != 3 or len(data) > MAX_MESSAGE_BYTES:
            raise ProtocolFault("PLAIN is a name, a zero byte and a password", code=MALFORMED)
        authorization, user, password = (part.decode(errors="replace") for part in parts)
        self.user = user
        if authorization not in ("", user):
            raise NotAuthenticated("nobody logs in for somebody else here")
        return CheckPassword(user, password)

    def _external(self, data: bytes) -> Step:
        self._is_over = True
        self.user = self._channel.certificate_user
        if data and data.decode(errors="replace") != self.user:
            raise NotAuthenticated(f"the certificate is that of {self.user[:64]!r}, and of nobody else")
        return Proved(self.user)

    def _scram_step(self, data: bytes) -> Step:
        if not self._is_challenged:
            self._is_challenged = True
            self.user = self._scram.greeted(data)
            return Challenge(self._scram.challenge(self._keys(self.user)))
        self._is_over = True
        signature = self._scram.final(data)
        if signature is None:
            raise NotAuthenticated(WRONG)
        return Proved(self.user, signature)

    def _ended(self, error: ProtocolFault | NotAuthenticated) -> Refused:
        self._is_over = True
        return Refused(error.with_traceback(None), self.user)

"""SCRAM-SHA-256 (RFC 5802, RFC 7677): both ends know that the other knows the password; nobody on the way learns it.

    client                                   server
    n,,n=ann,r=NONCE               ──▶       finds the keys of ann
                                   ◀──       r=NONCE…MORE,s=SALT,i=ROUNDS
    c=biws,r=NONCE…MORE,p=PROOF    ──▶       is it made with her key?
    is it made with the server's?  ◀──       v=SIGNATURE

A user that is not known is answered as one that is, from keys that nobody's password has. Channel binding is not
offered: whoever insists on it is refused, as the standard says. Nonces come in from outside, and so does
the password's stretched form, which takes its time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

import msgspec

from heliograph.model.errors import NotAuthenticated, ProtocolFault
from heliograph.security.saslprep import prepared

NAME: Final = "SCRAM-SHA-256"
# RFC 7677 asks for at least 4096. A password costs whoever guesses it from a stolen file this many rounds each time.
ROUNDS: Final = 60_000
MIN_ROUNDS: Final = 4096
# A server that asks for more wants to keep its client busy.
MAX_ROUNDS: Final = 10_000_000
_MAX_ROUNDS_DIGITS: Final = len(str(MAX_ROUNDS))
SALT_BYTES: Final = 16
# A user's name has 64 characters, each perhaps written with three; nonces are of 24; some spend more.
MAX_MESSAGE_BYTES: Final = 2048
MAX_PASSWORD_BYTES: Final = 1024
_HASH_BYTES: Final = 32
MALFORMED: Final = "sasl-malformed"


class Keys(msgspec.Struct, frozen=True):
    """What a server keeps of a password: enough to recognise it, not enough to log in with."""

    rounds: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @property
    def text(self) -> str:
        """As users files have it: `SCRAM-SHA-256$ROUNDS:SALT$STORED:SERVER`."""
        return (
            f"{NAME}${self.rounds}:{_base64(self.salt)}${_base64(self.stored_key)}:{_base64(self.server_key)}"
        )

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Raises ValueError."""
        name, costs, keys = text.split("$")
        rounds, salt = costs.split(":")
        stored, server = (base64.b64decode(key, validate=True) for key in keys.split(":"))
        found = cls(int(rounds), base64.b64decode(salt, validate=True), stored, server)
        within = MIN_ROUNDS <= found.rounds <= MAX_ROUNDS and len(found.salt) >= SALT_BYTES
        if name != NAME or not within or {len(stored), len(server)} != {_HASH_BYTES}:
            raise ValueError("not the keys of SCRAM-SHA-256")
        return found


def stretched(password: str, salt: bytes, rounds: int) -> bytes:
    """Slow on purpose. Raises ValueError for a password that cannot be spelt."""
    secret = prepared(password).encode()[: MAX_PASSWORD_BYTES + 1]
    return hashlib.pbkdf2_hmac("sha256", secret, salt, rounds)


def keys_of(password: str, salt: bytes, rounds: int = ROUNDS) -> Keys:
    """Slow on purpose. Raises ValueError."""
    salted = stretched(password, salt, rounds)
    stored_key = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return Keys(rounds, salt, stored_key, _hmac(salted, b"Server Key"))


def decoy(secret: bytes, name: str) -> Keys:
    """For a name that nobody has: the same whenever it is asked for, and no password's."""
    drawn = [
        _hmac(secret, f"{what}:{name}".encode(errors="replace")) for what in ("salt", "stored", "server")
    ]
    return Keys(ROUNDS, drawn[0][:SALT_BYTES], drawn[1], drawn[2])


# ---- the server's side


class Server:
    """One log-in. `first`, then `final`, each once."""

    def __init__(self, nonce: str) -> None:
        """`nonce`: at least 18 random bytes as printable characters."""
        self._more = nonce
        self.user = ""
        self._bare = self._header = self._nonce = ""
        self._keys: Keys | None = None
        self._server_first = ""

    def greeted(self, message: bytes) -> str:
        """The client's first message; the name of the user whose keys are wanted. Raises ProtocolFault."""
        text = _text(message)
        flag, authorization, self._bare = _split(text, 3)
        if flag.startswith("p="):
            raise ProtocolFault("channel binding is not offered here: log in without it", code=MALFORMED)
        if flag not in ("n", "y"):
            raise ProtocolFault("a log-in begins with n or y, and a comma", code=MALFORMED)
        self._header = f"{flag},{authorization},"
        fields = self._bare.split(",")
        self.user = _name(_value(fields, 0, "n"))
        self._nonce = _value(fields, 1, "r")
        _check_nonce(self._nonce)
        for extension in fields[2:]:
            _check_extension(extension)
        if authorization and _name(_field(authorization, "a")) != self.user:
            raise NotAuthenticated("nobody logs in for somebody else here")
        return self.user

    def challenge(self, keys: Keys) -> bytes:
        """What the client has to answer."""
        self._keys = keys
        self._nonce += self._more
        self._server_first = f"r={self._nonce},s={_base64(keys.salt)},i={keys.rounds}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes | None:
        """The client's last message; the server's signature, or None: the proof is wrong. Raises ProtocolFault."""
        assert self._keys is not None, "it was challenged"
        text = _text(message)
        without_proof, comma, last = text.rpartition(",")
        fields = without_proof.split(",") if comma else []
        bound, nonce = _value(fields, 0, "c"), _value(fields, 1, "r")
        for extension in fields[2:]:
            _check_extension(extension)
        proof = _unbase64(_field(last, "p"))
        if _unbase64(bound) != self._header.encode():
            raise ProtocolFault("the end of the log-in is bound to another beginning", code=MALFORMED)
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ProtocolFault("the nonce is not the one that was given", code=MALFORMED)
        if len(proof) != _HASH_BYTES:
            raise ProtocolFault(f"a proof has {_HASH_BYTES} bytes", code=MALFORMED)
        said = f"{self._bare},{self._server_first},{without_proof}".encode()
        client_key = _xor(proof, _hmac(self._keys.stored_key, said))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._keys.stored_key):
            return None
        return b"v=" + _base64(_hmac(self._keys.server_key, said)).encode()


# ---- the client's side


class Client:
    """One log-in. `first`; `challenged` and `final`; `check`."""

    def __init__(self, user: str, password: str, nonce: str) -> None:
        """Raises ValueError for a name that cannot be spelt."""
        self.password = password
        escaped = prepared(user).replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._bare = f"n={escaped},r={nonce}"
        self._server_first = ""
        self._signature = b""

    @property
    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def challenged(self, message: bytes) -> tuple[bytes, int]:
        """Salt and rounds with which the password is to be stretched. Raises ProtocolFault."""
        self._server_first = _text(message)
        fields = self._server_first.split(",")
        nonce, salt, rounds = (_value(fields, place, key) for place, key in enumerate("rsi"))
        for extension in fields[3:]:
            _check_extension(extension)
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise ProtocolFault("the server's nonce does not begin with ours", code=MALFORMED)
        count = _rounds(rounds)
        self._nonce = nonce
        return _unbase64(salt), count

    def final(self, salted: bytes) -> bytes:
        """With the stretched password."""
        client_key = _hmac(salted, b"Client Key")
        stored_key = hashlib.sha256(client_key).digest()
        without_proof = f"c={_base64(b'n,,')},r={self._nonce}"
        said = f"{self._bare},{self._server_first},{without_proof}".encode()
        self._signature = _hmac(_hmac(salted, b"Server Key"), said)
        return f"{without_proof},p={_base64(_xor(client_key, _hmac(stored_key, said)))}".encode()

    def check(self, message: bytes) -> None:
        """Raises NotAuthenticated if the server does not know the password's keys itself."""
        text = _text(message) if message else ""
        given = _unbase64(text[2:]) if text.startswith("v=") else b""
        if not self._signature or not hmac.compare_digest(given, self._signature):
            raise NotAuthenticated(
                "the server did not prove that it knows this user: somebody may stand between us and it",
                code="server-not-proved",
            )


# ---- messages


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ProtocolFault(f"a message of a log-in has at most {MAX_MESSAGE_BYTES} bytes", code=MALFORMED)
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ProtocolFault("a message of a log-in is UTF-8", code=MALFORMED) from None
    if "\0" in text:
        raise ProtocolFault("a message of a log-in has no zero bytes", code=MALFORMED)
    return text


def _split(text: str, parts: int) -> list[str]:
    found = text.split(",", parts - 1)
    if len(found) != parts:
        raise ProtocolFault("the message is cut short", code=MALFORMED)
    return found


def _value(fields: list[str], place: int, key: str) -> str:
    if place >= len(fields):
        raise ProtocolFault(f"{key}= is missing", code=MALFORMED)
    return _field(fields[place], key)


def _field(field: str, key: str) -> str:
    if not field.startswith(f"{key}=") or len(field) == 2:
        raise ProtocolFault(f"{key}= is missing", code=MALFORMED)
    return field[2:]


def _rounds(text: str) -> int:
    """RFC 5802: posit-number has no zeros in front, so what is short enough to be read is all that is there."""
    is_number = text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _MAX_ROUNDS_DIGITS
    if not is_number or not MIN_ROUNDS <= int(text) <= MAX_ROUNDS:
        raise ProtocolFault(
            f"the server wants {text[:12]!r} rounds; {MIN_ROUNDS} to {MAX_ROUNDS} are sound", code=MALFORMED
        )
    return int(text)


def _check_extension(extension: str) -> None:
    """Optional ones may be there and mean nothing; m= says that whoever does not know them must stop."""
    if len(extension) < 3 or not extension[0].isalpha() or extension[1] != "=" or extension[0] == "m":
        raise ProtocolFault("there is an extension that is not known here", code=MALFORMED)


def _check_nonce(nonce: str) -> None:
    if not nonce.isascii() or not nonce.isprintable() or " " in nonce:
        raise ProtocolFault("a nonce is of printable characters", code=MALFORMED)


def _name(escaped: str) -> str:
    name = escaped.replace("=2C", ",").replace("=3D", "\0")
    if "=" in name:
        raise ProtocolFault("in a name a comma is =2C and an equals sign is =3D", code=MALFORMED)
    try:
        return prepared(name.replace("\0", "="))
    except ValueError as fault:
        raise ProtocolFault(f"the name is wrong: {fault}", code=MALFORMED) from None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolFault("it is not base64", code=MALFORMED) from None


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))

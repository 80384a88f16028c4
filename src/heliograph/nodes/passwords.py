"""What is kept of a password: a scrypt hash, and the keys of SCRAM-SHA-256. Both are slow on purpose: callers do it
on a thread."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from heliograph.security import scram

COST = (2**14, 8, 1)
_SALT_BYTES = 16
_HASH_BYTES = 32
# What a file may ask for: beyond this one log-in would take gigabytes or minutes.
_MAX_COST = (2**20, 32, 16)
MAX_PASSWORD_BYTES = 1024


def hash_password(password: str, *, cost: tuple[int, int, int] = COST) -> str:
    """The textual form `scrypt$n$r$p$salt$hash` with a fresh salt. A password that is no secret may cost less."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return _textual(cost, salt, _scrypt(password, salt, cost))


def verify_password(password: str, textual: str) -> bool:
    """Whether the password has this hash, compared in constant time."""
    cost, salt, expected = parse_hash(textual)
    return hmac.compare_digest(_scrypt(password, salt, cost), expected)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    # A longer password than any that was ever accepted must not cost more than the others.
    secret = password.encode(errors="surrogatepass")[: MAX_PASSWORD_BYTES + 1]
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=_HASH_BYTES)


def _textual(cost: tuple[int, int, int], salt: bytes, hashed: bytes) -> str:
    parts = ("scrypt", *map(str, cost), *(base64.b64encode(raw).decode() for raw in (salt, hashed)))
    return "$".join(parts)


def parse_hash(textual: str) -> tuple[tuple[int, int, int], bytes, bytes]:
    """Raises ValueError on anything that `hash_password` would not write."""
    name, *numbers, salt, hashed = textual.split("$")
    n, r, p = map(int, numbers)
    within = all(1 <= value <= most for value, most in zip((n, r, p), _MAX_COST, strict=True))
    if name != "scrypt" or not within or n < 2 or n & (n - 1):
        raise ValueError("not a scrypt hash")
    raw_salt, raw_hash = base64.b64decode(salt, validate=True), base64.b64decode(hashed, validate=True)
    if len(raw_salt) < _SALT_BYTES or len(raw_hash) != _HASH_BYTES:
        raise ValueError("salt or hash is too short")
    return (n, r, p), raw_salt, raw_hash


NOBODY = _textual(COST, bytes(_SALT_BYTES), bytes(_HASH_BYTES))
"""Unknown users are checked against this, so that they take as long as known ones."""


def kept_of(password: str) -> dict[str, str]:
    """All that is kept of it, by the names that the users file has for it."""
    return {"password": hash_password(password), "scram": scram_keys(password)}


def scram_keys(password: str, *, rounds: int = scram.ROUNDS) -> str:
    """The keys of SCRAM-SHA-256 as text, with a fresh salt; empty for a password that SCRAM cannot spell."""
    try:
        return scram.keys_of(password, secrets.token_bytes(scram.SALT_BYTES), rounds).text
    except ValueError:
        return ""

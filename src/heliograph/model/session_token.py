"""The secret by which a client resumes its session (M8).

In a cluster half of it proves that the session was opened there, to whoever has never heard of it because the cluster
was in parts: it is made with a key that all message managers of a sub-cluster have, and no client.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from heliograph.model.ids import SessionId

TOKEN_BYTES: Final = 16
_CHANCE_BYTES: Final = 8
_PURPOSE: Final = b"session"


def token_of(chance: bytes, session: SessionId, user: str, key: bytes) -> bytes:
    """`chance`: of TOKEN_BYTES. `key`: empty where there is none, and nothing to prove."""
    assert len(chance) == TOKEN_BYTES
    return _proven(chance, session, user, key) if key else chance


def is_proven(token: bytes, session: SessionId, user: str, key: bytes) -> bool:
    """Whether somebody who had the key opened this session for this user, and gave it this token."""
    return bool(key) and hmac.compare_digest(token, _proven(token, session, user, key))


def _proven(chance: bytes, session: SessionId, user: str, key: bytes) -> bytes:
    chance = chance[:_CHANCE_BYTES]
    said = b"".join((chance, session, user.encode(errors="surrogatepass")))
    size = TOKEN_BYTES - _CHANCE_BYTES
    return chance + hashlib.blake2b(said, digest_size=size, key=key, person=_PURPOSE).digest()

"""How much is borne of whom nobody knows yet: connections, new ones in a second, and log-ins that fail, by address.

Of IPv6 a household or a rented machine has 2^64 addresses, so those count as one. What is kept of an address is
forgotten when it has been quiet, and the table has a bound: when it is full, strangers whom it does not know
are counted together.
"""

from __future__ import annotations

from typing import Final

import msgspec

from heliograph.model.errors import Unavailable
from heliograph.model.limits import MAX_ADDRESSES_KNOWN
from heliograph.security.hosts import address_of

_MINUTE: Final = 60.0
_THE_REST: Final = "others"


class _Known(msgspec.Struct):
    connections: int = 0
    room: float = 0.0  # how many may come at once
    counted_at: float = 0.0
    failures: float = 0.0
    failed_at: float = 0.0


class Strangers:
    """0 as a limit means none."""

    def __init__(self, *, per_address: int, per_second: int, failures_per_minute: int) -> None:
        self._per_address = per_address
        self._per_second = per_second
        self._failures = failures_per_minute
        self._known: dict[str, _Known] = {}
        self._looked_at = -_MINUTE

    def arrived(self, host: str, now: float) -> str:
        """A connection. Returns under what it is counted, which `left` wants to know: of an address that was counted
        among the others, the next may be counted by itself. Raises Unavailable, and it was not counted."""
        key = self._key_of(host, now)
        known = self._known[key]
        if self._per_address and known.connections >= self._per_address:
            raise Unavailable(
                f"there are {known.connections} connections from your address, and no more are taken: close some",
                code="too-many-connections",
            )
        if self._per_second:
            passed = now - known.counted_at
            known.room = min(self._per_second, known.room + passed * self._per_second)
            known.counted_at = now
            if known.room < 1.0:
                raise Unavailable(
                    "your address connects too often: wait a moment", code="too-many-connections"
                )
            known.room -= 1.0
        known.connections += 1
        return key

    def left(self, counted: str) -> None:
        """A connection that was counted, under what `arrived` said, is gone."""
        known = self._known[counted]  # nobody is forgotten who has connections
        assert known.connections > 0, "each leaves once"
        known.connections -= 1

    def check_log_in(self, host: str, now: float) -> None:
        """Raises Unavailable for who has guessed wrong too often."""
        if self._failures and self._failures_of(host, now) + 1.0 > self._failures:
            raise Unavailable(
                "too many log-ins from your address have failed: wait a minute", code="too-many-logins"
            )

    def failed(self, host: str, now: float) -> None:
        known = self._of(host, now)
        known.failures = self._failures_of(host, now) + 1.0
        known.failed_at = now

    def _failures_of(self, host: str, now: float) -> float:
        """They wear off within a minute."""
        known = self._of(host, now)
        return max(0.0, known.failures - (now - known.failed_at) * self._failures / _MINUTE)

    def _of(self, host: str, now: float) -> _Known:
        return self._known[self._key_of(host, now)]

    def _key_of(self, host: str, now: float) -> str:
        """Under which it is known from here on."""
        key = _key(host)
        if key in self._known:
            return key
        # To look for those who were quiet takes long: not for each that comes.
        if len(self._known) >= MAX_ADDRESSES_KNOWN and now - self._looked_at > _MINUTE:
            self._looked_at = now
            self._forget_quiet(now)
        if len(self._known) >= MAX_ADDRESSES_KNOWN:
            key = _THE_REST
        self._known.setdefault(key, _Known(room=float(self._per_second), counted_at=now))
        return key

    def _forget_quiet(self, now: float) -> None:
        self._known = {
            key: known
            for key, known in self._known.items()
            if known.connections or now - max(known.counted_at, known.failed_at) < _MINUTE
        }

    def __len__(self) -> int:
        return len(self._known)


def _key(host: str) -> str:
    address = address_of(host)
    if address is None or address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.packed[:8].hex()


class Allowance:
    """Bytes that may come in a second, and as many at once. Time comes in as it passes."""

    __slots__ = ("_at", "_left", "_per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at = now

    def spend(self, size: int, now: float) -> float:
        """Seconds to wait before more is taken; 0: none."""
        self._left = min(self._per_second, self._left + (now - self._at) * self._per_second) - size
        self._at = now
        return max(0.0, -self._left / self._per_second)

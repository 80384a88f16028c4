"""What a session has asked on the bus and has no answer to yet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from heliograph.model.destination import Address

_NOWHERE = Address("")


class Request(msgspec.Struct, gc=False):
    """What a request on the bus was for. `request` and `number` are the client's."""

    purpose: type
    request: int
    number: int
    address: Address


class Requests:
    """By the number that the answer will bear."""

    def __init__(self, next_request: Callable[[], int]) -> None:
        self._next_request = next_request
        self._waiting: dict[int, Request] = {}

    def ask(self, purpose: type, request: int, number: int = 0, address: Address = _NOWHERE) -> int:
        """Returns the number to ask under."""
        identity = self._next_request()
        self._waiting[identity] = Request(purpose, request, number, address)
        return identity

    def take(self, identity: int) -> Request | None:
        """What was asked, once; None if the session ended while it was under way."""
        return self._waiting.pop(identity, None)

    def __contains__(self, identity: int) -> bool:
        return identity in self._waiting

    def clear(self) -> None:
        self._waiting.clear()

"""A connection of stomp.py's, with calls that wait for their receipts."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import stomp

from heliograph.model.errors import from_code
from tests.conformance.jms.adapter import Account, IllegalState, JmsError
from tests.conformance.jms.native import CALL_SECONDS, translated


def refused(frame: Any) -> JmsError:
    """What an ERROR frame says, as the standard exception."""
    headers = frame.headers
    return translated(from_code(headers.get("code", ""), headers.get("message", "")))


class Link(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    """One STOMP connection. What comes is handed on in its receiving thread."""

    def __init__(
        self,
        port: int,
        *,
        client_id: str,
        account: Account | None,
        on_message: Callable[[Any], None],
        on_lost: Callable[[JmsError], None],
    ) -> None:
        """Raises JmsError."""
        self._on_message = on_message
        self._on_lost = on_lost
        self._receipts: dict[str, Future[None]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._leaving = False
        self.error: JmsError | None = None  # why it ended
        self.was_refused = False  # it ended because something was wrong with what we said
        self.user = ""
        self._stomp = stomp.Connection12(
            [("127.0.0.1", port)], auto_decode=False, reconnect_attempts_max=1, heartbeats=(0, 0)
        )
        self._stomp.set_listener("link", self)
        who = {"username": account.name, "passcode": account.password} if account else {}
        headers = {"client-id": client_id} if client_id else {}
        try:
            self._stomp.connect(wait=True, headers=headers, **who)
        except stomp.exception.ConnectFailedException:
            raise self.error or IllegalState("nobody answers") from None
        # Otherwise each small frame behind another waits 40 ms for the other side's system.
        self._stomp.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # ---- what stomp.py says

    def on_connected(self, frame: Any) -> None:
        self.user = frame.headers.get("user-name", "")

    def on_message(self, frame: Any) -> None:
        self._on_message(frame)

    def on_receipt(self, frame: Any) -> None:
        waiting = self._take(frame.headers["receipt-id"])
        if waiting is not None:
            waiting.set_result(None)

    def on_error(self, frame: Any) -> None:
        self.error = refused(frame)
        self.was_refused = True
        waiting = self._take(frame.headers.get("receipt-id", ""))
        if waiting is not None:
            self._end(self.error)
            waiting.set_exception(self.error)

    def on_disconnected(self) -> None:
        self._end(self.error or IllegalState("the connection is gone"))

    def _take(self, receipt: str) -> Future[None] | None:
        with self._lock:
            return self._receipts.pop(receipt, None)

    def _end(self, why: JmsError) -> None:
        with self._lock:
            self.error = why
            waiting, self._receipts = list(self._receipts.values()), {}
            lost, self._leaving = not self._leaving, True
        for each in waiting:
            each.set_exception(why)
        if lost:
            self._on_lost(why)

    # ---- what a client says

    def call(self, say: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Say it and wait for the receipt. Raises JmsError."""
        future = self.begin(say, *arguments, **options)
        try:
            future.result(CALL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{say.__name__} was not answered in {CALL_SECONDS:g} s") from None

    def begin(
        self,
        say: Callable[..., Any],
        *arguments: Any,
        on_done: Callable[[Future[None]], None] | None = None,
        **options: Any,
    ) -> Future[None]:
        """Say it; the receipt will tell. `on_done` is called where receipts are heard."""
        receipt = str(next(self._numbers))
        future: Future[None] = Future()
        if on_done is not None:
            future.add_done_callback(on_done)
        with self._lock:
            if self.error is not None:
                raise self.error
            self._receipts[receipt] = future
        self.say(say, *arguments, receipt=receipt, **options)
        return future

    def say(self, say: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        try:
            say(self._stomp, *arguments, **options)
        except stomp.exception.NotConnectedException:
            self._end(self.error or IllegalState("the connection is gone"))

    def leave(self) -> None:
        """Returns when the server has let us go."""
        with self._lock:
            if self._leaving:
                return
            self._leaving = True
        with suppress(
            IllegalState
        ):  # stomp.py says that the connection is over before it hands on the receipt
            self.call(stomp.Connection12.disconnect)

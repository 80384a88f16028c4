"""An event loop on a thread of its own, for the blocking face."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from heliograph.model.errors import ClientFault

T = TypeVar("T")
# A loop that does not end within this is stuck in a callback; the thread is a daemon and does not keep the
# process.
STOP_SECONDS = 30.0


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="heliograph", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop and wait for its result."""
        if threading.current_thread() is self._thread or self.loop.is_closed():
            work.close()
            if self.loop.is_closed():
                raise ClientFault("the connection is closed", code="closed")
            raise ClientFault("a callback must not wait for its own thread", code="called-from-callback")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            # Interrupted while waiting (Ctrl-C): the work must not go on unseen.
            future.cancel()
            raise

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_SECONDS)

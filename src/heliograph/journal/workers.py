"""A thread that does one job after the other and reports each on the loop, in order."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


class Worker:
    """The thread starts with the first job. Exceptions are results too: `then` gets them."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], Result], then: Callable[[Result | Exception], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((job, then))

    def stop(self) -> None:
        """Finish what was posted, then end. What was reported reaches the loop if that still runs."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, then = item
            try:
                result = job()
            except Exception as error:  # a thread cannot raise to anybody: the loop's side decides
                result = error
            try:
                self._loop.call_soon_threadsafe(then, result)
            except RuntimeError:
                return  # the loop is closed: nobody is left to hear it

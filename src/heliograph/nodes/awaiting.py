"""From those who call back to those who wait: a job of a thread, a read of the journal, a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def answer_to(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """What the function that is given to `ask` is called with; an exception is raised. Who waits no more hears
    nothing."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def then(result: Any) -> None:
        if answer.done():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    ask(then)
    return await answer

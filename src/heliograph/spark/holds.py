"""What readers of the history have the server keep for them, so that it is still there when a task comes to read it.

A stream holds what is behind its offset (`streams.py`). A batch says neither that it goes on nor that it is over, so
it holds for minutes, and its tasks renew that while they read; a pipeline that knows its end lets go then. Holds are
few, and streams need them more: where there are too many already a batch reads without, and what is gone by then it
is told by name (`feed-gone`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from heliograph.model.errors import ClientFault, HeliographError
from heliograph.spark.options import EARLIEST, LATEST, Options, options_of
from heliograph.spark.server import Server

BATCH_SECONDS: Final = 600.0
"""A batch that is planned and not read for so long may find something gone. Were it longer, who reads often would
use up all holds."""
_TRIES: Final = 5
_ENDS_IN: Final = 0.001


def new_name() -> str:
    return f"spark-{uuid.uuid4().hex}"


def starting_position(server: Server, destination: str, text: str) -> int:
    """`earliest`, `latest` or an LSN, everything up to which is left out. Raises ClientFault."""
    if text in (EARLIEST, LATEST):
        positions = server.ask("pipeline.positions", destination=destination)
        return int(positions["first" if text == EARLIEST else "last"])
    try:
        return int(text)
    except ValueError:
        raise ClientFault(
            f"an offset is earliest, latest or a number, not {text[:40]!r}", code="option-invalid"
        ) from None


def hold(server: Server, destination: str, name: str, position: int, seconds: float) -> None:
    """Keep what comes behind this position. Raises ClientFault `feed-gone`, `too-many-holds`."""
    server.ask("pipeline.hold", name=name, destination=destination, after=position, seconds=seconds)


def held_start(server: Server, destination: str, text: str, name: str, seconds: float) -> int:
    """Where to begin, held from there on. What was the earliest may be gone when it is to be held: then something
    else is. Raises ClientFault."""
    for _ in range(_TRIES):
        position = starting_position(server, destination, text)
        try:
            hold(server, destination, name, position, seconds)
        except HeliographError as fault:
            if fault.code != "feed-gone" or text != EARLIEST:
                raise
        else:
            return position
    return starting_position(server, destination, text)


class Hold(NamedTuple):
    """Of a batch, as its tasks know it."""

    destination: str
    name: str
    after: int
    seconds: float


def begin(server: Server, options: Options) -> tuple[int, Hold | None]:
    """Where a batch begins, and what is held for it. Raises ClientFault."""
    name, seconds = options.hold or new_name(), min(options.holdseconds, BATCH_SECONDS)
    try:
        after = held_start(server, options.destination, options.startingoffset, name, seconds)
    except HeliographError as fault:
        if fault.code != "too-many-holds":
            raise
        return starting_position(server, options.destination, options.startingoffset), None
    return after, Hold(options.destination, name, after, seconds)


class Renewing:
    """What a task does about a hold while it reads: often enough, and not more often."""

    def __init__(self, server: Server, held: Hold | None) -> None:
        self._server, self._held = server, held
        self._at = 0.0

    def go_on(self) -> None:
        if self._held is not None and time.monotonic() >= self._at:
            destination, name, after, seconds = self._held
            hold(self._server, destination, name, after, seconds)
            self._at = time.monotonic() + seconds / 10


@contextmanager
def held(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Options of batches whose history is let go at the end of `with`, and not when its time is over."""
    name = options.get("hold") or new_name()
    own = {**options, "hold": name}
    try:
        yield own
    finally:
        with suppress(HeliographError):  # then time does it
            let_go({**own, "retrySeconds": 5.0}, name)


def let_go(options: dict[str, Any], name: str) -> None:
    """To end a hold at once is for administrators; whoever has one may say that it lasts no longer than this."""
    chosen = options_of(options)
    with Server(chosen, "batch") as server:
        last = int(server.ask("pipeline.positions", destination=chosen.destination)["last"])
        hold(server, chosen.destination, name, last, _ENDS_IN)

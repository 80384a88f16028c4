"""What an administrator may have moved or deleted, from where and to where (U8)."""

from __future__ import annotations

from typing import Any

from heliograph.admin.handlers import destination_named
from heliograph.admin.subjects import Arguments, argument
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.queue import Queue
from heliograph.model.destination import parse_address
from heliograph.model.errors import ClientFault
from heliograph.model.selector import Selector, parse_selector

MOVE = "message.move"
DELETE = "message.delete"


class MoveOrder:
    """A request to move, or without a target to delete, what a selector selects in a queue."""

    def __init__(self, subject: str, arguments: Arguments, catalogue: Catalogue) -> None:
        """Raises ClientFault for what cannot be."""
        self.source = _queue(destination_named(catalogue, arguments))
        self.target: Queue | None = None
        if subject == MOVE:
            parse_address(argument(arguments, "target", str))  # nobody but the server sends to its own
            self.target = _queue(destination_named(catalogue, arguments, "target"))
        if self.target is self.source:
            raise ClientFault(
                f"the messages are in {self.source.address} already: name another target",
                code="argument-invalid",
            )
        self.filter = argument(arguments, "filter", str, "")
        self.selector: Selector | None = parse_selector(self.filter)
        self.limit = argument(arguments, "limit", int, 0)  # 0: all
        if self.limit < 0:
            raise ClientFault(f"the limit is 0 (all) or more, not {self.limit}", code="argument-invalid")
        self.check()

    def check(self) -> None:
        """Raises ClientFault unless the move may begin, or go on."""
        if not self.source.pause.state.consumption:
            raise ClientFault(
                f"{self.source.address} is not paused: consumers might have what is to be moved or deleted;"
                f" `helio admin destination pause {self.source.address} --consumption` comes first",
                code="destination-not-paused",
            )
        for queue in (self.source, self.target):
            if queue is not None and queue.has_ended:
                raise ClientFault(f"{queue.address} was deleted", code="destination-unknown")

    def names(self) -> dict[str, Any]:
        names: dict[str, Any] = {"destination": self.source.address}
        return names | ({"target": self.target.address} if self.target is not None else {})

    def event(self, messages: int) -> tuple[str, dict[str, Any]]:
        """For the event log."""
        what = "messages-moved" if self.target is not None else "messages-deleted"
        return what, {**self.names(), "messages": messages, "filter": self.filter}


def _queue(destination: Destination) -> Queue:
    if not isinstance(destination, Queue):
        raise ClientFault(
            f"{destination.address} is a topic: messages are moved and deleted in queues", code="not-a-queue"
        )
    return destination

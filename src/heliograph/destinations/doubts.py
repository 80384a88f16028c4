"""What is in doubt: consumers whose client manager may be in another part, and what they have (PROTOCOL 4).

Nobody else may get it before the cluster is whole. Who consumes is in the memory of the message managers alone, so
this is written down: if all of them end, whoever leads then from its journal finds the consumers again, away as they
were, and their clients may come and claim them.

    in doubt ──claimed, gone, whole for as long as a lease──▶ not any more

That the cluster is whole for a moment ends nothing: it lets the leases of those consumers begin (`attendance.py`).
When it is cut again before they have passed, the client may settle in another part what it has.
Of what a consumer had when the doubt began, it still has what the journal says is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.bus.commands import ConsumerAttached, Standing
from heliograph.destinations.destination import Destination
from heliograph.model.ids import ConsumerId
from heliograph.model.limits import DOUBT_SECONDS


class Doubt(msgspec.Struct, array_like=True):
    """One consumer, as the journal keeps it. Without `attached`: there is no doubt about it any more."""

    consumer: ConsumerId
    destination: int
    attached: ConsumerAttached | None = None
    standing: Standing | None = None
    has: list[tuple[int, int, int]] = []  # tag, first and last number of what is persistent


encode_doubt = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Doubt).decode


Place = int | tuple[str, str]
"""The number of a destination; client and name of a subscription."""


class Doubts:
    """All that there are. Thousands may end one by one, so none is looked for among all."""

    def __init__(self) -> None:
        self._by_consumer: dict[ConsumerId, Doubt] = {}
        self._by_place: dict[Place, dict[ConsumerId, Doubt]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_consumer)

    def __contains__(self, consumer: ConsumerId) -> bool:
        return consumer in self._by_consumer

    def __iter__(self) -> Iterator[Doubt]:
        """In the order in which they began. Some may end meanwhile."""
        return iter(list(self._by_consumer.values()))

    def note(self, doubt: Doubt) -> None:
        """It begins, or is over."""
        self._forget(doubt.consumer)
        if doubt.attached is not None:
            self._by_consumer[doubt.consumer] = doubt
            for place in _places(doubt):
                self._by_place.setdefault(place, {})[doubt.consumer] = doubt

    def replay(self, payload: bytes | memoryview) -> None:
        self.note(_decode(payload))

    def end(self, consumer: ConsumerId) -> Doubt:
        """What is to be written down."""
        doubt = self._by_consumer[consumer]
        self._forget(consumer)
        return Doubt(consumer, doubt.destination)

    def _forget(self, consumer: ConsumerId) -> None:
        doubt = self._by_consumer.pop(consumer, None)
        for place in _places(doubt) if doubt is not None else ():
            del self._by_place[place][consumer]
            if not self._by_place[place]:
                del self._by_place[place]

    def at(self, place: Place) -> list[Doubt]:
        """Of consumers of a destination, or of subscriptions of this client and name."""
        return list(self._by_place.get(place, {}).values())


def _places(doubt: Doubt) -> list[Place]:
    attached = doubt.attached
    if attached is None or not attached.subscription:
        return [doubt.destination]
    return [doubt.destination, (attached.client, attached.subscription)]


def doubt_of(attached: ConsumerAttached, destination: Destination) -> Doubt | None:
    """What a consumer has that would have to be kept for it over a restart. None: nothing."""
    messages = destination.list_of(attached.consumer)
    consumer = messages.consumers.get(attached.consumer) if messages is not None else None
    if messages is None or consumer is None or not messages.durable:
        return None
    has = []
    for tag, span in consumer.outstanding.tagged():
        if span.block.persistent:
            first = span.block.number + span.start
            has.append((tag, first, first + span.stop - span.start - 1))
    if not has:
        return None
    standing = Standing(
        attached.consumer,
        messages.number,
        consumer.credit,
        consumer.next_tag,
        consumer.retired,
        DOUBT_SECONDS,
        consumer.given,
        consumer.former,
    )
    as_it_was = msgspec.structs.replace(attached, request=0, claim=None, again=False)
    return Doubt(attached.consumer, destination.number, as_it_was, standing, has)

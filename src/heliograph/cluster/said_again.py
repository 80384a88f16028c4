"""What a primary had not been heard saying when its view ended, as it says it in the next one: at once.

Some of it has changed meanwhile: what was handed out and reached nobody was taken back. Told one after the other, the
ticks would say first that a consumer has less credit and a message was handed out, and then that it was not so; and
whoever hears only the first, because the primary ends in between, would believe it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from heliograph.bus.commands import Command, ConsumerAttached, Logged, Standing, Supplied
from heliograph.model.ids import ConsumerId


def as_one(commands: Iterable[Command]) -> deque[Command]:
    """Ticks that follow one another become one. One that introduces somebody stays by itself: it says how things
    stood then."""
    said: deque[Command] = deque()
    ticks: list[Logged] = []
    pieces: list[Command] = []  # of content, behind the answers that they follow

    def close() -> None:
        if ticks:
            said.append(_joined(ticks))
        said.extend(pieces)
        ticks.clear()
        pieces.clear()

    for command in commands:
        if isinstance(command, Supplied):
            said.append(command)  # before what hands it out, however long before
        elif not isinstance(command, Logged):
            pieces.append(command)
        elif command.introduction is None:
            ticks.append(command)
        else:
            close()
            said.append(command)
    close()
    return said


def _joined(ticks: list[Logged]) -> Logged:
    first = ticks[0]
    through: dict[bytes, int] = {}
    attached: dict[ConsumerId, ConsumerAttached] = {}
    standing: dict[ConsumerId, Standing] = {}
    gone: dict[ConsumerId, None] = {}
    for tick in ticks:
        through.update(tick.through)
        for consumer in tick.attached:
            attached[consumer.consumer] = consumer
        for stands in tick.standing:
            standing[stands.consumer] = stands
            gone.pop(stands.consumer, None)
        for consumer_id in tick.gone:
            gone[consumer_id] = None
            standing.pop(consumer_id, None)
            attached.pop(consumer_id, None)
    return Logged(
        first.first,
        first.chain,
        list(through.items()),
        [record for tick in ticks for record in tick.records],
        list(attached.values()),
        list(standing.values()),
        list(gone),
        None,
        [decision for tick in ticks for decision in tick.decisions],
        [lane for tick in ticks for lane in tick.beside],
    )

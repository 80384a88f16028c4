"""`topic:_ADMIN`: a topic with one subscriber more than others, the server itself (M13)."""

from __future__ import annotations

from heliograph.destinations.effects import Administer, AnyEffect
from heliograph.destinations.topic import Topic
from heliograph.model.block import Block


class AdministrationTopic(Topic):
    """Whatever is published here is also a command. After a restart nothing is carried out again."""

    def add(self, block: Block, effects: list[AnyEffect], now: int) -> int:
        effects.append(Administer(block))
        return super().add(block, effects, now)

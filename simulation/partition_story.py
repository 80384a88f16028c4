"""What happened in a run with a network that is cut, in words: who was cut from whom, who entered which view in what
state, and what was done with the messages that something is wrong with."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from simulation.clients import Client
from simulation.grip import Grip, node_of
from simulation.history import HandOut, History
from simulation.world import World

# Words of a violation that name a message, as `History` has them.
_KEYS: Final = re.compile(r"[\w/#]+:\d+")
# So much of a story is told: beyond it, nobody reads on.
_LINES: Final = 400


class Line(msgspec.Struct, frozen=True):
    """One thing that happened. About a message if it has a key, otherwise about everybody."""

    at: float
    words: str
    key: str = ""


class Story:
    """Of one run, in its order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: list[Line] = []

    def tell(self, words: str, key: str = "") -> None:
        self.lines.append(Line(self._world.now, words, key))

    def about(self, violations: list[str]) -> list[str]:
        """All that concerns everybody, and the messages that are named."""
        keys = dict.fromkeys(key for each in violations for key in _KEYS.findall(each))
        told = [line for line in self.lines if not line.key or line.key in keys]
        return [
            f"{line.at:9.4f}  {line.key + ' ' if line.key else ''}{line.words}" for line in told[-_LINES:]
        ]


class PartedHistory(History):
    """A history that knows where each thing took place."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.story = Story(world)
        self.clients: dict[str, Client] = {}
        self.again: list[tuple[HandOut, Grip]] = []  # handed out while somebody else held it
        self._grips: dict[tuple[str, str], list[Grip]] = {}

    def confirmed(self, key: str) -> None:
        super().confirmed(key)
        life = key.rpartition(":")[0].partition("/")[0]
        self.story.tell(f"is confirmed to {life} at {self._node_of(life)}", key)

    def handed(
        self, place: str, key: str, consumer: str, *, is_marked: bool, is_stale: bool = False
    ) -> HandOut:
        hand_out = super().handed(place, key, consumer, is_marked=is_marked, is_stale=is_stale)
        client = self.clients[consumer.partition("#")[0]]
        marked = ", marked as redelivered" if is_marked else ""
        stale = ", whose connection is broken" if is_stale else ""
        self.story.tell(f"is with {consumer} at {self._node_of(consumer)}{stale} ({place}){marked}", key)
        self._note_holders(hand_out, client)
        return hand_out

    def _note_holders(self, hand_out: HandOut, client: Client) -> None:
        grips = self._grips.setdefault((hand_out.place, hand_out.key), [])
        if not hand_out.is_stale:
            self.again += [(hand_out, grip) for grip in grips if grip.is_held]
        grips.append(Grip.of(hand_out, client))

    def done(self, hand_out: HandOut) -> None:
        super().done(hand_out)
        self.story.tell(f"is done at {hand_out.place}, {hand_out.consumer} is told", hand_out.key)

    def returned(self, hand_out: HandOut) -> None:
        super().returned(hand_out)
        self.story.tell(f"is returned by {hand_out.consumer}", hand_out.key)

    def _node_of(self, life: str) -> str:
        return node_of(self.clients.get(life.partition("#")[0]))

"""Whether anything is missing of what a sender said.

The bus follows pieces (`bus/assembling.py`). Here the members look after each other: each says now and then up to
what number it has itself heard its own frames, and with what number it began in the present configuration. Whoever
has heard less than that has missed something, whatever bus is below (PROTOCOL 1: an unexplained gap, leave). What a
sender said before the configuration in which it was met may be missed; it is no gap.
"""

from __future__ import annotations

from heliograph.bus.interface import Configuration, Incarnation, Origin, Place


class Sequences:
    """The senders of one configuration: who is at what place, and the number of its last frame."""

    def __init__(self) -> None:
        self.known: dict[Place, Incarnation] = {}
        self._first: dict[Incarnation, int] = {}
        self._last: dict[Incarnation, int] = {}

    def configured(self, configuration: Configuration) -> None:
        """Who came or went may come to the same place as somebody else, and what it said meanwhile is unknown."""
        changed = [change.place for change in (*configuration.left, *configuration.joined)]
        self.known = {
            place: who
            for place, who in self.known.items()
            if place in configuration.members and place not in changed
        }
        self._first = {who: self._first[who] for who in self.known.values() if who in self._first}
        self._last = {who: self._last[who] for who in self.known.values() if who in self._last}

    def follows(self, origin: Origin) -> bool:
        """False: a gap. Frames of several pieces count several numbers, so a step may be larger than one."""
        who = self.known.setdefault(origin.place, origin.incarnation)
        return who == origin.incarnation and origin.sequence > self._last.get(who, 0)

    def heard_up_to(self, origin: Origin, sequence: int) -> bool:
        """A sender says up to where it heard itself. False: it heard something that is not here."""
        return sequence <= self._last.get(origin.incarnation, sequence)

    def heard_since(self, origin: Origin, sequence: int) -> bool:
        """A sender says with what it began in this configuration. False: that, or what followed, is not here."""
        return not sequence or self._first.get(origin.incarnation, origin.sequence) <= sequence

    def delivered(self, origin: Origin) -> None:
        self._first.setdefault(origin.incarnation, origin.sequence)
        self._last[origin.incarnation] = origin.sequence

    def last(self, who: Incarnation) -> int:
        return self._last.get(who, 0)

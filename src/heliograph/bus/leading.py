"""Who leads on a bus that is not the home bus: the relay between the two. Everybody on the bus comes to the same
answer, by the order of that bus alone.

In every configuration nobody leads at first, and the first to say `Lead` does. Later on, somebody may lead
instead of the one who does: because that one has ended, or says nothing.
"""

from __future__ import annotations

from typing import Final

from heliograph.bus.bridge_words import Lead, lineage_after, mark_of
from heliograph.bus.interface import Configuration, Incarnation, Origin, Place

NOBODY: Final = Incarnation(b"")


class Leading:
    """As one member of the bus has heard it."""

    def __init__(self) -> None:
        self.configuration: Configuration | None = None
        self.mark = b""
        self.leader: Incarnation | None = None
        self.lead = b""  # names the word by which it leads
        self.lineage = b""  # names all who led, one after the other
        self.last = NOBODY  # who led last, while it is on the bus
        self.place: Place | None = None  # and where it is
        self.home: Place | None = None  # on this bus and on the home bus

    def configured(self, configuration: Configuration) -> None:
        self.configuration, self.mark = configuration, mark_of(configuration)
        self.leader = None
        changed = [change.place for change in (*configuration.left, *configuration.joined)]
        if self.place in changed or self.place not in configuration.members:
            self.place = self.home = None
            self.last = NOBODY

    def said(self, origin: Origin, word: Lead) -> bool:
        """Whether it leads from here on."""
        if self.leader is None:
            counts = word.configuration == self.mark and not word.instead
        else:
            counts = bool(word.instead) and word.instead == self.lead
        if counts:
            self.leader = self.last = origin.incarnation
            self.place, self.home = origin.place, word.home
            self.lead = origin.incarnation + origin.sequence.to_bytes(8, "little")
            self.lineage = lineage_after(self.lineage if word.instead else word.lineage, self.lead)
        return counts

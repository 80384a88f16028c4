"""Where a member comes from: its last view, who was always there since, and what was delivered since."""

from __future__ import annotations

import hashlib

from heliograph.bus.interface import NO_VIEW, Configuration, Incarnation, Origin, Place, Stamp
from heliograph.bus.presence import DIGEST_BYTES
from heliograph.cluster.view import View, number_of, way_of


class Lineage:
    """The past of one incarnation, as its hello tells it (PROTOCOL 2).

    A frame is told from all others by its sender and number, so that is what is hashed, not its bytes.
    """

    def __init__(self, incarnation: Incarnation, number: int) -> None:
        self._incarnation = incarnation
        self.last: Stamp = NO_VIEW
        self.number = number
        self.frames = bytes(DIGEST_BYTES)
        self.way = bytes(DIGEST_BYTES)
        self.passage = bytes(DIGEST_BYTES)
        self._together: dict[Incarnation, Place | None] = {incarnation: None}
        self._running = hashlib.blake2b(digest_size=DIGEST_BYTES)

    @property
    def together(self) -> tuple[Incarnation, ...]:
        return tuple(sorted(self._together))

    def delivered(self, origin: Origin) -> None:
        self._running.update(origin.incarnation + origin.sequence.to_bytes(8, "little"))

    def configured(self, configuration: Configuration) -> None:
        """Whoever was away, even if it is here again, was not in every configuration."""
        changed = [change.place for change in (*configuration.left, *configuration.joined)]
        here = [place for place in configuration.members if place not in changed]
        self._together = {
            who: place for who, place in self._together.items() if place is None or place in here
        }

    def without(self, incarnation: Incarnation) -> None:
        self._together.pop(incarnation, None)

    def settle(self) -> None:
        """The hello speaks of what was delivered up to here."""
        self.frames = self._running.digest()

    def installed(self, view: View, places: dict[Incarnation, Place | None]) -> None:
        """`places` of the view's members; None for this one itself."""
        self.way, self.passage = way_of(view, self._incarnation), self._running.digest()
        self.last, self.number = view.id, number_of(view.id)
        self._together = places
        self._running = hashlib.blake2b(digest_size=DIGEST_BYTES)

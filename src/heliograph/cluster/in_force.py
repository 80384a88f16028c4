"""When a view that is unrestricted may act, and count for its successors (docs/decisions/0014).

That a member said hello does not show that it is in the view. So those arrive first without whom no other view could
follow the same one; then all of U put the view on disk, those who were of U before ahead of those who have just
caught up; and when that was heard from all of them, it is in force. All of it by the order of deliveries, so those
who go on together from here agree on it.
"""

from __future__ import annotations

from heliograph.bus.interface import Incarnation
from heliograph.cluster.partition_state import Partition, are_most


class InForce:
    """One view, from its installation on. In D there is nothing to wait for, and nothing comes into force."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._arrived: dict[Incarnation, None] = {}
        self._recorded: dict[Incarnation, None] = {}

    def arrived(self, who: Incarnation) -> None:
        """`Arrive`: it has said something in the view."""
        self._arrived[who] = None

    def recorded(self, who: Incarnation) -> None:
        """`ViewRecorded`, stamped with the view: it has the view on disk."""
        self._recorded[who] = None

    @property
    def have_arrived(self) -> bool:
        """Whether all are there who must be before anybody puts the view on disk: there, it counts."""
        partition = self._partition
        if not partition.is_unrestricted or not all(who in self._arrived for who in partition.managers):
            return False
        came = [who for who in partition.came if who in self._arrived]
        return not partition.voters or are_most(came, partition.voters)

    def may_record(self, who: Incarnation) -> bool:
        """Whether it forces the record now, and says so when it is there. A newcomer to U waits for the elders: as
        long as none of them has this view on disk, they may go on without it."""
        partition = self._partition
        if not self.have_arrived or who not in partition.unrestricted:
            return False
        return who in partition.elders or all(elder in self._recorded for elder in partition.elders)

    @property
    def is_in_force(self) -> bool:
        return self.have_arrived and all(who in self._recorded for who in self._partition.unrestricted)

    @property
    def awaited(self) -> tuple[Incarnation, ...]:
        """Of whom something is still to be heard, for whoever asks why nothing is handed out."""
        partition = self._partition
        if not partition.is_unrestricted or self.is_in_force:
            return ()
        if self.have_arrived:
            return tuple(who for who in partition.unrestricted if who not in self._recorded)
        wanted = dict.fromkeys((*partition.managers, *partition.came))
        return tuple(who for who in wanted if who not in self._arrived)

"""What happens to a cluster whose history is read: partitions, and the one that a reader must not be misled by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulation.holding import replica_of
from simulation.partition_faults import CUTS, HEALS, OTHERS, PartitionWeather

_DIRECTED: Final = "cut_off_reader"
# So often it is among the kinds that a seed has: with few others it strikes all the time, with all now and then.
_SHARE: Final = 3


class FeedWeather(PartitionWeather):
    """Of a cluster with a reader."""

    kinds: tuple[str, ...] = (*CUTS, *HEALS, *OTHERS, _DIRECTED)
    find_reader: Callable[[], int]  # at which host its client manager is; 0: nowhere

    def insist(self) -> None:
        """The kinds of a seed are as the dice fall, but for this one."""
        self._kinds = (*(kind for kind in self._kinds if kind != _DIRECTED), *(_DIRECTED,) * _SHARE)

    def _cut_off_reader(self) -> None:
        """Its client manager with one message manager: they are restricted, and the others mostly go on. Both write,
        and the same positions are not the same records."""
        host = self.find_reader()
        managers = [
            int(each.machine.name.removeprefix("node"))
            for each in self._supervisors
            if replica_of(each) is not None
        ]
        if not host or not managers:
            self._cut()
            return
        part = [host] if host in managers else [host, self.dice.choice(managers)]
        self._cut_into([part, [each for each in self._network.hosts if each not in part]])

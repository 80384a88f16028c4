"""Who has what on disk when a client of a cluster is told that its message is safe (PROTOCOL 5): the primary and,
where a backup counts, another. And whether they all have the same in the end.

Clients alone cannot see it: a message that is on one disk only comes back with that disk, and nobody leads without
it. So this looks at the disks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.nodes.cluster_server import ClusterServer
from heliograph.nodes.leading import Leading
from heliograph.nodes.replica import Replica
from simulation.checkers import named
from simulation.history import History
from simulation.supervisor import Supervisor

if TYPE_CHECKING:
    from simulation.disk import SimDisk

# One confirmation in so many is looked at: it takes a search through files.
_EVERY: Final = 4


class _Backups(msgspec.Struct):
    """Those of a sub-cluster, as its primary knew them."""

    managers: list[Supervisor]
    known: object = None
    count: int = 0
    since: int = 0  # the index from which they had to have everything before it was confirmed

    def count_now(self) -> bool:
        """Whether there is one primary whose backups are those of its view, and so had all that came before it; or
        have been the same since some index, and have that."""
        leading = list(self._leading())
        if len(leading) != 1:
            self.known = None
            return False
        replica, primary = leading[0]
        backups = primary._there
        if backups is not self.known or len(backups) != self.count:
            self.known, self.count = backups, len(backups)
            self.since = primary._manager.place.index
        of_view = replica.roles.backups if replica.roles is not None else ()
        if of_view and all(who in of_view for who in backups):
            return True
        return bool(backups) and max(backups.values()) >= self.since

    def _leading(self) -> Iterator[tuple[Replica, Leading]]:
        for manager in self.managers:
            replica = replica_of(manager)
            if replica is not None and replica._leading is not None:
                yield replica, replica._leading

    def differences(self) -> list[str]:
        found = [
            f"{manager.machine.name} is not running" for manager in self.managers if not manager.is_running
        ]
        replicas = [replica for manager in self.managers if (replica := replica_of(manager)) is not None]
        leading = [replica for replica in replicas if replica.is_leading]
        if len(leading) != 1:
            return [*found, f"{len(leading)} lead"]
        ours = leading[0].manager.place
        for replica in replicas:
            place = replica.manager.place
            if replica.reunion.branches.all:
                found.append(f"{replica.name} has something of another part that is not in the log yet")
            elif not replica.state.is_synchronised:
                found.append(f"{replica.name} does not follow")
            elif (place.index, place.chain) != (ours.index, ours.chain):
                found.append(f"the logs of {replica.name} and of {leading[0].name} are not the same")
        return found


class Holding:
    """Looks at disks while a run goes on."""

    def __init__(self, history: History, *sub_clusters: list[Supervisor]) -> None:
        """`sub_clusters`: the message managers of each."""
        self.violations: list[str] = []
        self.looked = 0
        self._history = history
        self._backups = [_Backups(managers) for managers in sub_clusters]
        self._managers = [manager for managers in sub_clusters for manager in managers]
        self._confirmed = 0

    def confirmed(self, key: str) -> None:
        """A client hears now that this message is safe."""
        self._confirmed += 1
        all_count = [backups.count_now() for backups in self._backups]  # wherever it is
        if all(all_count) and self._confirmed % _EVERY == 0 and not self._may_be_done(key):
            self.looked += 1
            needle = f"{key}|".encode()
            holders = sum(1 for manager in self._managers if _has(manager.machine.disk, needle))
            if holders < 2 and self._was_written(needle):
                self.violations.append(f"holding: {key} was confirmed and is on {holders} disks")

    def differences(self) -> list[str]:
        """When it is calm one leads, all others follow, and their logs are one."""
        return named("agreement", (found for backups in self._backups for found in backups.differences()))

    def _may_be_done(self, key: str) -> bool:
        """What a consumer has need not be on any disk any more when its sender hears of it. What nobody has to get
        need not be there at all, nor what may be lost."""
        history = self._history
        sent = history.sent[key]
        places = history.places_of(sent)
        return sent.may_be_lost or not places or any((place, key) in history.by_place for place in places)

    def _was_written(self, needle: bytes) -> bool:
        """Whether the one that leads now has written it at all. Otherwise another one confirmed it, that ended since:
        this one may have been stopped meanwhile, and not know that it leads no more."""
        return any(
            needle in file.data
            for manager in self._managers
            if (replica := replica_of(manager)) is not None and replica.is_leading
            for file in manager.machine.disk.files.values()
        )


def replica_of(manager: Supervisor) -> Replica | None:
    """The message manager that runs there now."""
    if not manager.is_running or not isinstance(manager.server, ClusterServer):
        return None
    return manager.server.replica


def _has(disk: SimDisk, needle: bytes) -> bool:
    """Whether a loss of power would leave it."""
    paths = sorted(disk.files, reverse=True)
    segments = [path for path in paths if path.endswith(".segment")]  # where nearly all are, the newest first
    for path in (*segments, *(path for path in paths if "/large/" in path)):
        file = disk.files[path]
        at = file.data.rfind(needle, 0, file.written)
        while at >= 0:
            if file.is_synced(at):
                return True
            at = file.data.rfind(needle, 0, at)
    return False

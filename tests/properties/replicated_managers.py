"""Message managers of production in one process, which can die at any moment, and what they know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from heliograph.bus.interface import ChannelBus
from heliograph.destinations.snapshot import DestinationState, LevelState, StageState, decode_state
from heliograph.nodes import configuration as settings
from heliograph.nodes.cluster_member import ClusterMember
from heliograph.nodes.cluster_server import ClusterServer
from heliograph.nodes.message_manager import MessageManager


def settings_of(base: Path, node: int) -> settings.Configuration:
    """Small, so that segments end, snapshots are taken and pages leave memory within a few dozen messages."""
    found = settings.load(
        None,
        {
            "server.data": str(base / f"n{node}"),
            "server.port": 0,
            "identity.node": node,
            "cluster.name": "test",
            "cluster.role": "message-manager",
            "cluster.seniority": node,
            "cluster.dispatch_majority": False,  # the desks of these tests know nothing of it
            "journal.durability": "write",
        },
    )
    replace = msgspec.structs.replace
    return replace(
        found,
        journal=replace(found.journal, segment_bytes=1 << 15, snapshot_every_bytes=1 << 15),
        memory=replace(found.memory, resident_bytes=20_000),
        sessions=replace(found.sessions, lease_seconds=0.05),
    )


class Node:
    """A message manager's place: its folder, and whoever runs there."""

    def __init__(self, base: Path, number: int, bus: ChannelBus) -> None:
        self.number = number
        self._settings = settings_of(base, number)
        self._bus = bus
        self.server: ClusterServer | None = None
        self._retreats = 0

    @property
    def retreats(self) -> int:
        """How often it stopped in order to take in a branch: what was not persistent ended then."""
        replica = self.server.replica if self.server is not None else None
        return self._retreats + (replica.reunion.retreats if replica is not None else 0)

    async def start(self) -> None:
        self.server = ClusterServer(self._settings, self._bus)
        await self.server.start()

    @property
    def is_leading(self) -> bool:
        return self.server is not None and self.server.replica is not None and self.server.replica.is_leading

    @property
    def is_synchronised(self) -> bool:
        return (
            self.server is not None
            and self.server.replica is not None
            and self.server.replica.state.is_synchronised
        )

    @property
    def incarnation(self) -> bytes | None:
        return self.server.member.incarnation if self.server is not None else None

    @property
    def is_frozen(self) -> bool:
        stay = self.server.member._stay if self.server is not None else None
        return stay is None or stay.membership.is_frozen  # type: ignore[attr-defined]

    def has_gone_without(self, member: ClusterMember) -> bool:
        """Whether it has left the last view of this member, which did not come straight along."""
        assert self.server is not None
        assert self.server.replica is not None
        mine, last = self.server.member.view, member.view
        if mine is None or last is None or mine.number <= last.number:
            return False
        return member.incarnation not in self.server.replica._came

    def mute(self, is_mute: bool = True) -> None:
        """What it says has no place in the order, and is lost if it dies."""
        stay = self.server.member._stay if self.server is not None else None
        assert stay is not None
        stay.membership.is_mute = is_mute  # type: ignore[attr-defined]

    @property
    def backups(self) -> list[bytes]:
        """Who goes on if it dies: those that the view counts on, which all have on disk."""
        assert self.server is not None
        standing = self.server.own.standing
        if standing is None or not self.is_in_force:
            return []
        return [who for who in standing.partition.unrestricted if who != self.incarnation]

    @property
    def is_in_force(self) -> bool:
        """Whether its view is one from which others can go on: all who count have it on disk."""
        if self.server is None or self.server.own.standing is None:
            return False
        return self.server.own.standing.is_in_force and self.server.member.is_installed

    @property
    def manager(self) -> MessageManager:
        assert self.server is not None
        assert self.server.replica is not None
        return self.server.replica.manager

    async def stop(self) -> None:
        if self.server is not None:
            self._retreats = self.retreats
            await self.server.stop()
            self.server = None

    async def die(self, said: int) -> None:
        """As by kill -9: what it wrote stays, and nothing more comes of it."""
        self._retreats = self.retreats
        server, self.server = self.server, None
        assert server is not None
        assert server.replica is not None
        server.replica.reunion.stop()
        stay = server.member._stay
        if stay is not None:
            stay.is_over = True
            stay.membership.die(said)  # type: ignore[attr-defined]
        for pending in (server.member._ticking, server.member._coming):
            if pending is not None:
                pending.cancel()
        server._tick._writes = server._tick._sends = ()
        server.replica.bringing.stop()
        if server.replica._catching_up is not None:
            server.replica._catching_up.cancel()
        await server.replica.host.stop()
        abandon(server.replica.manager)


def abandon(manager: MessageManager) -> None:
    """The end of its process, for a manager: no timer rings, nothing is written, the lock is let go."""
    for timer in (manager._housekeeping, manager._sweeping, manager._alarm):
        if timer is not None:
            timer.cancel()
    manager.large.stop()
    journal = manager.journal
    if journal._closed:
        return
    journal._keeper.stop()
    journal._syncer.stop()
    journal._closed = True
    if journal._lazy_timer is not None:
        journal._lazy_timer.cancel()
    journal._keeper.stop()
    journal._reader_worker.stop()
    journal._reader.close()
    journal._writer.stop()
    journal._directory.close()


# ---- what they know


def knowledge(manager: MessageManager) -> dict[str, Any]:
    """What replicas must agree on: who is known, and which messages wait or are handed out, how often."""
    state = decode_state(manager.externalise())
    return {
        "sessions": sorted(session.session.hex() for session in state.sessions),
        "stages": _stages(state.stages),
        "prepared": sorted(
            (each.record.session.hex(), each.record.number, each.record.consumed, _stages(each.stages))
            for each in state.prepared
        ),
        "finishing": sorted((each.session.hex(), each.number) for each in state.finishing),
        **{each.address: _of_destination(each) for each in state.destinations},
    }


def _stages(stages: list[StageState]) -> list[tuple[int, bytes]]:
    return sorted((stage.destination, bytes(stage.block)) for stage in stages)


def _of_destination(state: DestinationState) -> dict[str, Any]:
    if state.address.startswith("queue:"):
        return {
            "number": state.number,
            "waiting": _waiting(state.levels),
            "given": sorted(
                (number, level.priority, entry.deliveries)
                for level in state.levels
                for entry in level.dispatched
                for number in range(entry.number, entry.last + 1)
            ),
        }
    return {
        "number": state.number,
        **{str(each.number): _of_subscription(state, each) for each in state.subscriptions},
    }


def _waiting(levels: list[LevelState]) -> list[tuple[int, int, int]]:
    return sorted(
        (number, level.priority, entry.deliveries)
        for level in levels
        for page in level.pages
        for entry in page.entries()
        for number in range(entry.number, entry.last + 1)
    )


def _of_subscription(state: DestinationState, subscription: Any) -> dict[str, Any]:
    """What it has yet to read counts like what waits."""
    waiting: dict[tuple[int, int], int] = {}
    given = []
    cursors = {cursor.priority: cursor for cursor in subscription.cursors}
    for sequence in state.sequences:
        if (sequence.selector, sequence.without) != (subscription.terms.selector, subscription.terms.without):
            continue
        cursor = cursors.get(sequence.priority)
        begins = cursor.next_number if cursor is not None else subscription.begins
        for page in sequence.pages:
            for entry in page.entries():
                for number in range(max(entry.number, begins), entry.last + 1):
                    waiting[number, sequence.priority] = 0
    for cursor in subscription.cursors:
        for entry in cursor.waiting:
            for number in range(entry.number, entry.last + 1):
                waiting[number, cursor.priority] = entry.deliveries
        given += [
            (number, cursor.priority, entry.deliveries)
            for entry in cursor.dispatched
            for number in range(entry.number, entry.last + 1)
        ]
    return {
        "terms": msgspec.to_builtins(subscription.terms),
        "waiting": sorted((*key, deliveries) for key, deliveries in waiting.items()),
        "given": sorted(given),
    }

"""Who is what in a view (M9). A function of what its members said, so that all agree.

PROTOCOL 3: the primary is a property of the view. Who it is, and who has its log, follows from the partition state
(`partition_state.py`); but who has not the log of a primary gives those who are missing some time to come before it
leads without them, restricted.
"""

from __future__ import annotations

import msgspec

from heliograph.bus.interface import Incarnation
from heliograph.bus.presence import MESSAGE_MANAGER, NodeState
from heliograph.cluster.partition_state import Partition
from heliograph.cluster.statements import partition_of
from heliograph.cluster.view import View


class Roles(msgspec.Struct, frozen=True):
    """The members of a view by what they are. `backups` have the primary's log; `others` have to catch up.

    Where there is no primary, `missing` are the message managers that the others wait for; none are named at the very
    first start, when nobody knows yet who they are.
    """

    primary: Incarnation | None
    backups: tuple[Incarnation, ...]
    others: tuple[Incarnation, ...]
    client_managers: tuple[Incarnation, ...]
    states: dict[Incarnation, NodeState]
    partition: Partition
    missing: tuple[str, ...] = ()


def roles_in(view: View) -> Roles:
    managers = _of_one_cluster(
        {who: node for who, hello in view.hellos for node in hello.nodes if node.role == MESSAGE_MANAGER}
    )
    partition = partition_of(view, managers)
    primary, clients = partition.primary, partition.clients
    if primary is None or not (partition.is_unrestricted or _may_be_restricted(managers[primary])):
        return Roles(None, (), tuple(managers), clients, managers, partition, partition.missing)
    backups = tuple(who for who in partition.followers if who != primary)
    others = tuple(who for who in managers if who != primary and who not in backups)
    return Roles(primary, backups, others, clients, managers, partition)


def _may_be_restricted(manager: NodeState) -> bool:
    return manager.is_synchronised or not manager.is_waiting


def _of_one_cluster(managers: dict[Incarnation, NodeState]) -> dict[Incarnation, NodeState]:
    """Whose data is of another cluster has no say here, whatever its log is like: those who have the log of a primary
    are right, or else the most."""
    votes: dict[bytes, tuple[bool, int]] = {}
    for node in managers.values():
        if node.cluster:
            synchronised, count = votes.get(node.cluster, (False, 0))
            votes[node.cluster] = (synchronised or node.is_synchronised, count + 1)
    if len(votes) <= 1:
        return managers
    right = max(votes, key=lambda cluster: (*votes[cluster], cluster))
    return {who: node for who, node in managers.items() if node.cluster in (b"", right)}


def _has_log_of(leader: NodeState, node: NodeState) -> bool:
    """Two parts that meet may each have somebody synchronised, with different logs."""
    return leader.is_synchronised and (leader.lineage, leader.lineage_id) == (node.lineage, node.lineage_id)


def has_log_of(leader: NodeState, node: NodeState) -> bool:
    """Whether one that is not counted yet can go on from its own log. A primary that goes on leading is ahead of
    everybody, and what it says next shows whether it is the same log."""
    if not _has_log_of(leader, node):
        return False
    return leader.is_leading or (leader.index, leader.chain) == (node.index, node.chain)

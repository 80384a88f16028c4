"""Who leads a sub-cluster in a view (M9). A function of what its members said, so that all agree.

PROTOCOL 3: the primary is a property of the view, the most senior synchronised message manager. Whoever leads goes on
leading, since a change costs the clients a pause; unless it wants to leave. Where nobody has the log of a primary, as
when all have just started, the one whose log is the most recent leads, and the others catch up with it; but nobody
does while one is missing that may know more.
"""

from __future__ import annotations

import msgspec

from heliograph.bus.interface import Incarnation
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, NodeState
from heliograph.cluster.view import View


class Roles(msgspec.Struct, frozen=True):
    """The members of a view by what they are. `backups` have the primary's log; `others` have to catch up.

    Where there is no primary, `missing` are the message managers without which none of the others may lead; none
    are named at the very first start, when nobody knows yet who they are.
    """

    primary: Incarnation | None
    backups: tuple[Incarnation, ...]
    others: tuple[Incarnation, ...]
    client_managers: tuple[Incarnation, ...]
    states: dict[Incarnation, NodeState]
    missing: tuple[str, ...] = ()


def roles_in(view: View) -> Roles:
    managers: dict[Incarnation, NodeState] = {}
    clients: list[Incarnation] = []
    for who, hello in view.hellos:
        for node in hello.nodes:
            if node.role == MESSAGE_MANAGER:
                managers[who] = node
            elif node.role == CLIENT_MANAGER and who not in clients:
                clients.append(who)
    managers = _of_one_cluster(managers)
    if not managers:
        return Roles(None, (), (), tuple(clients), managers)
    candidates = _not_disowned(managers)
    if not candidates:
        return Roles(None, (), tuple(managers), tuple(clients), managers)
    primary = min(candidates, key=lambda who: _rank(candidates[who], who))
    leader = managers[primary]
    if not leader.is_synchronised and not _all_are_here(leader, managers):
        return Roles(None, (), tuple(managers), tuple(clients), managers, _missing(leader, managers))
    backups = tuple(
        who
        for who, node in managers.items()
        if who != primary
        and who in candidates
        and node.is_synchronised
        and not node.is_leading
        and _has_log_of(leader, node)
    )
    others = tuple(who for who in managers if who != primary and who not in backups)
    return Roles(primary, backups, others, tuple(clients), managers)


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


def _not_disowned(managers: dict[Incarnation, NodeState]) -> dict[Incarnation, NodeState]:
    """Those went on without it whom an operator told to. However far its log goes, they have another since: it has to
    catch up with them."""
    disowned = [store for node in managers.values() for store in node.disowned]
    return {who: node for who, node in managers.items() if node.store not in disowned}


def _all_are_here(leader: NodeState, managers: dict[Incarnation, NodeState]) -> bool:
    """PROTOCOL 3, rule 3: whoever was not there at the end may not know the end. Only when all who had the log in the
    last view that anybody remembers are here again is it certain that nothing is missing."""
    if not leader.holders:
        return len(managers) >= leader.expected  # the very first start
    return not _missing(leader, managers)


def _missing(leader: NodeState, managers: dict[Incarnation, NodeState]) -> tuple[str, ...]:
    here = [node.store for node in managers.values()]
    names = leader.holder_names or tuple(store.decode(errors="replace") for store in leader.holders)
    return tuple(name for store, name in zip(leader.holders, names, strict=False) if store not in here)


def _has_log_of(leader: NodeState, node: NodeState) -> bool:
    """Two parts that meet may each have somebody synchronised, with different logs."""
    return leader.is_synchronised and (leader.lineage, leader.lineage_id) == (node.lineage, node.lineage_id)


def has_log_of(leader: NodeState, node: NodeState) -> bool:
    """Whether one that is not counted yet can go on from its own log. A primary that goes on leading is ahead of
    everybody, and what it says next shows whether it is the same log."""
    if not _has_log_of(leader, node):
        return False
    return leader.is_leading or (leader.index, leader.chain) == (node.index, node.chain)


def _rank(node: NodeState, who: Incarnation) -> tuple[int, bool, bool, bool, int, int, str, bytes]:
    """M9: the most up to date leads; seniority breaks the tie, and the name that of seniority.

    The lineage comes first: one that was stopped for long and goes on still takes itself for synchronised, and knows
    nothing of the views that others had meanwhile, even if they have just started again.
    """
    return (
        -node.lineage,
        not node.is_synchronised,
        node.is_leaving,
        not node.is_leading,
        node.seniority if node.is_synchronised else -node.index,
        node.seniority,
        node.name,
        who,
    )

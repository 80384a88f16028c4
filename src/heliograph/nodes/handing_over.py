"""An administrator wants another message manager to lead (M9): whoever leads here says that it wants to go, and the
next view has another at its head. It stays as a backup, and may lead again when its turn comes.

Who comes to lead is not chosen here: the view says so (`cluster/partition_state.py`). What a node does that is
stopped is in `replica.py`.
"""

from __future__ import annotations

from typing import Any

from heliograph.model.errors import ClientFault, Unavailable
from heliograph.nodes.event_log import Record
from heliograph.nodes.replica import Replica
from heliograph.nodes.station import Station


def order_hand_over(station: Station, replica: Replica | None, by: str, record: Record) -> dict[str, Any]:
    """Raises HeliographError if nobody leads here, or nobody else could. It is done when the others agree: whoever
    asked looks at who leads then."""
    if replica is None:
        raise ClientFault(
            "this node keeps no messages: name the message manager that leads, as `helio cluster status` shows it",
            code="not-leading",
        )
    if not replica.is_leading:
        raise ClientFault(
            "this node does not lead: name the one that does, as `helio cluster status` shows it",
            code="not-leading",
        )
    if not replica.is_installed or not replica.may_act:
        raise Unavailable(
            "the view is not in force yet: try again in a moment, `helio cluster status` says who is awaited",
            code="view-not-in-force",
        )
    backups = replica.backup_names
    if not backups:
        raise ClientFault(
            "no other message manager has all that this one has, so none can lead: start one, or wait until it has"
            " caught up, as `helio cluster status` shows it",
            code="no-backup",
        )
    record("hand-over-ordered", by=by, sub_cluster=station.sub_cluster, index=replica.manager.place.index)
    replica.let_another_lead()
    return {"sub_cluster": station.sub_cluster, "backups": backups}

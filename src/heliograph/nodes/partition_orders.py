"""What an administrator orders in a part of a cluster whose other parts are gone for good (P10).

A node that is lost is removed: where the part is unrestricted, the primary proposes to be without it, and most have
to agree, as with every enrolment. Where it is restricted nobody can know whether another part goes on, so it is the
administrator who says that none does: each message manager writes it down by itself, be it who belongs to the
cluster (`remove`) or that this part goes on as the unrestricted one (`override`), all in the same view.
"""

from __future__ import annotations

from typing import Any, Final

from heliograph.cluster.partition_state import Enrolment, State
from heliograph.cluster.standing import Standing
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.nodes.event_log import Record
from heliograph.nodes.replica import Replica
from heliograph.nodes.station import Station

PROPOSED: Final = "proposed"
DECREED: Final = "decreed"
OVERRIDDEN: Final = "overridden"
# Somebody else does it, or it is none of this node's business.
NOTHING: Final = ""


class PartitionOrders:
    """Of one message manager."""

    def __init__(self, station: Station, replica: Replica, record: Record) -> None:
        self._station = station
        self._replica = replica
        self._record = record

    def remove(self, name: str, by: str) -> dict[str, Any]:
        """A node is gone for good. Raises HeliographError."""
        standing = self._standing()
        enrolment = standing.enrolment
        is_known = enrolment is not None and name in (
            *dict(enrolment.message_managers),
            *enrolment.client_managers,
        )
        if enrolment is None or not is_known:
            return {"done": NOTHING}
        if name not in standing.missing:
            raise ClientFault(
                f"node {name[:60]} is here: stop it first, if it is to go", code="node-not-awaited"
            )
        done = self._decree(enrolment, name) if _is_restricted(standing) else self._propose(standing, name)
        if done:
            self._record("node-removed", which=name, how=done, by=by, view=standing.number)
        return {"done": done}

    def _decree(self, before: Enrolment, name: str) -> str:
        left = tuple(entry for entry in before.message_managers if entry[0] != name)
        clients = tuple(each for each in before.client_managers if each != name)
        decreed = Enrolment(before.epoch + 1, left, clients)
        self._replica.enrolled(decreed, is_settled=True, then=self._replica.decreed)
        return DECREED

    def _propose(self, standing: Standing, name: str) -> str:
        if not standing.is_in_force:
            raise Unavailable(
                "the view is not in force yet: try again in a moment, `helio cluster status` says who is awaited",
                code="view-not-in-force",
            )
        if not standing.is_primary:
            return NOTHING
        if standing.unsettled is not None:
            raise Unavailable(
                "another change of who belongs to the cluster is under way: try again in a moment",
                code="enrolment-unsettled",
            )
        self._station.remove(standing, name)
        return PROPOSED

    def override(self, by: str) -> dict[str, Any]:
        """This part goes on as the unrestricted one. Raises HeliographError."""
        standing = self._standing()
        if not _is_restricted(standing):
            raise ClientFault(
                f"this part is unrestricted ({standing.partition.state}): there is nothing to override",
                code="not-restricted",
            )
        if standing.enrolment is None:
            raise ClientFault(
                "at the very first start all message managers must be there: start the others",
                code="never-whole",
            )
        record = standing.as_overridden
        if self._replica.state.store not in record.stores:
            return {"done": NOTHING}
        self._replica.record_view(record, self._replica.decreed)
        self._record("partition-overridden", by=by, view=standing.number, missing=", ".join(standing.missing))
        return {"done": OVERRIDDEN}

    def _standing(self) -> Standing:
        standing = self._station.standing
        if standing is None or not self._station.member.is_installed:
            raise Unavailable(
                "the nodes that are here have to agree on who is: try again in a moment",
                code="view-not-in-force",
            )
        return standing


def _is_restricted(standing: Standing) -> bool:
    return standing.partition.state is State.D

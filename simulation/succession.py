"""Who leads after whom (M9, PROTOCOL 3): whoever begins with nothing but its disk has the newest log of its view.

What a wrong one leaves out comes back, since those who know more set it aside and it is taken in: clients see nothing
but a pause. So this looks at who leads.
"""

from __future__ import annotations

from heliograph.bus.presence import NodeState
from heliograph.cluster.log import decode_unrestricted
from heliograph.nodes.replica import Replica


class Succession:
    """Hears of everybody that begins to lead, as it does so."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def heard(self, replica: Replica | None, event: str, **fields: object) -> None:
        """What a node tells. Whoever takes over from another knows what that one was through with, and need not have
        all that it wrote."""
        if event != "replica-leads" or fields["took_over"] or replica is None or replica.roles is None:
            return
        states = replica.roles.states
        ours = next(state for state in states.values() if state.name == replica.name)
        for theirs in states.values():
            if _extent(theirs) > _extent(ours):
                self.violations.append(
                    f"succession: {ours.name} leads with the log up to {_extent(ours)}, though"
                    f" {theirs.name} has it up to {_extent(theirs)}"
                )


def _extent(state: NodeState) -> tuple[int, int]:
    """The last view in force that it has on disk, and how far its log is of those."""
    number = decode_unrestricted(state.record).number if state.record else 0
    return number, state.reach[0]

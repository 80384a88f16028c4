"""What a restricted part may have handed out without a trace (PROTOCOL 4).

Who hands something out writes that down first, and does not force it: that is lost with the machine. If its log goes
on, all that waits in it comes marked (`recovery.py`). If it parted from the log that goes on, only what its last view
let go does: of a queue, what was accepted in that; of a subscription that gets each message, whatever waits for it.
What another part has besides was handed out there by nobody.

An unrestricted view loses nothing so: what it handed out is in the logs of others, or it goes on with its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.cluster.dispatch_rules import Message, Situation, own_hold
from heliograph.cluster.partition_state import State
from heliograph.cluster.ranges import ALL_THAT_FOLLOWS, Ranges, common, minus, union
from heliograph.destinations.branch import Layout, entries_for, held_back_in
from heliograph.destinations.destination import Destination
from heliograph.destinations.pages import Entry
from heliograph.destinations.snapshot import DestinationState
from heliograph.destinations.standing import Standing
from heliograph.model.ids import LaneId

_NO_LANE = LaneId(b"")


def untraced_in(
    destination: Destination, standing: Standing | None, state: DestinationState, layout: Layout
) -> dict[int, Ranges]:
    """By list and number, where a log ended that lacks its last records. `layout`: of what may be held back there."""
    if standing is None or standing.state is not State.D:
        return {}
    return {
        number: minus(
            common(waiting, _may_go(destination, standing, number)), held_back_in(destination, number, layout)
        )
        for number, waiting in _unmarked(state).items()
    }


def _unmarked(state: DestinationState) -> dict[int, Ranges]:
    """What waits, and was handed out to nobody as far as the log says."""
    found = {
        each.number: _numbers_of(entries_for(state, each))
        for each in state.subscriptions
        if each.terms.durable
    }
    if state.levels:
        pages = [page for level in state.levels for page in level.pages]
        found[0] = _numbers_of(entry for page in pages for entry in page.entries())
    return found


def _numbers_of(entries: Iterable[Entry]) -> Ranges:
    return union([(entry.number, entry.last) for entry in entries if not entry.deliveries])


def _may_go(destination: Destination, standing: Standing, list_number: int) -> Ranges:
    """Numbers of messages that may be handed out, for the place where they were accepted."""
    situation = Situation(
        state=standing.state, is_in_force=standing.is_in_force, gets_each=destination.gets_each(list_number)
    )
    places = destination.stamps.places(standing)
    ends = [*(first - 1 for first, _ in places[1:]), ALL_THAT_FOLLOWS]
    return union(
        [
            (first, last)
            for (first, where), last in zip(places, ends, strict=True)
            if own_hold(situation, Message(lane=_NO_LANE, where=where)) is None
        ]
    )

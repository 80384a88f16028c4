"""What an audit holds against a server (D4): judged for one message by what the journal says of it, in order.

- **lost**: noted as done without having been handed out, though it had not expired, was not moved, is not
among the dead, and neither the destination's policy nor an administrator had it removed.
- **doubled**: handed out after it was done; or handed out twice with neither a return nor a start of the server
between.
- **out of order**: handed out before an earlier message of its unit of order, or of its lane and priority.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NEVER = (1 << 62, 0)
ENDS = ("done", "removed", "united")
WANTED = ("retention", "purged", "deleted")
"""Why a message may be removed at any time. What expired must have been past its time."""
Place = tuple[int, int]
"""An LSN, and the place in its record."""


class Verdict(NamedTuple):
    """Of one message on one list."""

    handed_out: Place  # first; NEVER
    done: Place
    doubled: int
    is_removed: bool  # done, and never handed out
    is_elsewhere: bool  # another part of the cluster had it
    removal: str = ""  # why it was removed, where the journal says so


def judge(history: Iterable[tuple[int, int, str, str]], starts: Sequence[int]) -> Verdict:
    """`history`: LSN, place, kind and reason of what happened to a message, in order; `starts`: where the server
    was started."""
    first = done = NEVER
    last = 0
    is_out = False
    doubled = 0
    is_elsewhere = False
    removal = ""
    for lsn, place, kind, reason in history:
        if kind == "dispatched":
            restarted = bisect_right(starts, lsn) > bisect_right(starts, last)
            doubled += done != NEVER or (is_out and not restarted)
            first = min(first, (lsn, place))
            is_out, last = True, lsn
        elif kind == "returned":
            is_out = False
        elif kind in ENDS and done == NEVER:  # a purge names everything, also what was gone before it
            done, removal = (lsn, place), reason
        is_elsewhere = is_elsewhere or kind in ("united", "seen")
    return Verdict(first, done, doubled, first == NEVER and done != NEVER, is_elsewhere, removal)


def overtaking(places: Sequence[tuple[int, Place]]) -> list[int]:
    """Numbers of messages that were handed out before an earlier one. `places`: each message of a unit, or of a
    lane and priority, by number, with when it was first handed out; NEVER: it waits."""
    found = []
    latest: Place = (-1, 0)
    for number, place in sorted(places):
        if place != NEVER and place < latest:
            found.append(number)
        latest = max(latest, place)
    return found

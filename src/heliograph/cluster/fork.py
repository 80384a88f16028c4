"""Where two logs part: the last index up to which they are the same (docs/decisions/0010).

Members of a view that have the primary's log write the same records in it; only what was not delivered to all when it
ended can differ. So the logs agree up to where the last view that both went through ended, with whom it ended first.
"""

from __future__ import annotations

from heliograph.cluster.log import LogPlace, ViewMark

NOTHING_IN_COMMON = -1


def fork_of(host: LogPlace, views: list[ViewMark], index: int) -> int:
    """The last index that a host has in common with somebody who came through these views up to that index."""
    if not views and not index:
        return 0
    ends = _ends(host)
    for mark in reversed(views):
        end = ends.get(mark.id)
        if end is not None:
            return min(index if mark is views[-1] else _end_in(views, mark, index), end)
    return NOTHING_IN_COMMON


def has_more(host: LogPlace, view: bytes, index: int) -> bool:
    """Whether somebody whose log goes up to that index, in a view that it was in last, has something that the host
    has not: another part of a cut has led it."""
    end = _ends(host).get(view)
    return index > (0 if end is None else end)


def _ends(host: LogPlace) -> dict[bytes, int]:
    """How far the host's log went in each view."""
    following = [mark.index for mark in host.views[1:]] + [host.index]
    return {mark.id: end for mark, end in zip(host.views, following, strict=True)}


def _end_in(views: list[ViewMark], mark: ViewMark, index: int) -> int:
    behind = views.index(mark) + 1
    return views[behind].index if behind < len(views) else index

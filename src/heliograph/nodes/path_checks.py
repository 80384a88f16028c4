"""Between the sub-cluster that keeps the paths of units and the members that have their messages (U6).

Sub-clusters do not hear one another; client managers hear all. When a path is used by nobody, its member is asked how
old what it has is, and the keeper is told. Several client managers may do so at once: a report does no harm twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from heliograph.bus.commands import Answered, Command, OldestWanted, PathsChecked, PathsUnused, Rejected

Ask = Callable[[str, Callable[[int], Command], Callable[[Answered | Rejected], None]], None]
"""Ask a sub-cluster something, made with the number of the request, and hear the answer."""


class PathChecks:
    """Carries questions and answers; remembers nothing."""

    def __init__(self, ask: Ask, say: Callable[[str, Command], None]) -> None:
        """`ask` and `say` do nothing where nobody leads."""
        self._ask = ask
        self._say = say

    def unused(self, keeper: str, news: PathsUnused) -> None:
        self._ask(
            news.member,
            lambda request: OldestWanted(request, news.address, news.sessions),
            partial(self._answered, keeper, news),
        )

    def _answered(self, keeper: str, news: PathsUnused, answer: Answered | Rejected) -> None:
        if isinstance(answer, Answered):
            body = answer.body
            checked = PathsChecked(
                news.address, news.member, news.units, news.mark, body["oldest"], body["next"], body["open"]
            )
            self._say(keeper, checked)

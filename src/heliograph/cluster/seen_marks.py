"""The majority rule of client managers (P5): a dispatch reaches a client only when most of its view have it.

Each client manager says now and then up to which place of the view it has delivered everything; what it says is
cumulative, so one word covers many dispatches. Places count what was delivered in the view, and are the same for all
of its members. A client manager that does not have the body of a message has seen its dispatch all the same.
"""

from __future__ import annotations

from heliograph.bus.interface import Incarnation


class SeenMarks:
    """What one member of a view knows about who has seen what in it."""

    def __init__(self, clients: tuple[Incarnation, ...]) -> None:
        self._clients = clients
        self._marks: dict[Incarnation, int] = {}
        self._delivered = 0  # the place of the last dispatch that was delivered here
        self._said = 0

    def dispatched(self, place: int) -> None:
        """A dispatch was delivered here, at this place."""
        self._delivered = max(self._delivered, place)

    def seen(self, who: Incarnation, place: int) -> None:
        """`DispatchSeen`, delivered with the stamp of the view."""
        if who in self._clients:
            self._marks[who] = max(self._marks.get(who, 0), place)

    @property
    def has_word(self) -> bool:
        return len(self._clients) > 1 and self._delivered > self._said

    def take_word(self) -> int | None:
        """The place that this client manager has to tell, if there is anything new; it is then told."""
        if not self.has_word:
            return None
        self._said = self._delivered
        return self._said

    def told_by_most(self) -> int:
        """Up to this place more than half have said so themselves: it is seen by most, whoever the target is."""
        told = sorted([self._marks.get(who, 0) for who in self._clients], reverse=True)
        return min(self._delivered, told[len(told) // 2])

    def seen_by_most(self, target: Incarnation) -> int:
        """Dispatches to `target` at this place or before may be handed to its client, or have been.

        More than half of all client managers have seen them, the target among them: of itself it knows as soon as
        they are delivered, and so do those who go on straight with it.
        """
        assert target in self._clients, "a dispatch goes to a client manager of the view"
        seen = [self._delivered if who == target else self._marks.get(who, 0) for who in self._clients]
        return min(self._delivered, sorted(seen, reverse=True)[len(seen) // 2])

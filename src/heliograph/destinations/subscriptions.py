"""Topic subscriptions (J6): who they belong to, what they want, and the groups in which they share what
waits."""

from __future__ import annotations

import msgspec

from heliograph.cluster.ranges import NONE, Ranges
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.sequence import Sequence, SharedLevel
from heliograph.destinations.waiting import Residence
from heliograph.model.block import Span
from heliograph.model.errors import ClientFault


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What a subscriber asked for. Fields are appended, never reordered.

    `name` with `client` names a durable or shared subscription; without a name it lives and dies with its
    consumer. `without` is the connection whose own messages are not wanted (no-local), empty if all are.
    """

    name: str = ""
    client: str = ""
    durable: bool = False
    shared: bool = False
    selector: str = ""
    without: bytes = b""

    @property
    def key(self) -> tuple[str, str, bool]:
        """Durable and other subscriptions have names of their own."""
        return self.client, self.name, self.durable


FOR_OTHER_PARTS = Terms("\0parts", durable=True)
"""A subscription that nobody consumes from: it keeps everything while a cluster is in parts, for the subscriptions of
the others (P4). No client can ask for this name."""


class SubscriptionRecord(msgspec.Struct, array_like=True):
    """How the journal keeps a durable subscription. `ended`: it was unsubscribed. Fields are appended, never
    reordered.

    `begins` is the number that the next message would get when it was made. One that another part made says in which
    `branch` that was, and what it gets of what is `kept` here for other parts: with its record it has it. If it is
    here already, it has been made here too.
    """

    destination: int
    number: int
    terms: Terms
    ended: bool = False
    begins: int = 0
    kept: Ranges = NONE
    branch: bytes = b""


class Group:
    """Subscriptions that want the same messages; one sequence of them per priority."""

    def __init__(self, key: tuple[str, bytes], residence: Residence) -> None:
        self.key = key
        self._residence = residence
        self._sequences: dict[int, Sequence] = {}
        self.lists: dict[int, MessageList] = {}

    @property
    def without(self) -> bytes:
        return self.key[1]

    def sequence(self, priority: int) -> Sequence:
        found = self._sequences.get(priority)
        if found is None:
            found = self._sequences[priority] = Sequence(self._residence)
            for messages in self.lists.values():
                messages.level(priority)  # a member from the first message on
        return found

    def make_level(self, priority: int) -> SharedLevel:
        return SharedLevel(self._sequences[priority], self._residence)

    def join(self, messages: MessageList) -> None:
        """From here on the list gets what the group gets."""
        self.lists[messages.number] = messages
        for priority in self._sequences:
            messages.level(priority)

    def leave(self, messages: MessageList, effects: list[AnyEffect]) -> None:
        if self.lists.pop(messages.number, None) is not None:
            messages.end(effects)

    def append(self, priority: int, span: Span) -> None:
        self.sequence(priority).append(span)

    def sequences(self) -> dict[int, Sequence]:
        return self._sequences

    def restore_sequence(self, priority: int, sequence: Sequence) -> None:
        self._sequences[priority] = sequence


class Subscription:
    """One subscription and its list."""

    __slots__ = ("active", "group", "messages", "terms")

    def __init__(self, terms: Terms, messages: MessageList, group: Group) -> None:
        self.terms = terms
        self.messages = messages
        self.group = group
        self.active = (
            False  # whether it gets messages: it does once all that was accepted before it is stored
        )

    @property
    def ends_with_its_consumers(self) -> bool:
        return not self.terms.durable

    @property
    def is_for_other_parts(self) -> bool:
        return self.terms.name == FOR_OTHER_PARTS.name


def check_terms(terms: Terms) -> None:
    """Raises ClientFault for wishes that contradict each other."""
    if terms.name == FOR_OTHER_PARTS.name:
        raise ClientFault("this name is the server's own", code="subscription-invalid")
    if (terms.durable or terms.shared) and not terms.name:
        raise ClientFault("a durable or shared subscription needs a name", code="subscription-unnamed")
    if terms.durable and not terms.shared and not terms.client:
        raise ClientFault(
            "a durable subscription belongs to a client: connect with a client_id, or make it shared",
            code="client-id-missing",
        )
    if terms.shared and terms.without:
        raise ClientFault("a shared subscription cannot be no-local", code="subscription-invalid")


def check_joins(existing: Subscription, terms: Terms) -> None:
    """Whether a consumer with these terms may use a subscription as it is. Raises ClientFault."""
    mine = existing.terms
    if mine.shared != terms.shared:
        raise ClientFault(
            f"subscription {terms.name!r} is {'shared' if mine.shared else 'not shared'}",
            code="subscription-in-use",
        )
    if existing.messages.is_attended and not terms.shared:
        raise ClientFault(f"subscription {terms.name!r} has a consumer already", code="subscription-in-use")
    if existing.messages.is_attended and mine.selector != terms.selector:
        raise ClientFault(
            f"subscription {terms.name!r} has consumers and another selector", code="subscription-in-use"
        )


def runs_of(indices: list[int]) -> list[tuple[int, int]]:
    """Ascending indices as (start, stop) runs."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs

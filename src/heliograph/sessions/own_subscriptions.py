"""The durable subscriptions of a client, as a user may see and end them.

They go by the client's name, which anybody may give, and nobody remembers whose they are. So who may receive where
one is may hear of it, and who may receive everywhere where it is may end it; to anybody else it is not there. What
a session had a consumer at is not looked for: who subscribes under a name ends what had it anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from heliograph.bus.commands import Asked, Rejected, SubscriptionEnded
from heliograph.model.errors import NotAllowed
from heliograph.model.limits import MAX_CONSUMERS_PER_SESSION
from heliograph.model.patterns import (
    SEPARATOR,
    Pattern,
    PatternFault,
    no_such_subscription,
    parse_pattern,
    pattern_in,
)
from heliograph.sessions.access import Right
from heliograph.sessions.admission import Admission
from heliograph.sessions.commands import AnySessionEffect, EndSubscription, Fail, Multicast, Subscribe
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.requests import Request, Requests

_QUESTION: Final = "client.subscriptions"


class _Looking:
    """What is asked before a subscription is ended: where it is."""


class Endings:
    """Subscriptions that the client of one session wants no more."""

    def __init__(self, connection: ConnectionFacts, admission: Admission, requests: Requests) -> None:
        self._connection = connection
        self._admission = admission
        self._requests = requests
        self._looking: dict[int, EndSubscription] = {}
        self._last = 0
        # Those that a consumer of this session was admitted to, the oldest first: name, whether it is everybody's,
        # and the number of the consumer.
        self._admitted: dict[tuple[str, bool], int] = {}

    def handlers(self) -> dict[type, Callable[..., list[AnySessionEffect]]]:
        return {EndSubscription: self._end}

    def answers(self) -> dict[type, Callable[[Request, dict[str, Any]], list[AnySessionEffect]]]:
        return {_Looking: self._found}

    def _end(self, command: EndSubscription) -> list[AnySessionEffect]:
        try:
            self._admission.check_subscriber()
        except NotAllowed as refusal:
            return [Fail(command.request, refusal.code, refusal.sentence)]
        if (
            self._admission.is_free
            or self._admitted.pop((command.subscription, command.common), None) is not None
        ):
            # What follows must not overtake it, and it holds though the connection is cut.
            return self._end_now(command)
        self._last += 1
        self._looking[self._last] = command
        request = self._requests.ask(_Looking, command.request, self._last)
        return [Multicast(Asked(request, _QUESTION, {"client": self._client(command)}))]

    def note(self, command: Subscribe) -> None:
        """A consumer was admitted to what it asked for."""
        if not command.durable or self._admission.is_free:
            return
        pattern = parse_pattern(command.destination)
        if pattern is not None and not self._admission.meets(Right.RECEIVE, pattern):
            return
        self._admitted.pop((command.subscription, command.common), None)  # it is the youngest now
        if len(self._admitted) >= MAX_CONSUMERS_PER_SESSION:
            del self._admitted[next(iter(self._admitted))]  # it is looked for, then
        self._admitted[command.subscription, command.common] = command.consumer

    def not_attached(self, consumer: int) -> None:
        """What it was admitted to did not want it."""
        for key in [key for key, number in self._admitted.items() if number == consumer]:
            del self._admitted[key]

    def _found(self, asked: Request, body: dict[str, Any]) -> list[AnySessionEffect]:
        command = self._looking.pop(asked.number)
        if may_end(body, command.subscription, self._admission):
            return self._end_now(command)
        return [Fail(command.request, "subscription-unknown", no_such_subscription(command.subscription))]

    def refused(self, asked: Request, answer: Rejected) -> list[AnySessionEffect]:
        """Nobody said where it is."""
        self._looking.pop(asked.number, None)
        return [Fail(asked.request, answer.code, answer.sentence)]

    def _end_now(self, command: EndSubscription) -> list[AnySessionEffect]:
        request = self._requests.ask(EndSubscription, command.request)
        return [Multicast(SubscriptionEnded(request, self._client(command), command.subscription))]

    def _client(self, command: EndSubscription) -> str:
        return "" if command.common else self._connection.client_id


def is_looking(purpose: type) -> bool:
    return purpose is _Looking


def seen(body: dict[str, Any], admission: Admission) -> list[str]:
    """Of the subscriptions of a client, those that a user may hear of. One to a pattern is told to who may receive
    from something that it could mean, whether or not there is a topic of it already: he may be who it belongs to."""
    answers = body.get("sub_clusters", {"": body}).values()
    # Nodes of an earlier version do not say where they are, and a client goes on with what it has meanwhile.
    untold = {name for each in answers if "places" not in each for name in each["subscriptions"]}
    return [name for name in body["subscriptions"] if name in untold or _may_hear_of(body, name, admission)]


def _may_hear_of(body: dict[str, Any], name: str, admission: Admission) -> bool:
    pattern = _pattern_in(name)
    places = _places(body, name, with_patterns=pattern is not None)
    return any(admission.may_receive_kept(place) for place in places) or (
        pattern is not None and admission.meets(Right.RECEIVE, pattern)
    )


def may_end(body: dict[str, Any], name: str, admission: Admission) -> bool:
    """Whether there is such a subscription as far as a user may know, and it is his to end."""
    found = [each for each in body["subscriptions"] if each == name or each.startswith(f"{name}{SEPARATOR}")]
    return bool(found) and all(_may_end_one(body, each, admission) for each in found)


def _may_end_one(body: dict[str, Any], name: str, admission: Admission) -> bool:
    """A pattern that means no topic yet says nothing about who made the subscription, unless the user might receive
    from all that it can mean. Any other that is nowhere was told by a node of an earlier version."""
    pattern = _pattern_in(name)
    places = list(_places(body, name, with_patterns=pattern is not None))
    if places:
        return all(admission.may_receive_kept(place) for place in places)
    return pattern is not None and admission.covers(Right.RECEIVE, pattern)


def _pattern_in(name: str) -> Pattern | None:
    """Of a subscription to a pattern. An application chooses names, and one may look like that and mean nothing."""
    if SEPARATOR not in name:
        return None
    try:
        return pattern_in(name)
    except PatternFault:
        return None


def _places(body: dict[str, Any], name: str, *, with_patterns: bool) -> Iterator[str]:
    """The topics where it is, and where those to patterns under it are."""
    for each, address in body.get("places", ()):
        if each == name or (with_patterns and each.startswith(name + SEPARATOR)):
            yield address

"""A session's consumers of many topics (M12): attached to each that their pattern means and their user may
receive from, to those that come into being later as well.

A durable one has a subscription at each topic, and one at `topic:_PATTERNS`, by which the message managers
know what to keep for it of topics that come into being while its client is away.

One such consumer is a `Wildcard`, which translates tags and shares credit out; here is decided what it is
attached to, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from heliograph.bus.commands import ConsumerAttached, ConsumerDetached, DestinationMade, TopicsWanted
from heliograph.model.destination import PATTERNS, Address, at_sub_cluster
from heliograph.model.errors import ClientFault
from heliograph.model.ids import ConsumerId, IdIssuer, SessionId
from heliograph.model.limits import MAX_WILDCARD_TOPICS
from heliograph.model.patterns import SEPARATOR, Pattern, name_at
from heliograph.sessions.access import Right
from heliograph.sessions.admission import Admission
from heliograph.sessions.commands import (
    AnySessionEffect,
    Done,
    EndConsumer,
    Fail,
    Multicast,
    Settle,
    SettlementStored,
    Subscribe,
    Tell,
)
from heliograph.sessions.requests import Request, Requests
from heliograph.sessions.wildcard import Attachment, Wildcard


class ManyTopics:
    """The wildcards of one session, under its client's numbers."""

    def __init__(
        self,
        session: SessionId,
        client_id: str,
        *,
        admission: Admission,
        requests: Requests,
        issuer: IdIssuer,
    ) -> None:
        self._session = session
        self._client_id = client_id
        self._admission = admission
        self._requests = requests
        self._issuer = issuer
        self.wildcards: dict[int, Wildcard] = {}
        self.attachments: dict[ConsumerId, Wildcard] = {}

    def answers(self) -> dict[type, Callable[[Request, dict[str, Any]], list[AnySessionEffect]]]:
        """What follows from the answers to what is asked here."""
        return {
            Wildcard: self._topics_found,
            Attachment: lambda asked, _: self._attachment_answered(asked, refused=False),
        }

    def subscribe(self, command: Subscribe, pattern: Pattern) -> list[AnySessionEffect]:
        """The client is answered when all topics that exist have been."""
        wildcard = self.wildcards[command.consumer] = Wildcard(
            command.consumer,
            pattern,
            credit=command.credit,
            selector=command.selector,
            no_local=command.no_local,
            subscription=f"{command.subscription}{SEPARATOR}{pattern}" if command.subscription else "",
            durable=command.durable,
            shared=command.shared,
            client="" if command.common else self._client_id,
        )
        wildcard.request = command.request
        wildcard.was_resumed = command.claim is not None
        request = self._requests.ask(Wildcard, command.request, command.consumer)
        return [Multicast(TopicsWanted(request, str(pattern)))]

    def _topics_found(self, asked: Request, body: dict[str, Any]) -> list[AnySessionEffect]:
        wildcard = self.wildcards.get(asked.number)
        if wildcard is None:
            return [Done(asked.request)]  # ended meanwhile
        effects = self._attach(wildcard, body["topics"])
        if wildcard.durable:
            places = self._admission.everywhere(PATTERNS)
            effects += [Multicast(self._attach_to(wildcard, place)) for place in places]
        return effects or self._attached(wildcard)

    def _attach(self, wildcard: Wildcard, topics: list[Address]) -> list[AnySessionEffect]:
        """To those that it wants and its user may receive from; of others nothing is said."""
        effects: list[AnySessionEffect] = []
        for address in topics:
            if not wildcard.wants(address, self._admission.plain(address)) or not self._admission.allows(
                Right.RECEIVE, address
            ):
                continue
            if len(wildcard) >= MAX_WILDCARD_TOPICS:
                sentence = f"the pattern means more than {MAX_WILDCARD_TOPICS} topics: choose a narrower one"
                return [*effects, *self._end(wildcard, code="too-many-topics", sentence=sentence)]
            effects.append(Multicast(self._attach_to(wildcard, address)))
        return effects

    def _attach_to(self, wildcard: Wildcard, address: Address) -> ConsumerAttached:
        identity = self._issuer.consumer()
        wildcard.attach(identity, address)
        wildcard.attaching += 1
        self.attachments[identity] = wildcard
        return ConsumerAttached(
            self._requests.ask(Attachment, 0, wildcard.number, address),
            address,
            identity,
            self._session,
            wildcard.own_credit,
            create=at_sub_cluster(address)[0] == PATTERNS,
            selector=wildcard.selector,
            subscription=name_at(wildcard.subscription, address) if wildcard.subscription else "",
            client=wildcard.client,
            durable=wildcard.durable,
            shared=wildcard.shared,
            no_local=wildcard.no_local,
        )

    def _attached(self, wildcard: Wildcard) -> list[AnySessionEffect]:
        """Tell the client once that everything there was is attached."""
        request, wildcard.request = wildcard.request, None
        if request is None:
            return []
        # Its tags are known here alone: on another connection it begins anew.
        return [Tell(request, {"resumed": False}) if wildcard.was_resumed else Done(request)]

    def attachment_refused(self, asked: Request) -> list[AnySessionEffect]:
        return self._attachment_answered(asked, refused=True)

    def _attachment_answered(self, asked: Request, *, refused: bool) -> list[AnySessionEffect]:
        wildcard = self.wildcards.get(asked.number)
        identity = wildcard.identity_at(asked.address) if wildcard is not None else None
        if wildcard is None or identity is None:
            return []
        wildcard.attaching -= 1
        effects: list[AnySessionEffect] = []
        if refused:  # its topic is gone already, or wants nobody
            del self.attachments[identity]
            effects += [Multicast(ConsumerDetached(asked.address, identity)), *wildcard.detach(identity)]
        return effects if wildcard.attaching else [*effects, *self._attached(wildcard)]

    def destination_made(self, news: DestinationMade) -> list[AnySessionEffect]:
        wildcards = list(self.wildcards.values())
        return [effect for wildcard in wildcards for effect in self._attach(wildcard, [news.address])]

    def topic_gone(self, identity: ConsumerId) -> list[AnySessionEffect] | None:
        """The topic of an attachment was deleted. None: it is none of ours."""
        wildcard = self.attachments.pop(identity, None)
        return None if wildcard is None else wildcard.detach(identity)

    def settle(self, wildcard: Wildcard, command: Settle) -> list[AnySessionEffect]:
        """Nothing of it is on disk, so what is settled is stored."""
        effects, fault = wildcard.settle(command)
        if not command.confirm:
            return effects
        if fault is not None:
            return [*effects, *self._end(wildcard, code=fault.code, sentence=fault.sentence)]
        return [*effects, SettlementStored(command.consumer)]

    # ---- the end

    def drop(self, wildcard: Wildcard) -> list[AnySessionEffect]:
        del self.wildcards[wildcard.number]
        for identity in wildcard.identities():
            self.attachments.pop(identity, None)
        return [Multicast(detached) for detached in wildcard.farewell()]

    def _end(self, wildcard: Wildcard, *, code: str, sentence: str) -> list[AnySessionEffect]:
        effects = self.drop(wildcard)
        if wildcard.request is not None:
            return [*effects, Fail(wildcard.request, code, sentence)]
        return [*effects, EndConsumer(wildcard.number, code, sentence)]

    def lose(self) -> None:
        self.wildcards.clear()
        self.attachments.clear()

    def farewell(self) -> Iterator[ConsumerDetached]:
        for wildcard in self.wildcards.values():
            yield from wildcard.farewell()
        self.wildcards.clear()
        self.attachments.clear()


def check_for_many(command: Subscribe) -> None:
    """Raises ClientFault for what a subscription to a pattern cannot be."""
    if command.browse:
        raise ClientFault("topics cannot be browsed: nothing waits in them", code="browse-invalid")
    if (command.durable or command.shared) and not command.subscription:
        raise ClientFault("a durable or shared subscription needs a name", code="subscription-unnamed")

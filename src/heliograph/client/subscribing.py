"""What a consumer wants, as the application says it and as the server is told (J6, J7, J9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

from heliograph.frontends.native.frames import Subscribe
from heliograph.model.claim import Claim
from heliograph.model.distribution import member_of
from heliograph.model.errors import ClientFault
from heliograph.model.limits import CONSUMER_CREDIT, MAX_CREDIT


class ConsumerOptions(TypedDict, total=False):
    """What a consumer may be told besides its destination.

    `durable="NAME"`: a subscription that keeps messages while nobody is there. `shared="NAME"`: one that
    several consumers split. `durable="NAME", shared=True`: both.
    """

    selector: str
    no_local: bool
    durable: str | None
    shared: str | bool | None
    credit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The same, checked. Kept by the consumer, which subscribes with it again on another connection."""

    destination: str
    credit: int = CONSUMER_CREDIT
    selector: str = ""
    subscription: str = ""
    is_durable: bool = False
    is_shared: bool = False
    no_local: bool = False
    is_browser: bool = False

    def at(self, member: str, members: int) -> Terms:
        """The same at one of several members of a distributed destination, which share the credit (U6)."""
        destination = member_of(self.destination, member)
        return replace(self, destination=destination, credit=max(1, self.credit // members))

    def resumption(
        self,
        session: int,
        consumer: int,
        *,
        prompt: bool,
        credit: int,
        claim: Claim,
    ) -> Subscribe:
        """The same, of a consumer that goes on where it was on another connection."""
        frame = self.frame(session, consumer, prompt=prompt)
        frame.credit = credit
        frame.claim = claim
        return frame

    def frame(self, session: int, consumer: int, *, prompt: bool) -> Subscribe:
        """`prompt`: it settles each message as it goes, so the server need not send many ahead."""
        return Subscribe(
            request=0,
            number=session,
            consumer=consumer,
            destination=self.destination,
            credit=self.credit,
            selector=self.selector,
            subscription=self.subscription,
            durable=self.is_durable,
            shared=self.is_shared,
            no_local=self.no_local,
            browse=self.is_browser,
            prompt=prompt,
        )


def terms_of(
    destination: str,
    *,
    selector: str = "",
    no_local: bool = False,
    durable: str | None = None,
    shared: str | bool | None = None,
    credit: int = CONSUMER_CREDIT,
) -> Terms:
    """Raises ClientFault where the wishes contradict each other."""
    if not 1 <= credit <= MAX_CREDIT:
        raise ClientFault(f"credit is 1 to {MAX_CREDIT}, not {credit}", code="credit-invalid")
    if durable == "" or shared == "" or (shared is True and durable is None):
        raise ClientFault("a durable or shared subscription needs a name", code="subscription-unnamed")
    if durable is not None and isinstance(shared, str) and shared != durable:
        raise ClientFault(
            f"a subscription has one name: durable={durable!r}, shared=True", code="subscription-invalid"
        )
    return Terms(
        destination=destination,
        credit=credit,
        selector=selector,
        subscription=durable or (shared if isinstance(shared, str) else ""),
        is_durable=durable is not None,
        is_shared=bool(shared),
        no_local=no_local,
    )


def browsing(destination: str, selector: str, credit: int) -> Terms:
    return Terms(destination=destination, credit=credit, selector=selector, is_browser=True)

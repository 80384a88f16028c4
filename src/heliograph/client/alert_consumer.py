"""A consumer of alerts: an inbox in which the most urgent comes first, and what it tells the server (A3–A5).

An alert is *taken* when the application gets it. That is said at once, and again on the next connection until the
server has said that it is stored; so is what waits in the inbox. While there is no connection, or none that was heard
of lately, nothing is handed over: the alert may have been cancelled meanwhile, and whoever did that was told that
nobody gets it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Self

from heliograph.client.alert import Alert
from heliograph.client.sender import renewed
from heliograph.client.waiting import Signal
from heliograph.client.wire import Wire
from heliograph.frontends.native.frames import (
    Answer,
    AttachAlerts,
    ChangeAlerts,
    Completed,
    DetachAlerts,
    TakeAlerts,
)
from heliograph.model.alert import AlertView
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError
from heliograph.model.limits import ALERTS_REMEMBERED

if TYPE_CHECKING:
    from heliograph.client.alerts import AlertDesk

# How soon a wire that has not been heard of is looked at again.
_LOOK_AGAIN_SECONDS = 0.25
# A wire that is so overdue is given up; so long nobody waits for what was said on it.
_CLOSE_SECONDS = 5.0


class AlertConsumer:
    """Made by `AlertChannel.subscribe`: `async for alert in consumer`."""

    def __init__(
        self, desk: AlertDesk, number: int, destination: str, name: str, credit: int, alert_type: type[Alert]
    ) -> None:
        self.number = number
        self.destination = destination
        self.name = name
        self._desk = desk
        self._credit = credit
        self._alert_type = alert_type
        self._topics: dict[tuple[bool, str], None] = {}  # as they were asked for; True: acknowledgements
        self._inbox: dict[bytes, AlertView] = {}
        self._order: list[tuple[int, int, bytes]] = []
        self._arrived = 0
        self._reserved: dict[bytes, None] = {}  # on their way to the application
        self._taken: dict[bytes, None] = {}  # and the server has not said that it knows
        self._unsaid: dict[bytes, bool] = {}  # taken or dropped
        self._is_flushing = False
        self._had: dict[bytes, None] = {}  # the last ones: a server may have lost what is not persistent
        self._saying: set[asyncio.Task[None]] = set()
        self._wire: Wire | None = None
        self._signal = Signal()
        self._ended: HeliographError | None = None
        self._has_asked = False  # on this wire: what it says from here on is understood
        self.is_attached = False  # and it was answered: what has to be dropped was dropped

    def __repr__(self) -> str:
        return f"<AlertConsumer of {self.destination}>"

    # ---- receiving

    async def receive(self, timeout: float | None = None) -> Alert | None:
        """The most urgent alert; None if none came in `timeout` seconds, or the consumer was closed."""
        view = await self.reserve(timeout)
        if view is None:
            return None
        self.took(view.id)
        return self._alert_type(self._desk.channel(self.destination), view)

    def __aiter__(self) -> AsyncIterator[Alert]:
        return self._alerts()

    async def _alerts(self) -> AsyncIterator[Alert]:
        while (alert := await self.receive()) is not None:
            yield alert

    async def reserve(self, timeout: float | None = None) -> AlertView | None:
        """The next alert, which is about to reach the application; `took` says that it has."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if self._ended is not None:
                        if self._ended.code == "closed":
                            return None
                        raise renewed(self._ended)
                    view = self._next()
                    if view is not None:
                        return view
                    await self._changed()
        except TimeoutError:
            return None

    async def _changed(self) -> None:
        """Something may be there, or the wire may be fresh again."""
        if not self._inbox or self._wire is None:
            await self._signal.wait()
            return
        try:
            async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                await self._signal.wait()
        except TimeoutError:
            pass

    def _next(self) -> AlertView | None:
        if self._wire is None or not self._wire.is_fresh or not self.is_attached:
            return None
        while self._order:
            view = self._inbox.pop(heappop(self._order)[2], None)
            if view is not None:
                self._reserved[view.id] = None
                return view
        return None

    def took(self, identity: bytes) -> None:
        """The application has it."""
        self._reserved.pop(identity, None)
        self._taken[identity] = self._had[identity] = None
        if len(self._had) > ALERTS_REMEMBERED:
            del self._had[next(iter(self._had))]
        self._say(identity, True)

    # ---- subscribing

    async def subscribe(self, topics: str = "", *, acknowledgements: str = "") -> None:
        """Want more: `TAG:a,b;USER:c`, of alerts or of acknowledgements. What is live comes, highest first."""
        self._check_open()
        await self._change(topics, acknowledgements, removes=False)

    async def unsubscribe(self, topics: str = "", *, acknowledgements: str = "") -> None:
        """Want some no more. When this returns, nothing is received that only those topics meant."""
        self._check_open()
        await self._change(topics, acknowledgements, removes=True)

    async def _change(self, topics: str, acknowledgements: str, *, removes: bool) -> None:
        texts = [(kind, text) for kind, text in ((False, topics), (True, acknowledgements)) if text]
        change = ChangeAlerts(
            request=0,
            number=self._desk.number,
            consumer=self.number,
            topics=topics,
            acknowledgements=acknowledgements,
            removes=removes,
        )
        if removes:
            change.topics, change.acknowledgements = self._without(texts)
        await self._desk.link.request_noted(lambda: change, Answer, self._changed_topics)
        for text in texts if not removes else ():
            self._topics[text] = None

    def _without(self, texts: list[tuple[bool, str]]) -> tuple[str, str]:
        """Topics are counted one by one, however they were put together."""
        from heliograph.model.alert_topics import parse_topics, written

        left: dict[tuple[bool, str], None] = {}
        gone = {(kind, topic): None for kind, text in texts for topic in parse_topics(text)}
        for kind, text in self._topics:
            for topic in parse_topics(text):
                if (kind, topic) not in gone:
                    left[kind, written((topic,))] = None
        self._topics = left
        named = {kind: written(tuple(topic for of, topic in gone if of is kind)) for kind in (False, True)}
        return named[False], named[True]

    def _changed_topics(self, answer: Answer) -> None:
        """Between the answer and whatever comes behind it."""
        for identity in answer.body.get("withdrawn", ()):
            if self._inbox.pop(identity, None) is not None:
                self._say(identity, False)

    # ---- what the server says

    def deliver(self, view: AlertView) -> None:
        if view.id in self._taken or view.id in self._had:
            self._say(view.id, True)  # the server has not heard of it yet, or not any more
        elif view.id not in self._inbox and view.id not in self._reserved:
            self._arrived += 1
            self._inbox[view.id] = view
            heappush(self._order, (-view.header.priority, self._arrived, view.id))
            self._signal.wake()

    def withdraw(self, identity: bytes) -> None:
        """It ended. If it is on its way to the application, that is said when it is there."""
        if identity not in self._reserved:
            self._inbox.pop(identity, None)
            self._say(identity, identity in self._taken)

    # ---- what is said

    def _say(self, identity: bytes, is_taken: bool) -> None:
        self._unsaid[identity] = is_taken
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Say what was taken and dropped."""
        self._is_flushing = False
        unsaid, self._unsaid = self._unsaid, {}
        if self._wire is not None and self._has_asked and unsaid:
            saying = asyncio.get_running_loop().create_task(self._tell(self._wire, unsaid))
            self._saying.add(saying)
            saying.add_done_callback(self._saying.discard)

    async def _tell(self, wire: Wire, unsaid: dict[bytes, bool]) -> None:
        taken = [identity for identity, is_taken in unsaid.items() if is_taken]
        dropped = [identity for identity, is_taken in unsaid.items() if not is_taken]
        telling = TakeAlerts(
            request=0, number=self._desk.number, consumer=self.number, taken=taken, dropped=dropped
        )
        try:
            await wire.request(telling, Completed)
        except ConnectionLost:
            return  # it is said with the next attachment
        except HeliographError as refusal:
            if refusal.code not in ("consumer-unknown", "destination-unknown"):
                self._desk.link.report(refusal)
            return
        for identity in taken:
            self._taken.pop(identity, None)

    # ---- connections

    async def attach(self, wire: Wire, topics: dict[tuple[bool, str], None] | None = None) -> None:
        """Go on, or begin, on a wire. Raises what the server answers."""
        if topics is not None:
            self._topics = dict(topics)
        wanted = self._topics  # as they are now: what is unsubscribed from meanwhile is said behind this
        self._wire = wire
        self._unsaid.clear()
        self._has_asked = True
        attaching = AttachAlerts(
            request=0,
            number=self._desk.number,
            consumer=self.number,
            destination=self.destination,
            name=self.name,
            topics=";".join(text for kind, text in wanted if not kind),
            acknowledgements=";".join(text for kind, text in wanted if kind),
            credit=self._credit,
            held=[*self._inbox, *self._reserved],
            taken=list(self._taken),
        )
        said = attaching.taken
        try:
            await wire.request(attaching, Completed)
        except BaseException:
            self._has_asked = False
            raise
        self.is_attached = self._wire is wire
        for identity in said:
            self._taken.pop(identity, None)
        self._signal.wake()

    def detach(self) -> None:
        """There is no connection."""
        self._wire, self._has_asked, self.is_attached = None, False, False
        self._signal.wake()

    def end(self, error: HeliographError) -> None:
        if self._ended is None:
            self._ended = error
            self._inbox.clear()
            self.detach()

    def _check_open(self) -> None:
        if self._ended is not None:
            raise renewed(self._ended)

    # ---- the end

    async def close(self, *, unsubscribe: bool | None = None) -> None:
        """End it. What is in its inbox was never received. A subscriber with a name goes on collecting, unless
        `unsubscribe` says otherwise."""
        if self._ended is not None:
            return
        wire = self._wire
        self.flush()
        self.end(ClientFault("the consumer is closed", code="closed"))
        self._desk.forget(self)
        if wire is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await asyncio.gather(*self._saying)
                    await wire.request(self._detaching(unsubscribe), Completed)
            except (HeliographError, TimeoutError):
                pass  # the server sees the session go

    def _detaching(self, unsubscribe: bool | None) -> DetachAlerts:
        return DetachAlerts(
            request=0,
            number=self._desk.number,
            consumer=self.number,
            unsubscribe=not self.name if unsubscribe is None else unsubscribe,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

"""What one request has to do with a session: it looks at messages, sends some, or gives an order.

The session is opened for the request and closed behind it, so that it acts for whoever asked and for nobody else;
what was handed out to it and is not settled goes back then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.frontends.http.steps import AnyStep, Deliver, Exchange, Look, Message, Order, Seen
from heliograph.frontends.native import frames
from heliograph.frontends.prepared import head_at, id_of, opened
from heliograph.frontends.proxy import Answer, Proxy, Sending
from heliograph.model.block import BodyKind, Contents
from heliograph.model.errors import HeliographError, from_code
from heliograph.model.ids import SessionId, lane_of, message_id
from heliograph.model.limits import LOOK_CREDIT, MAX_LOOK_BYTES
from heliograph.sessions import commands
from heliograph.sessions.commands import AnySessionEffect, Fail

SESSION_STEPS = (Order, Look, Deliver, Exchange)


class Working:
    """The session of one request."""

    def __init__(self, resume: Callable[[Any], None], fail: Callable[[HeliographError], None]) -> None:
        self.proxy = Proxy(on_stored=self._stored, on_refused=self._refused)
        self._resume = resume
        self._fail = fail
        self._looking: _Looking | None = None
        self._session = SessionId(b"")

    def opened(self, message: frames.SessionOpened) -> None:
        self.proxy.opened(message)
        self._session = SessionId(message.session)

    def begin(self, step: AnyStep) -> None:
        """Raises ClientFault."""
        if isinstance(step, Order):
            self.proxy.command(step.command(self.proxy.ask(self._answered)))
        elif isinstance(step, Deliver):
            self.proxy.put(step.destination, step.message, receipt=step)
        elif isinstance(step, Exchange):
            ranges = _ranges(step.tags)
            self.proxy.commit(Sending(step.messages, [(step.consumer, ranges)], self._answered))
        elif isinstance(step, Look):
            self._look(step)

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, Fail):
            self._fail(from_code(answer.code, answer.sentence))
        else:
            self._resume(answer.body if isinstance(answer, commands.Tell) else {})

    def _stored(self, _receipts: list[Any]) -> None:
        """A request sends one message: it is the first of the first lane."""
        self._resume(message_id(lane_of(self._session, 1), 1))

    def _refused(self, _receipts: list[Any], why: Fail) -> None:
        self._fail(from_code(why.code, why.sentence))

    @property
    def waits_for_room(self) -> bool:
        """Something is to be sent, and its destination asks to wait."""
        return self.proxy.is_blocked

    # ---- looking

    def _look(self, step: Look) -> None:
        looking = self._looking = _Looking(step, self.proxy.new_consumer())
        request = self.proxy.ask(self._began_to_look)
        self.proxy.command(
            commands.Subscribe(
                request,
                looking.consumer,
                step.destination,
                looking.first_credit,
                step.selector,
                browse=not step.takes,
                create=False,
            )
        )

    def _began_to_look(self, answer: Answer) -> None:
        if isinstance(answer, Fail):
            self._looking = None
            self._fail(from_code(answer.code, answer.sentence))

    def tell(self, effect: AnySessionEffect) -> None:
        looking = self._looking
        if isinstance(effect, commands.Deliver | commands.DeliverParcel):
            if looking is not None and effect.consumer == looking.consumer:
                looking.add(effect)
                if looking.is_full:
                    self._end_look(looking)
                elif not looking.step.takes and (more := looking.more_credit()):
                    self.proxy.command(commands.GrantCredit(looking.consumer, more))
        elif isinstance(effect, commands.EndBrowse):
            if looking is not None and effect.consumer == looking.consumer:
                self._end_look(looking)
        elif isinstance(effect, commands.EndConsumer):
            if looking is not None and effect.consumer == looking.consumer:
                self._looking = None
                self._fail(from_code(effect.code, effect.sentence))
        else:
            self.proxy.tell(effect)

    def time_passed(self) -> None:
        """Whoever takes messages does not wait for more than came in a moment."""
        looking = self._looking
        if looking is not None and looking.step.takes:
            if looking.has_waited:
                self._end_look(looking)
            looking.has_waited = True

    def _end_look(self, looking: _Looking) -> None:
        self._looking = None
        step = looking.step
        if not step.takes:
            request = self.proxy.ask(lambda _answer: None)
            self.proxy.command(commands.Unsubscribe(request, looking.consumer))
        self._resume(Seen(looking.found[: step.limit], len(looking.found) > step.limit, looking.consumer))


class _Looking:
    """A look that is under way."""

    def __init__(self, step: Look, consumer: int) -> None:
        self.step = step
        self.consumer = consumer
        self.found: list[Message] = []
        self.has_waited = False
        self._passed = 0
        self._bytes = 0
        self._granted = self.first_credit

    @property
    def _wanted(self) -> int:
        """One more than is asked for tells whether there is more."""
        return self.step.limit if self.step.takes else self.step.skip + self.step.limit + 1

    @property
    def first_credit(self) -> int:
        return self._wanted if self.step.takes else min(self._wanted, LOOK_CREDIT)

    @property
    def is_full(self) -> bool:
        return self._passed >= self._wanted or self._bytes > MAX_LOOK_BYTES

    def more_credit(self) -> int:
        if self._passed < self._granted or self._granted >= self._wanted:
            return 0
        more = min(LOOK_CREDIT, self._wanted - self._granted)
        self._granted += more
        return more

    def add(self, effect: commands.Deliver | commands.DeliverParcel) -> None:
        for first, earlier, contents in opened(effect):
            for index in range(contents.count):
                self._passed += 1
                if self._passed > self.step.skip and not (self.found and self._bytes > MAX_LOOK_BYTES):
                    message = _message(contents, index, first + index, earlier, effect.user)
                    self._bytes += len(message.body)
                    self.found.append(message)


def _message(contents: Contents, index: int, tag: int, deliveries: int, user: str) -> Message:
    head = head_at(contents, index)
    return Message(
        id=id_of(contents, index),
        tag=tag,
        priority=contents.priorities[index] if contents.priorities else contents.priority,
        persistent=contents.persistent,
        timestamp=contents.timestamps[index] if contents.timestamps else contents.timestamp,
        expiry=contents.expiries[index] if contents.expiries else contents.expiry,
        delivery_time=contents.delivery_times[index] if contents.delivery_times else contents.delivery_time,
        deliveries=deliveries,
        kind=head.kind if contents.kind == BodyKind.MIXED else contents.kind,
        body=contents.bodies[index],
        head=head,
        user=user,
    )


def _ranges(tags: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for tag in sorted(tags):
        if ranges and ranges[-1][1] == tag - 1:
            ranges[-1] = (ranges[-1][0], tag)
        else:
            ranges.append((tag, tag))
    return ranges

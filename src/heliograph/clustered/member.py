"""One incarnation of one member: the tasks that carry bytes between the engines and the middleware.

    control words ──▶ Membership ──▶ what may be acted on ──▶ Holding ──▶ lanes ──▶ the handler
    copies ──────────────────────────────────────────────────▶ Holding        └──▶ Done, to everybody

It ends with `Ended`: when the membership says so, or when the connection fails. Nothing of it is used again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from heliograph.clustered.adapter import Acknowledge, Adapter, Delivery, Referring, Transacting
from heliograph.clustered.agreement import agreement
from heliograph.clustered.clock import lease_clock
from heliograph.clustered.events import (
    ActOn,
    AllFencedOff,
    CopiesSubscribed,
    Doubt,
    Drained,
    Effect,
    Event,
    FencedOff,
    FenceOff,
    FenceOffAll,
    FindComplete,
    HasEverything,
    Heard,
    LeaveAsked,
    Say,
    Stop,
    SubscribeCopies,
    Terms,
    Ticked,
)
from heliograph.clustered.holding import Holding
from heliograph.clustered.membership import Membership
from heliograph.clustered.outgoing import Outgoing
from heliograph.clustered.pieces import Pieces, cut
from heliograph.clustered.ranges import EVERYTHING, Policy
from heliograph.clustered.settling import Settling
from heliograph.clustered.verifier import MessageVerifier
from heliograph.clustered.words import (
    Answer,
    Ask,
    Beat,
    Copy,
    Done,
    MemberKey,
    Piece,
    View,
    Word,
    decoded,
)
from heliograph.clustered.working import Figures, Handler, Working
from heliograph.model import limits
from heliograph.model.errors import ClientFault

log = logging.getLogger("heliograph.clustered")
COPIED_FIELDS = (
    "destination",
    "persistent",
    "timestamp",
    "type",
    "expiration",
    "priority",
    "unit_of_order",
    "correlation_id",
    "redelivered",
)


OnResult = Callable[[str, bytes], None]
OnPoison = Callable[[Delivery, str], None]


@dataclass(slots=True)
class Settings:
    """What a member is told by its application."""

    cluster: str
    name: str
    handler: Handler
    verifier: MessageVerifier
    policy: Policy
    terms: Terms
    weight: int = 1
    acknowledge: Acknowledge = Acknowledge.OWNER
    lanes: int = 1
    shares_results: bool = False
    on_result: OnResult | None = None
    on_poison: OnPoison | None = None


class Ended(Exception):
    """This incarnation is over."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.reason)
        self.stop = stop


def goes_on() -> bool:
    """Asked in every loop that uses a client of somebody else's: some swallow a cancellation that hits them, and
    others pass one on that was another task's, because both waited for the same future."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()


async def _tried(attempt: Awaitable[None]) -> None:
    """How it ends does not matter. Only a cancellation of this very task, and that came meanwhile, goes on."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        await attempt
    except asyncio.CancelledError:
        if task is None or task.cancelling() > before:
            raise
    except Exception:
        log.debug("a member could not take leave in order", exc_info=True)


def _weightiest(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of the errors that ended the tasks: what the application must hear of comes before what the world did."""
    for kind in (ClientFault, Ended, Exception):
        found = group.subgroup(kind)
        while found is not None:
            error = found.exceptions[0]
            if not isinstance(error, BaseExceptionGroup):
                return error
            found = error
    return group


class MemberRun:
    """The tasks of one incarnation."""

    def __init__(
        self,
        settings: Settings,
        adapter: Adapter,
        figures: Figures,
        known: OrderedDict[str, None],
        apart: int,
    ) -> None:
        """`known`: what earlier incarnations in this process have heard to be done. `apart`: where the last one acted
        apart from the others."""
        self._settings = settings
        self._adapter = adapter
        self._figures = figures
        self._clock = lease_clock
        self._transacting = adapter if isinstance(adapter, Transacting) and adapter.transacts else None
        if adapter.redelivers and settings.acknowledge is Acknowledge.NONE:
            raise ClientFault(
                "this middleware keeps a copy until it is acknowledged, and sends no more when too many are not: use"
                " Acknowledge.OWNER or ALL",
                code="acknowledgements-needed",
            )
        self.membership = Membership(
            name=settings.name,
            incarnation=time.time_ns() // 1_000_000,
            now=self._clock(),
            terms=replace(settings.terms, fences=self._transacting is not None),
            policy=settings.policy,
            weight=settings.weight,
            apart=apart,
            agreement=agreement(
                terms=settings.terms,
                fields=settings.verifier.fields,
                acknowledge=settings.acknowledge.value,
                transacts=self._transacting is not None,
            ),
        )
        self.holding = Holding(lanes=settings.lanes, known=known)
        self._outgoing = Outgoing(self.membership.key, self._cut)
        self._may_say, self._has_said_all = asyncio.Event(), asyncio.Event()
        self._pieces = Pieces()
        self._working = Working(
            settings.handler,
            self.membership,
            self.holding,
            figures,
            lanes=settings.lanes,
            shares_results=settings.shares_results,
            transacting=self._transacting,
            say=self._put,
            given_up=self._tell_drained,
        )
        self._room = asyncio.Event()
        self._to_acknowledge: list[Delivery] = []
        self._to_set_aside: list[Delivery] = []
        self._owed_acknowledgements = self._acknowledged = 0
        self._has_done_copies = asyncio.Event()
        self._heard_done: dict[MemberKey, int] = {}
        self._settling: Settling[HasEverything] = Settling()
        self._owed: int | None = None
        self._stop: Stop | None = None
        self._tasks: asyncio.TaskGroup
        self._leads = False
        self._ask_due = 0.0
        self._doubts = 0
        self._departed: dict[str, float] = {}
        self._is_subscribing = self._is_subscribed = False

    async def run(self) -> None:
        """Raises Ended."""
        try:
            await self._adapter.connect(self._settings.cluster, self.membership.key)
            # Before Python 3.13 a task in which a group was aborted counts as being cancelled from then on.
            await asyncio.create_task(self._work())
        except BaseExceptionGroup as group:
            raise _weightiest(group) from None
        finally:
            stop = self._stop or Stop("the connection failed")
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.CLUSTERED_LEAVING_SECONDS):
                    await _tried(self._acknowledge_now())  # what is done need not come again
                    await _tried(self._adapter.close(keeps_copies=stop.keeps_copies))

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            for work in (self._tick, self._hear, self._say, self._working.tell_done, self._acknowledge):
                self._tasks.create_task(work())
            for lane in range(self._settings.lanes):
                self._tasks.create_task(self._working.run_lane(lane))

    def leave(self) -> None:
        self._handle(LeaveAsked())

    # ---- the membership

    def _handle(self, event: Event) -> None:
        for effect in self.membership.handle(event):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Say(word):
                self._put(word)
            case SubscribeCopies(is_fresh):
                self._tasks.create_task(self._receive(is_fresh))
            case ActOn(ranges, epoch):
                log.debug("%s acts on %r in epoch %d", self._settings.name, ranges, epoch)
                self._owed = epoch
                view = self.membership.view
                self._pieces.keep_of(() if view is None else [member.name for member in view.members])
                self.holding.act_on(ranges)
                self._working.wake()
                self._tell_drained()
            case Doubt(ranges):
                self.holding.doubt(ranges)
                self._doubts += 1
                self._tasks.create_task(self._end_doubt())
            case FindComplete(key, lineage):
                self._tasks.create_task(self._find_complete(HasEverything(key, lineage)))
            case FenceOff(key):
                self._tasks.create_task(self._fence(key))
            case FenceOffAll():
                self._tasks.create_task(self._fence_all())
            case Stop():
                self._stop = effect
                self._tasks.create_task(self._end(effect))

    async def _tick(self) -> None:
        pause = self._settings.terms.beat_seconds / 3
        while True:
            self._handle(Ticked(self._clock(), time.time_ns() // 1_000_000))
            self._ask_about_the_overdue()
            self._discard_what_nobody_needs()
            if self._leads != self.membership.is_leader:
                self._leads = not self._leads
                await self._adapter.lead(self._leads)
            await asyncio.sleep(pause)

    async def _end(self, stop: Stop) -> None:
        if stop.has_left:
            # The last word is worth waiting for: after it nobody waits for the lease.
            await self._has_said_all.wait()
            await self._acknowledge_now()
        if stop.is_refused:
            raise ClientFault(f"all members must be told the same: {stop.reason}", code="member-disagrees")
        raise Ended(stop)

    def _tell_drained(self) -> None:
        if self._owed is not None and self.holding.is_drained:
            epoch, self._owed = self._owed, None
            self._handle(Drained(epoch))

    async def _end_doubt(self) -> None:
        await self._adapter.caught_up()
        self._doubts -= 1
        if not self._doubts:
            self.holding.caught_up()

    async def _find_complete(self, finding: HasEverything) -> None:
        await self._adapter.caught_up()
        self._tell_settled(self._settling.add(finding, self.holding.held))

    def _tell_settled(self, settled: list[HasEverything]) -> None:
        for event in settled:
            self._handle(event)

    def _discard_what_nobody_needs(self) -> None:
        """Copies of members that are gone for good. Who only comes back throws its old copies away itself."""
        departed, now = self.membership.departed, self._clock()
        for name in departed:
            since = self._departed.setdefault(name, now)
            if now - since >= limits.CLUSTERED_DISCARD_SECONDS and not self.membership.knows(name):
                self._departed[name] = float("inf")
                self._tasks.create_task(self._discard(name))
        self._departed = {name: since for name, since in self._departed.items() if name in departed}

    async def _discard(self, name: str) -> None:
        """A courtesy to the middleware: if it fails, copies of somebody who is gone stay there."""
        try:
            await self._adapter.discard(name)
        except Exception:
            log.warning("the copies of %s were not thrown away", name, exc_info=True)

    async def _fence(self, key: MemberKey) -> None:
        if self._transacting is not None:
            await self._transacting.fence(key)
        self._handle(FencedOff(key))

    async def _fence_all(self) -> None:
        if self._transacting is not None:
            await self._transacting.fence_all(self.membership.waits)
        self._handle(AllFencedOff())

    # ---- control words

    def _put(self, word: Word) -> None:
        self._outgoing.put(word)
        self._has_said_all.clear()
        self._may_say.set()

    async def _say(self) -> None:
        while goes_on():
            if not self._outgoing.has_words:
                self._has_said_all.set()  # but for copies: who wants them asks others, or me when I am back
            raw = self._outgoing.take()
            if raw is not None:
                await self._adapter.say(raw)
            else:
                self._may_say.clear()
                await self._may_say.wait()

    async def _hear(self) -> None:
        while goes_on():
            raw = await self._adapter.hear()
            word = decoded(raw)
            if word is not None:
                if self._outgoing.heard(word, len(raw)):
                    self._may_say.set()
                self._heed(word)

    def _heed(self, word: Word) -> None:
        match word:
            case Beat():
                self._check_gap(word.key, word.done)
                self._handle(Heard(word, self._clock()))
            case View():
                self._handle(Heard(word, self._clock()))
            case Done():
                self._check_gap((word.name, word.incarnation), word.number - 1)
                self._heard_done[word.name, word.incarnation] = word.number
                self._heed_done(word.ids)
                self._share_results(word)
            case Ask(name, to, ids) if to == self._settings.name:
                self._tasks.create_task(self._answer(name, ids))
            case Answer(name, to, done, wanted) if to == self._settings.name:
                self._heed_done(done)
                self._send_copies(name, wanted)
            case Copy(to=to) if to == self._settings.name:
                self._take_copy(word)
            case Piece(to=to) if to == self._settings.name:
                copy = self._pieces.take(word)
                if copy is not None:
                    self._take_copy(copy)
            case _:
                pass

    def _check_gap(self, key: MemberKey, number: int) -> None:
        """A word `Done` that was missed cannot be had again: begin again, with copies of what is new.

        Before I have copies nothing can be missed.
        """
        known = self._heard_done.setdefault(key, number)
        if not self._is_subscribing:
            self._heard_done[key] = max(known, number)
        elif number > known and self._transacting is None and self.membership.is_stranger(key):
            self._heard_done[key] = number  # it acted in another cluster: nothing of ours is missing
            self._carry_out(Doubt(EVERYTHING))
        elif number > known:
            raise Ended(Stop(f"words {known + 1} to {number} of {key[0]} were missed"))

    def _heed_done(self, ids: list[str]) -> None:
        gone = self.holding.done(ids)
        if gone:
            self._room.set()
            if self._settings.acknowledge is Acknowledge.OWNER:
                self._acknowledge_later([delivery for delivery in gone if delivery.handle is not None])
        self._tell_settled(self._settling.done(ids))
        self._tell_drained()

    async def _heed_kept_words(self, transacting: Transacting) -> None:
        """What was done while I was away, or before I last acknowledged what I had: not to be begun again."""
        for word in map(decoded, await transacting.kept_words()):
            if isinstance(word, Done):
                self._heed_done(word.ids)

    async def _let_go_of_words(self, transacting: Transacting) -> None:
        """Of those that came the last time but one, once their copies, which have come since, are acknowledged."""
        due = 0
        while goes_on():
            await asyncio.sleep(limits.CLUSTERED_LET_GO_SECONDS)
            await self._heed_kept_words(transacting)
            if self._acknowledged >= due:
                await transacting.let_go()
            await self._adapter.caught_up()
            due = self._owed_acknowledgements

    def _share_results(self, word: Done) -> None:
        on_result = self._settings.on_result
        if on_result is not None and word.name != self._settings.name:
            for identity, result in zip(word.ids, word.results, strict=False):
                if result is None:
                    continue
                try:
                    on_result(identity, result)
                except Exception:  # of the application: it ends nobody's lease
                    log.warning("on_result failed", exc_info=True)

    # ---- copies

    async def _receive(self, is_fresh: bool) -> None:
        self._is_subscribing = True
        await self._adapter.subscribe(is_fresh=is_fresh)
        if self._transacting is not None:
            await self._heed_kept_words(self._transacting)
            self._tasks.create_task(self._let_go_of_words(self._transacting))
        self._is_subscribed = True
        self._handle(CopiesSubscribed())
        holding = self.holding
        acknowledges_all = self._settings.acknowledge is Acknowledge.ALL
        while goes_on():
            while holding.is_full:
                self._room.clear()
                await self._room.wait()
            deliveries = await self._adapter.receive()
            # Nothing may come in between: whoever waits for the adapter to be caught up looks at what is held.
            self._figures.received += len(deliveries)
            deliveries, known = self._take(deliveries)
            self._working.wake()
            if acknowledges_all:
                self._acknowledge_later(deliveries)
            elif known and self._settings.acknowledge is Acknowledge.OWNER:
                self._acknowledge_later(known)
            await asyncio.sleep(0)  # copies that are here already must not keep words from being heard

    def _take(self, deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Those that have a value, and of these, those that can be acknowledged already: they are done, or another
        copy is held."""
        value_of, now = self._settings.verifier.value, self._clock()
        taken: list[Delivery] = []
        known: list[Delivery] = []
        for delivery in deliveries:
            try:
                if delivery.fault is not None:
                    raise ValueError(delivery.fault)
                value = value_of(delivery)
            except Exception as error:  # whatever a producer put there
                self._set_aside(delivery, str(error) or repr(error))
                continue
            taken.append(delivery)
            if not self.holding.receive(delivery, value, now):
                known.append(delivery)
        return taken, known

    def _set_aside(self, delivery: Delivery, reason: str) -> None:
        """Nobody can say whose it is. Every member finds the same, so nobody waits for it."""
        if not self._figures.poisonous:
            log.warning("message %r has no value and is set aside, as all like it: %s", delivery.id, reason)
        self._figures.poisonous += 1
        if self._settings.on_poison is not None:
            try:
                self._settings.on_poison(delivery, reason)
            except Exception:
                log.warning("on_poison failed", exc_info=True)
        if self._settings.acknowledge is not Acknowledge.NONE:
            self._to_set_aside.append(delivery)
            self._has_done_copies.set()

    def _acknowledge_later(self, deliveries: list[Delivery]) -> None:
        """Hearing must not wait for the middleware: one's own beat may be the next word."""
        self._to_acknowledge += deliveries
        self._owed_acknowledgements += len(deliveries)
        self._has_done_copies.set()

    async def _acknowledge(self) -> None:
        while goes_on():
            await self._has_done_copies.wait()
            self._has_done_copies.clear()
            await self._acknowledge_now()

    async def _acknowledge_now(self) -> None:
        deliveries, self._to_acknowledge = self._to_acknowledge, []
        if deliveries:
            await self._adapter.acknowledge(deliveries)
            self._acknowledged += len(deliveries)
        poisonous, self._to_set_aside = self._to_set_aside, []
        if poisonous:
            await self._adapter.set_aside(poisonous)

    def _ask_about_the_overdue(self) -> None:
        view, now = self.membership.view, self._clock()
        if view is None or now < self._ask_due:
            return
        self._ask_due = now + limits.CLUSTERED_ASK_PAUSE_SECONDS
        by_owner: dict[str, list[str]] = {}
        for held in self.holding.overdue(now):
            by_owner.setdefault(view.assignment.owner(held.value), []).append(held.delivery.id)
        for owner, ids in by_owner.items():
            if owner != self._settings.name:
                self._figures.asked += len(ids)
                for at in range(0, len(ids), limits.CLUSTERED_DONE_IDS):
                    part = ids[at : at + limits.CLUSTERED_DONE_IDS]
                    self._put(Ask(self._settings.name, owner, part))

    async def _answer(self, name: str, ids: list[str]) -> None:
        """What I have not seen although I have seen everything until now, I never will; nor while I am full of what
        waits for others."""
        if not self._is_subscribed:
            return
        if not self.holding.is_full:
            await self._adapter.caught_up()
        done = [identity for identity in ids if self.holding.is_done(identity)]
        wanted = [i for i in ids if i not in self.holding.held and not self.holding.is_done(i)]
        if done or wanted:
            self._put(Answer(self._settings.name, name, done, wanted))

    def _send_copies(self, owner: str, wanted: list[str]) -> None:
        for identity in wanted:
            if identity in self.holding.held:
                self._outgoing.put_copy(owner, identity)
        self._may_say.set()

    def _cut(self, owner: str, identity: str) -> Iterator[Copy | Piece]:
        """As long as it is not done. One that cannot be sent waits here until its owner has it otherwise."""
        held = self.holding.held.get(identity)
        if held is None:
            return
        delivery = held.delivery
        fields: dict[str, Any] = {field: getattr(delivery, field) for field in COPIED_FIELDS}
        fields["properties"] = dict(delivery.properties)
        if delivery.reference:
            fields["reference"] = delivery.reference
        copy = Copy(self._settings.name, owner, identity, held.value, delivery.body, fields)
        is_cut = False
        try:
            for word in cut(copy):
                if identity not in self.holding.held:
                    return
                yield word
                is_cut = True
        except Exception as error:  # whatever a producer put there
            log.warning("message %r cannot be sent to %s: %s", identity, owner, error)
        else:
            if not is_cut:
                log.warning("message %r is too large to be sent to %s", identity, owner)

    def _take_copy(self, word: Copy) -> None:
        """Marked: somebody who was here before, and of whom I know nothing, may have begun it."""
        delivery = Delivery(id=word.id, body=word.body, **{**word.fields, "redelivered": True})
        if delivery.reference and isinstance(self._adapter, Referring):
            delivery.open = self._adapter.opening(delivery)
        self.holding.receive(delivery, word.value, self._clock())
        self._working.wake()

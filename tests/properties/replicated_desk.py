"""A client manager whose clients do anything at any time. Its bus is the one of production."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

import msgspec
from crc32c import crc32c

from heliograph.bus.commands import (
    OF_THE_VIEW,
    Answered,
    Command,
    CommitAsked,
    Confirmed,
    ConsumerAttached,
    ConsumerDetached,
    DestinationWanted,
    Dispatched,
    Enrolled,
    EnrolmentSeen,
    FinalAsked,
    OutcomeAsked,
    OutcomeWanted,
    Parcelled,
    PrepareAsked,
    Published,
    Recalled,
    Refused,
    Rejected,
    RollbackAsked,
    SessionOpened,
    Settled,
)
from heliograph.bus.interface import ChannelBus, Incarnation, Origin
from heliograph.bus.presence import CLIENT_MANAGER, NodeState
from heliograph.cluster.events import Why
from heliograph.cluster.partition_state import Enrolment, State
from heliograph.cluster.roles import roles_in
from heliograph.cluster.view import View
from heliograph.model.block import Span, pack, parse, slice_span, unpack
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, IdIssuer, LaneId, SessionId, lane_of
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.cluster_member import ClusterMember
from heliograph.nodes.station import came_with
from heliograph.nodes.tick import Tick
from tests.properties.replicated_judge import Copy, Judge, Letter, Transaction, Violation

HERE, THERE = "here", "there"  # the sub-cluster that is played, and one that always does what it is told
PHASES = ("", HERE, THERE)  # one, or two with this decider
IN_DOUBT = "transaction-in-doubt"
WINDOW = 12  # blocks that a sender has on their way


def microseconds() -> int:
    return time.time_ns() // 1000


class Sender(msgspec.Struct):
    """A lane. `kind`: what it sends."""

    address: Address
    session: SessionId
    lane: LaneId
    kind: str
    ready: bool = False
    next: int = 1
    waiting: dict[int, Letter] = {}
    transaction: Transaction | None = None
    staged: int = 0


class Taker(msgspec.Struct):
    """A consumer. `of`: the list it takes from."""

    address: Address
    session: SessionId
    consumer: ConsumerId
    of: str
    mode: str  # auto, client, transacted
    alone: bool
    tags: dict[int, Letter] = {}
    last: int = 0
    recalled_behind: int | None = None
    behind: dict[int, None] = {}  # these go back with what was returned
    limbo: list[tuple[int, list[Span]]] = []  # came before the word on what is recalled: nobody has seen it


class Desk:
    """One process."""

    def __init__(self, name: str, number: int, bus: ChannelBus, judge: Judge, dice: Random) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self._judge = judge
        self._dice = dice
        self._issuer = IdIssuer(site=1, node=100 + number, started_ms=microseconds() // 1000)
        self._requests = (number + 1) << 32
        self.waiting: dict[int, tuple[str, Callable[[Answered | Rejected], None]]] = {}
        self.tick = Tick(loop, self._broke)
        self.clients = ClusterClients(self.tick, self._begins_anew)
        self.clients.may_speak = False  # before there is a view, nobody is there who leads
        self.clients.join(self._decided)
        self.member = ClusterMember(
            bus,
            "channel",
            nodes=lambda: (NodeState(name, CLIENT_MANAGER),),
            handler=self,
            loop=loop,
            clock=loop.time,
        )
        self.clients.channel = self.member
        self.member.start()
        self.senders: dict[LaneId, Sender] = {}
        self.takers: dict[ConsumerId, Taker] = {}
        self._kept: dict[ConsumerId, Taker] = {}  # also those that left: what they settled is still answered
        self._deciding: dict[SessionId, None] = {}
        self.is_gone = False
        self.has_been_restricted = False
        self.doubts = 0  # how often a part that was cut off could not say what became of a transaction
        self.is_left_behind = False  # whoever leads heard something else: clients have to come anew
        self.crashes: Callable[[], int] = lambda: 0
        self.begun: Callable[[], int] = lambda: 0
        self.failure: BaseException | None = None

    def _begins_anew(self) -> None:
        """Another leads now, and its log is not the one that was spoken to: clients come anew, maybe elsewhere."""
        self.is_left_behind = True

    def _not_decided(self, transaction: Transaction, copies: list[Copy], answer: Rejected) -> None:
        """A part that is cut off may refuse, and while parts meet nobody knows."""
        is_unknown = answer.code == IN_DOUBT
        self.doubts += is_unknown
        transaction.outcome = None if is_unknown else False
        for copy in copies:
            copy.is_acknowledged, copy.may_be_done = False, is_unknown
            copy.history.append(f"commit {answer.code}")

    def _broke(self, bug: Exception) -> None:
        self.failure = self.failure or bug

    def die(self, said: int) -> None:
        """What its consumers had comes back; what its senders sent and was not confirmed is anybody's guess."""
        self.is_gone = True
        stay = self.member._stay
        if stay is not None:
            stay.is_over = True
            stay.membership.die(said)  # type: ignore[attr-defined]
        for pending in (self.member._ticking, self.member._coming):
            if pending is not None:
                pending.cancel()
        for sender in self.senders.values():
            for letter in sender.waiting.values():
                letter.sender_is_gone = True
            if sender.transaction is not None and not sender.transaction.is_asked:
                sender.transaction.outcome = False
        for letter in self._judge.letters.values():
            for copy in letter.copies.values():
                if copy.holder in self._kept:
                    copy.holder = None
                    copy.history.append("its client manager died")
                if copy.is_acknowledged and not copy.is_done and copy.acknowledged_by in self._kept:
                    copy.is_acknowledged = False
                    copy.may_be_done = True
        self._judge.abandoned.update(self._deciding)
        self.waiting.clear()

    # ---- the channel

    def on_apply(self, origin: Origin, commands: list[Command], _position: int) -> None:
        if not self.is_gone:
            for command in commands:
                if isinstance(command, Enrolled):
                    epoch = msgspec.msgpack.decode(command.enrolment, type=Enrolment).epoch
                    self.member.multicast(EnrolmentSeen(epoch))
            self.clients.on_apply(origin, [each for each in commands if type(each) not in OF_THE_VIEW])

    def on_suspend(self) -> None: ...

    def on_install(self, view: View) -> None:
        me = self.member.incarnation
        assert me is not None
        roles = roles_in(view)
        primary = roles.primary
        self.has_been_restricted |= roles.partition.state is State.D
        if self.clients.has_spoken and primary not in came_with(view, me):
            self.is_left_behind = True
        self.clients.may_speak = primary is not None and not self.is_left_behind
        self.clients.go_on()

    def on_arrive(self, incarnation: Incarnation, agrees: bool) -> None: ...

    def on_flow(self, may_send: bool) -> None:
        self.clients.go_on()

    def force(self, then: Callable[[], None]) -> None:
        then()

    def on_left(self, why: str) -> None:
        """Who is silent for too long is expelled, and its clients come anew, maybe elsewhere. Nothing else is to end
        a member that hears all that is said."""
        if why == Why.EXPELLED:
            self.is_left_behind, self.clients.may_speak = True, False
        elif not self.is_gone:
            self.failure = Violation(f"{self.name} left the channel: {why}")

    # ---- decisions

    def _decided(self, command: Command) -> None:
        try:
            self._hear(command)
        except Violation as violation:
            self.failure = self.failure or violation

    def _hear(self, command: Command) -> None:
        if isinstance(command, Dispatched):
            self._given(command.consumer, command.tag, [command.span])
        elif isinstance(command, Parcelled):
            self._given(command.consumer, command.tag, command.spans)
        elif isinstance(command, Confirmed):
            self._confirmed(command)
        elif isinstance(command, Answered | Rejected):
            found = self.waiting.pop(command.request, None)
            if found is not None:
                found[1](command)
        elif isinstance(command, Refused):
            if command.lane in self.senders:
                raise Violation(f"{self.senders[command.lane]} was refused: {command}")
        elif isinstance(command, Recalled):
            self._recalled(command)
        elif isinstance(command, OutcomeWanted):
            self._wanted(command)

    def _request(self, what: str, then: Callable[[Answered | Rejected], None]) -> int:
        self._requests += 1
        self.waiting[self._requests] = (what, then)
        return self._requests

    # ---- sending

    def session(self) -> SessionId:
        session = self._issuer.session()
        request = self._request("session", self._no_rejection)
        self.clients.multicast(SessionOpened(request, session, "somebody", b"token"))
        return session

    def _no_rejection(self, answer: Answered | Rejected) -> None:
        if isinstance(answer, Rejected):
            raise Violation(f"rejected: {answer}")

    def _no_refusal(self, answer: Answered | Rejected) -> None:
        """To what is asked about a promise. A part that was cut off cannot say what became of it; whoever promised
        asks again when that can be known (PROTOCOL 7.6). The answer may be heard in the view behind that one."""
        if isinstance(answer, Rejected) and answer.code == IN_DOUBT and self.has_been_restricted:
            self.doubts += 1
        else:
            self._no_rejection(answer)

    def sender(self, address: str, kind: str, session: SessionId | None = None) -> Sender:
        session = session or self.session()
        lane = lane_of(session, 1)
        sender = Sender(Address(address), session, lane, kind)
        self.senders[lane] = sender

        def ready(answer: Answered | Rejected) -> None:
            self._no_rejection(answer)
            sender.ready = True

        request = self._request(f"lane to {address}", ready)
        self.clients.multicast(DestinationWanted(request, Address(address), True, lane))
        return sender

    def send(self, sender: Sender, *, count: int = 0, unit: int = 0) -> None:
        """A block. `count`: of so many messages, instead of any number. `unit`: all of this unit of order."""
        if not sender.ready or len(sender.waiting) >= WINDOW * 3:
            return
        dice = self._dice
        count = count or dice.choice((1, 1, 1, 2, 5))
        now = microseconds()
        persistent = sender.kind != "volatile" and not (sender.kind == "mixed" and dice.random() < 0.4)
        priority = dice.choice((2, 4, 4, 7)) if sender.kind == "priority" else 4
        due = now + dice.randint(5_000, 60_000) if sender.kind == "delayed" and dice.random() < 0.5 else 0
        expiry = (
            now + dice.randint(1_000, 100_000) if sender.kind == "expiring" and dice.random() < 0.4 else 0
        )
        units = [unit] * count if unit else None
        if sender.kind == "unit" and not unit:
            base = crc32c(sender.lane) << 8
            units = [base + dice.randint(1, 3) for _ in range(count)]
        letters = [
            Letter(
                f"{sender.lane.hex()}:{sender.next + index}",
                sender.address,
                sender.lane,
                sender.next + index,
                b"",
                persistent,
                priority,
                units[index] if units else 0,
                due,
                expiry,
                sender.transaction,
                crashes=self.crashes(),
                begun=self.begun(),
                copies={},
            )
            for index in range(count)
        ]
        for letter in letters:
            letter.body = letter.name.encode() + b"|" + b"x" * dice.choice((0, 10, 100, 700))
            self._judge.sent(letter)
            sender.waiting[letter.sequence] = letter
        buffer = pack(
            [letter.body for letter in letters],
            lane=sender.lane,
            first=sender.next,
            timestamp=now,
            priority=priority,
            persistent=persistent,
            expiry=expiry,
            delivery_time=due,
            units=units,
        )
        sender.next += count
        staged = sender.transaction is not None
        if staged:
            sender.staged += count
        self.clients.multicast(Published(sender.address, parse(buffer), staged=staged))

    def _confirmed(self, command: Confirmed) -> None:
        sender = self.senders.get(command.lane)
        if sender is None:
            return
        if command.last >= sender.next:
            raise Violation(f"{command.last} confirmed to {sender.lane.hex()}, which sent {sender.next - 1}")
        for sequence in [sequence for sequence in sender.waiting if sequence <= command.last]:
            sender.waiting.pop(sequence).confirmed = True

    # ---- consuming

    def taker(
        self,
        address: str,
        mode: str,
        *,
        insists: bool = False,
        alone: bool,
        subscription: str = "",
        session: SessionId | None = None,
        credit: int = 0,
        then: Callable[[], None] | None = None,
        number: int = -1,
        selector: str = "",
        shared: bool = False,
    ) -> Taker:
        """`number`: its client's own for it, under which it could be claimed."""
        consumer = self._issuer.consumer()
        session = session or self.session()
        taker = Taker(Address(address), session, consumer, subscription or address, mode, alone)
        self.takers[consumer] = self._kept[consumer] = taker

        def ready(answer: Answered | Rejected) -> None:
            if isinstance(answer, Rejected) and answer.code == "subscription-in-use":
                # The consumer of a client manager that died is not gone before the next view.
                self.takers.pop(consumer, None)
                if insists:
                    again()
                return
            self._no_rejection(answer)
            if then is not None:
                then()

        def again() -> None:
            self.taker(
                address,
                mode,
                insists=True,
                alone=alone,
                subscription=subscription,
                session=session,
                credit=credit,
                then=then,
                number=number,
                selector=selector,
                shared=shared,
            )

        request = self._request(f"consumer of {address}", ready)
        self.clients.multicast(
            ConsumerAttached(
                request,
                Address(address),
                consumer,
                session,
                credit or self._dice.choice((1, 3, 10, 40)),
                subscription=subscription,
                client="client" if subscription else "",
                durable=bool(subscription),
                shared=shared,
                selector=selector,
                prompt=mode == "auto",
                number=number,
            )
        )
        return taker

    def _given(self, consumer: ConsumerId, tag: int, spans: list[Span]) -> None:
        taker = self.takers.get(consumer)
        if taker is None:
            return
        if taker.recalled_behind is not None:
            taker.limbo.append((tag, spans))
            return
        if tag <= taker.last:
            raise Violation(f"tag {tag} after {taker.last}")
        begin = tag
        for span in spans:
            contents = unpack(b"".join(bytes(part) for part in slice_span(span)))
            for body in contents.bodies:
                letter = self._judge.given(
                    taker.of,
                    consumer,
                    tag,
                    body,
                    marked=span.deliveries > 0,
                    alone=taker.alone,
                    now=microseconds(),
                )
                taker.tags[tag] = letter
                taker.last = tag
                tag += 1
        if taker.mode == "auto":
            self._settle(taker, list(range(begin, tag)))

    def _settle(self, taker: Taker, tags: list[int], request: bool = False) -> None:
        letters = [taker.tags.pop(tag) for tag in tags if tag in taker.tags]
        tags = sorted(tags)
        ranges: list[tuple[int, int]] = []
        for tag in tags:
            if ranges and ranges[-1][1] + 1 == tag:
                ranges[-1] = (ranges[-1][0], tag)
            else:
                ranges.append((tag, tag))
        copies = [letter.copies[taker.of] for letter in letters]
        for copy in copies:
            copy.holder, copy.is_acknowledged, copy.acknowledged_by = None, True, taker.consumer
            copy.history.append("acknowledged")

        def stored(answer: Answered | Rejected) -> None:
            self._no_rejection(answer)
            for copy in copies:
                copy.is_done = True
                copy.history.append("done")

        number = self._request(f"settlement of {taker.of}", stored) if request else 0
        self.clients.multicast(
            Settled(taker.address, taker.consumer, False, ranges, replenish=True, request=number)
        )

    def settle(self, taker: Taker) -> None:
        """Some of what it has, in any order."""
        if taker.mode == "client" and taker.tags and taker.recalled_behind is None:
            tags = sorted(taker.tags)
            count = self._dice.randint(1, len(tags))
            chosen = tags[:count] if self._dice.random() < 0.7 else self._dice.sample(tags, count)
            if any(taker.tags[tag].unit for tag in chosen):
                chosen = tags[:count]
            self._settle(taker, sorted(chosen), request=True)

    def give_back(self, taker: Taker, tag: int = 0) -> None:
        """`tag`: of what it has, instead of any."""
        if taker.mode != "client" or not taker.tags or taker.recalled_behind is not None:
            return
        tag = tag or self._dice.choice(sorted(taker.tags))
        letter = taker.tags.pop(tag)
        copy = letter.copies[taker.of]
        if copy.times > 6:
            taker.tags[tag] = letter
            return
        copy.holder = None
        copy.history.append("returned")
        for behind, later in taker.tags.items():
            if letter.unit and later.unit == letter.unit and behind > tag:
                # It goes back too (docs/decisions/0008): somebody may have it before the word on that is heard here.
                taker.behind[behind] = None
                later.copies[taker.of].holder = None
                later.copies[taker.of].history.append("behind what was returned")
        taker.recalled_behind = taker.last
        request = self._request(f"return to {taker.of}", self._no_rejection)
        self.clients.multicast(
            Settled(
                taker.address,
                taker.consumer,
                True,
                [(tag, tag)],
                replenish=True,
                request=request,
                seen=taker.last,
            )
        )

    def _recalled(self, command: Recalled) -> None:
        taker = self.takers.get(command.consumer)
        if taker is None:
            return
        taker.recalled_behind = None
        gone = {tag for first, last in command.tags for tag in range(first, last + 1)}
        behind, taker.behind = taker.behind, {}
        for tag in gone:
            letter = taker.tags.pop(tag, None)
            if letter is not None and tag not in behind:
                raise Violation(f"recalled, and not behind what was returned: {tag} of {taker.of}")
        kept = [tag for tag in behind if tag not in gone]
        if kept:
            raise Violation(f"behind what was returned, and not recalled: {kept} of {taker.of}")
        limbo, taker.limbo = taker.limbo, []
        for first, spans in limbo:
            tag = first
            for span in spans:
                for index in range(span.start, span.stop):
                    if tag not in gone:
                        self._given(taker.consumer, tag, [span.part(index, index + 1)])
                    tag += 1

    def detach(self, taker: Taker) -> None:
        del self.takers[taker.consumer]
        for letter in taker.tags.values():
            letter.copies[taker.of].holder = None
            letter.copies[taker.of].history.append("detached")
        seen = taker.last if self._dice.random() < 0.7 else -1
        taker.tags.clear()
        request = self._request(f"detaching from {taker.of}", self._no_rejection)
        self.clients.multicast(ConsumerDetached(taker.address, taker.consumer, request, seen))

    # ---- transactions

    def waiting_for(self, session: SessionId) -> bool:
        """Whether an outcome is open. A session has one transaction at a time."""
        return session in self._deciding

    def begin(self, sender: Sender, number: int) -> None:
        sender.transaction = Transaction(number)
        sender.staged = 0

    def commit(self, sender: Sender, takers: list[Taker]) -> None:
        transaction = sender.transaction
        assert transaction is not None
        transaction.is_asked = True
        sender.transaction = None
        consumed = []
        copies: list[Copy] = []
        for taker in takers:
            if taker.tags:
                tags = sorted(taker.tags)
                consumed.append((taker.address, taker.consumer, [(tag, tag) for tag in tags]))
                for tag in tags:
                    copy = taker.tags.pop(tag).copies[taker.of]
                    copy.acknowledged_by = taker.consumer
                    copies.append(copy)
        for copy in copies:
            copy.is_acknowledged, copy.holder = True, None
            copy.history.append("in a commit")

        self._deciding[sender.session] = None

        def decided(answer: Answered | Rejected) -> None:
            del self._deciding[sender.session]
            transaction.outcome = isinstance(answer, Answered)
            if isinstance(answer, Rejected) and self.has_been_restricted:
                self._not_decided(transaction, copies, answer)
                return
            if not transaction.outcome and answer.code != "transaction-rolled-back":  # type: ignore[union-attr]
                raise Violation(f"commit: {answer}")
            for copy in copies:
                copy.is_done = transaction.outcome
                copy.is_acknowledged = transaction.outcome
                copy.history.append(f"commit {transaction.outcome}")
            if not transaction.outcome:
                raise Violation(f"nothing speaks against this transaction, and it was rolled back: {answer}")

        phases = PHASES[(transaction.number + sender.session[-3]) % len(PHASES)]
        key = (sender.session, transaction.number)
        if not phases:
            request = self._request("commit", decided)
            self.clients.multicast(CommitAsked(request, *key, sender.staged, consumed))
            return

        def ready(answer: Answered | Rejected) -> None:
            if isinstance(answer, Rejected):
                self._give_up(key, phases, answer, decided)
                return
            self._judge.decided[key] = True
            asked = self._request("decide", decided)
            if phases == HERE:
                self.clients.multicast(OutcomeAsked(asked, *key, True))
            else:
                self.clients.multicast(FinalAsked(asked, *key, True, THERE, HERE))

        request = self._request("prepare", ready)
        self.clients.multicast(
            PrepareAsked(request, *key, sender.staged, consumed, phases, [HERE, THERE], HERE)
        )

    def _wanted(self, wanted: OutcomeWanted) -> None:
        """Whoever hears it asks the decider; if that is elsewhere, it says what the client manager had told it, which
        is nothing if that died before."""
        key = (wanted.session, wanted.number)

        def answered(answer: Answered | Rejected) -> None:
            self._no_refusal(answer)
            if (
                isinstance(answer, Answered) and answer.body["outcome"] == "committed"
            ):  # there they have it too
                end = FinalAsked(self._request("end", self._no_refusal), *key, True, HERE, HERE)
                self.clients.multicast(end)

        if wanted.decider == HERE:
            self.clients.multicast(OutcomeAsked(self._request("outcome", answered), *key, False))
        elif key in self._judge.decided or wanted.session in self._judge.abandoned:
            is_commit = self._judge.decided.setdefault(key, False)
            final = FinalAsked(self._request("final", self._no_refusal), *key, is_commit, THERE, HERE)
            self.clients.multicast(final)

    def _give_up(
        self,
        key: tuple[SessionId, int],
        decider: str,
        refusal: Rejected,
        decided: Callable[[Answered | Rejected], None],
    ) -> None:
        """Who was to promise does not, or cannot say any more whether it has. The decider is told first, then the
        others and the client (`Coordinating`)."""
        if decider == THERE:
            self._judge.decided[key] = False
            final = FinalAsked(self._request("final", self._no_refusal), *key, False, THERE, HERE)
            self.clients.multicast(final)
            decided(refusal)
            return

        def answered(answer: Answered | Rejected) -> None:
            if isinstance(answer, Answered) and answer.body["outcome"] != "aborted":
                raise Violation(f"nobody has decided this transaction: {answer}")
            decided(answer if isinstance(answer, Rejected) else refusal)

        self.clients.multicast(FinalAsked(self._request("give up", answered), *key, False, HERE, HERE))

    def roll_back(self, sender: Sender, takers: list[Taker]) -> None:
        transaction = sender.transaction
        assert transaction is not None
        transaction.outcome = False
        sender.transaction = None
        consumers = []
        for taker in takers:
            consumers.append((taker.address, taker.consumer, taker.last))
            for letter in taker.tags.values():
                letter.copies[taker.of].holder = None
                letter.copies[taker.of].history.append("rolled back")
            taker.tags.clear()
            taker.mode = "rolling back"
        ignored = {taker.consumer: self.takers.pop(taker.consumer) for taker in takers}

        self._deciding[sender.session] = None

        def answered(answer: Answered | Rejected) -> None:
            del self._deciding[sender.session]
            self._no_rejection(answer)
            for taker in takers:
                taker.mode = "transacted"
                self.takers[taker.consumer] = ignored[taker.consumer]

        request = self._request("rollback", answered)
        self.clients.multicast(RollbackAsked(request, sender.session, transaction.number, consumers))

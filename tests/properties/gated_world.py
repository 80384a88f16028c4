"""A message manager in a cluster that comes apart: the world of destinations, with views.

The model is the gate of the rules itself, shown every message that waits, one by one in their order. Where a message
was accepted it finds by reading the history of views from the beginning, for each message anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.bus.commands import Command, ConsumerDetached, Published, SessionLost
from heliograph.cluster.dispatch_rules import Gate, Hold, Message, Situation, Where, own_hold
from heliograph.cluster.partition_state import State
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.subscriptions import FOR_OTHER_PARTS
from heliograph.destinations.topic import Topic
from heliograph.model.block import Block, parse
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, LaneId, SessionId
from heliograph.model.limits import DOUBT_SECONDS
from tests.properties.destination_model import Model
from tests.properties.destination_parties import EVERYTHING, QUEUE_LIST, Lane, Letter, Sent, Subscriber, Taker
from tests.properties.destination_world import QUEUE, TOPIC, Client, World
from tests.properties.memory_journal import Boundary

NOWHERE = Situation(state=State.A, is_in_force=False)


class Entered(msgspec.Struct):
    """A view was installed; an empty one is an attempt."""

    view: bytes
    state: State
    takes_along: bool


class InForce(msgspec.Struct):
    """The view of the last `Entered`."""


class Whole(msgspec.Struct):
    """The same."""


class Held(msgspec.Struct):
    """Messages of a lane that were sent again."""

    lane: LaneId
    first: int
    last: int
    why: Hold


Fact = Entered | InForce | Whole | Held
NEVER = 1 << 62


class Doubt(msgspec.Struct):
    """A consumer that may be in another part, as it was when that was written down."""

    taker: Taker
    since: int  # the ticks in which it began, and was over
    until: int = NEVER


class PartedModel(Model):
    """What may be handed out depends on where it was accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[tuple[int, Fact]] = []  # by the tick in which they were written
        self.places: dict[tuple[LaneId, int], int] = {}  # how many facts there were when it was accepted
        self.situation: Situation | None = None
        self.away: dict[ConsumerId, Taker] = {}  # whose client manager may be in another part
        self.doubts: list[Doubt] = []  # that were ever written down

    def note(self, fact: Fact) -> None:
        self.facts.append((self.tick, fact))

    @property
    def is_parted(self) -> bool:
        return self.situation is not None and bool(self.facts) and not self.situation.is_whole

    def accepted(self, block: Block, address: Address, *, lsn: int) -> None:
        super().accepted(block, address, lsn=lsn)
        for letter in self.letters_of(block):
            self.places[letter.lane, letter.sequence] = len(self.facts)

    def crashed(self, kept: int, *, lost_machine: bool) -> None:
        self.doubts = [each for each in self.doubts if each.since <= kept < each.until]
        super().crashed(kept, lost_machine=lost_machine)
        self._stay_away()
        self.facts = [fact for fact in self.facts if fact[0] <= kept]
        self.situation = NOWHERE if self.facts else None

    # ---- who may be in another part

    def all_takers(self) -> list[Taker]:
        return [*super().all_takers(), *self.away.values()]

    def went_away(self, session: SessionId) -> None:
        """What its consumers have is nobody else's before a lease in a whole cluster, though all managers end."""
        for taker in [each for each in self.takers.values() if each.session == session]:
            if taker.browses:
                self.detached(taker.identity)
                continue
            self.away[taker.identity] = self.takers.pop(taker.identity)
            held = {tag: letter for tag, letter in taker.held.items() if letter.persistent}
            if held and (taker.list == QUEUE_LIST or self.subscribers[taker.list].durable):
                self.doubts.append(Doubt(msgspec.structs.replace(taker, held=held), self.tick))

    def comes_back(self, taker: Taker) -> None:
        """It is waited for no longer: what it had returns."""
        self._is_over(taker)
        self.takers[taker.identity] = taker
        self.detached(taker.identity)

    def nobody_waits_for(self, taker: Taker) -> None:
        """What it took from is gone."""
        self._is_over(taker)

    def _is_over(self, taker: Taker) -> None:
        del self.away[taker.identity]
        for doubt in self.doubts:
            if doubt.taker.identity == taker.identity:
                doubt.until = min(doubt.until, self.tick)

    def _stay_away(self) -> None:
        """After a restart: those of whom it is written down."""
        self.away.clear()
        for doubt in list(self.doubts):
            doubt.until = NEVER
            taker = msgspec.structs.replace(doubt.taker, held={})
            for tag, letter in doubt.taker.held.items():
                copy = letter.copies.get(taker.list)
                if self.letters.get((letter.lane, letter.sequence)) is letter and copy is not None:
                    tick, what, copy.deliveries = copy.history[-2]
                    assert (what, copy.history.pop()[1]) == ("dispatched", "restarted"), "nobody else had it"
                    copy.holder, taker.held[tag] = taker.identity, letter
            if taker.held:
                self.away[taker.identity] = taker
            else:
                self.doubts.remove(doubt)

    def deleted(self, address: Address) -> None:
        super().deleted(address)
        for taker in [each for each in self.away.values() if each.address == address]:
            self.nobody_waits_for(taker)

    # ---- where, by reading the history

    def where(self, letter: Letter) -> Where:
        place = self.places[letter.lane, letter.sequence]
        facts = [fact for _, fact in self.facts]
        views = [index for index, fact in enumerate(facts) if isinstance(fact, Entered)]
        before = [index for index in views if index < place]
        behind = [index for index in views if index >= place]
        if not views:
            return Where.UNRESTRICTED
        mine = before[-1] if before else -1
        if mine >= 0 and not _entered(facts[mine]).view and behind and _entered(facts[behind[0]]).takes_along:
            mine = behind[0]
        if mine == views[-1] and _entered(facts[mine]).view:
            return Where.CURRENT
        if mine < 0 or any(isinstance(fact, Whole) for fact in facts[place:]):
            return Where.UNRESTRICTED
        end = next((index for index in views if index > mine), len(facts))
        entered = _entered(facts[mine])
        was_in_force = any(isinstance(fact, InForce) for fact in facts[mine:end])
        is_good = entered.view and entered.state is not State.D and was_in_force
        return Where.UNRESTRICTED if is_good else Where.RESTRICTED

    def message(self, letter: Letter) -> Message:
        held = self._held(letter)
        where = self.where(letter)
        return Message(
            lane=letter.lane,
            where=where,
            is_sent_again=held is Hold.SENT_AGAIN,
            is_behind_gap=held is Hold.GAP,
        )

    def _held(self, letter: Letter) -> Hold | None:
        """The first word about a lane since it was whole is the reason for all of it that was named since."""
        first, last, why = 0, 0, None
        for _, fact in self.facts:
            if isinstance(fact, Whole):
                why = None
            elif isinstance(fact, Held) and fact.lane == letter.lane:
                first = min(first, fact.first) if why else fact.first
                last = max(last, fact.last) if why else fact.last
                why = why or fact.why
        return why if why and first <= letter.sequence <= last else None

    # ---- what may go

    def _has_rules(self, of: int) -> bool:
        return of == QUEUE_LIST or self.subscribers[of].shared

    def holds(self, address: Address, of: int, *, strict: bool) -> dict[int, Hold]:
        """Why each message that waits may not go, by number.

        `strict`: everything that waits makes others wait behind it. What was set aside for a time finds its place
        where it can, and a topic has no order between priorities: whether those made anybody wait is not said.
        """
        situation = self.situation
        if situation is None:
            return {}
        if own_hold(situation, Message(lane=LaneId(b""), where=Where.CURRENT)) is Hold.NOT_IN_FORCE:
            return {letter.number: Hold.NOT_IN_FORCE for letter in self.waiting(address, of)}
        if not self.is_parted or not self._has_rules(of):
            return {}
        found: dict[int, Hold] = {}
        gates: dict[int, Gate] = {}
        for letter in sorted(self.waiting(address, of), key=lambda each: each.number):
            apart = 0 if strict or of == QUEUE_LIST else letter.priority
            gate = gates.setdefault(apart, Gate(situation))
            is_alone = not strict and letter.is_late_in(of)
            message = self.message(letter)
            hold = own_hold(situation, message) if is_alone else gate.look(message)
            if hold is not None:
                found[letter.number] = hold
        return found

    def eligible(self, taker: Taker) -> Iterator[Letter]:
        waiting = self.holds(taker.address, taker.list, strict=True)
        return (letter for letter in super().eligible(taker) if letter.number not in waiting)

    def _hand_out(self, letter: Letter, taker: Taker, deliveries: int) -> None:
        waits = self.holds(letter.address, taker.list, strict=False).get(letter.number)
        assert waits is None, f"handed out though it has to wait: {waits}"
        super()._hand_out(letter, taker, deliveries)


def _entered(fact: Fact) -> Entered:
    assert isinstance(fact, Entered)
    return fact


class PartedWorld(World):
    """Installs views, as the shell of a cluster does."""

    model: PartedModel

    def __init__(self, resident_bytes: int) -> None:
        self._views = 0
        self._is_sent_again = False
        self._since_start: dict[LaneId, None] | None = (
            None  # after a restart: lanes on which something new came
        )
        self._began_in: dict[SessionId, bytes] = {}  # the view in which a transaction began to send
        self._numbers = 0
        super().__init__(resident_bytes)

    def make_model(self) -> Model:
        return PartedModel()

    def resume_session(self, client: Client) -> None:
        for taker in self._away_of(client):
            self.model.comes_back(taker)
        self._is_sent_again = True
        super().resume_session(client)
        self._is_sent_again = False

    # ---- clients in another part

    def number_of(self, _taker: Taker) -> int:
        self._numbers += 1
        return self._numbers

    def _away_of(self, client: Client) -> list[Taker]:
        return [each for each in self.model.away.values() if each.session == client.session]

    def is_away(self, client: Client) -> bool:
        return bool(self._away_of(client))

    def lose_to_another_part(self, client: Client) -> None:
        """Its client manager is gone, and has not ended: who knows what the client does meanwhile."""
        for address in list(client.temporaries):
            self.delete_temporary(client, address)
        client.staged.clear()
        self.model.went_away(client.session)
        self._tell(SessionLost(client.session, DOUBT_SECONDS))
        self.end_of_tick()

    @property
    def may_give_up(self) -> bool:
        """Whether the cluster is whole, and somebody is waited for."""
        situation = self.model.situation
        return situation is not None and situation.is_whole and bool(self.model.away)

    def give_up_waiting(self) -> None:
        """The lease of those who are away passes."""
        for taker in list(self.model.away.values()):
            self.model.comes_back(taker)
            self._tell(ConsumerDetached(taker.address, taker.identity))
        self.end_of_tick()

    def _subscribe(self, client: Client, taker: Taker, wish: Subscriber) -> None:
        """Whoever comes for a subscription need not wait for one that is away, unless both share it."""
        found = self.subscriber_like(wish) if wish.name else None
        if found is not None and (not wish.shared or found.selector != wish.selector):
            for away in self._away_from(found):
                if wish.shared:
                    self.model.nobody_waits_for(away)
                else:
                    self.model.comes_back(away)
        super()._subscribe(client, taker, wish)

    def _away_from(self, subscriber: Subscriber) -> list[Taker]:
        return [each for each in self.model.away.values() if each.list == subscriber.identity]

    def unsubscribe(self, client: str, name: str) -> None:
        found = self.subscriber_like(Subscriber(TOPIC, client, name, True, False, ""))
        super().unsubscribe(client, name)
        if found is not None and found.ended:
            for away in self._away_from(found):
                self.model.nobody_waits_for(away)

    # ---- sending

    def send(self, lane: Lane, buffer: bytes, *, staged: bool = False) -> str:
        block = parse(buffer)
        mark = lane.mark
        verdict = self.model.judge(block)
        has_gap = block.first > mark + 1
        is_unsure = verdict == "accepted" and not staged and (self._is_sent_again or has_gap)
        if is_unsure and self.model.is_parted:
            why = Hold.GAP if has_gap else Hold.SENT_AGAIN
            self.model.note(Held(lane.identity, block.first, block.last, why))
        if verdict == "accepted":
            self.model.taken(block)
            if staged:
                client = self.clients[SessionId(lane.identity[:14] + b"\0\0")]
                if not client.staged:
                    self._began_in[client.session] = self._present
                client.staged.append((lane, lane.sent[-1]))
            else:
                before = is_unsure and self.model.is_parted  # a record says so first
                lsn = self.journal.next_lsn + before if block.persistent else 0
                self.model.accepted(block, lane.address, lsn=lsn)
                if self._may_have_ended(block):
                    self.model.ended(block)
        self._tell(Published(lane.address, parse(buffer), resent=self._is_sent_again, staged=staged))
        assert not lane.expects_refusal_of, "the client was not told of a refusal"
        return verdict

    def _may_have_ended(self, block: Block) -> bool:
        """Not persistent, and sent again: the server that is gone may have handed it out (J3: at most once)."""
        since = self._since_start
        if since is not None and not self._is_sent_again:
            since[block.lane] = None
        return since is not None and self._is_sent_again and not block.persistent and block.lane not in since

    @property
    def _present(self) -> bytes:
        views = [fact.view for _, fact in self.model.facts if isinstance(fact, Entered)]
        return views[-1] if views else b""

    def is_refused(self, client: Client, staged: list[tuple[Lane, Sent]]) -> bool:
        """A restricted part decides about what began in its view alone (PROTOCOL 7)."""
        situation = self.model.situation
        is_restricted = situation is not None and situation.state is State.D
        return is_restricted and bool(staged) and self._began_in[client.session] != self._present

    def crash(self, kept: Boundary, *, machine: bool, clean: bool = False) -> None:
        self._since_start = {}
        super().crash(kept, machine=machine, clean=clean)

    # ---- views

    def enter(self, state: State, *, attempt: bool = False, takes_along: bool = False) -> None:
        """A view is installed; an `attempt`: it may become one, or nothing."""
        self._views += 1
        view = b"" if attempt else self._views.to_bytes(8, "big")
        self._write(self.catalogue.views.enter(view, state, takes_along=takes_along))
        self.model.note(Entered(view, state, takes_along))
        self._stand(NOWHERE if attempt else Situation(state=state, is_in_force=False))

    @property
    def may_come_into_force(self) -> bool:
        """Whether the last view is one, and is not D."""
        views = [fact for _, fact in self.model.facts if isinstance(fact, Entered)]
        stands = self.model.situation is not None and self.model.situation != NOWHERE
        return stands and bool(views and views[-1].view) and views[-1].state is not State.D

    def come_into_force(self) -> None:
        situation = self.model.situation
        assert situation is not None
        self._write(self.catalogue.views.comes_into_force())
        self.model.note(InForce())
        self._stand(msgspec.structs.replace(situation, is_in_force=True))

    def become_whole(self) -> None:
        self.manager.became_whole()
        self.model.note(Whole())
        self._stand(Situation(state=State.A, is_in_force=True, is_whole=True))

    def _write(self, effects: list[AnyEffect]) -> None:
        self.manager.run(None, effects)

    def _stand(self, situation: Situation) -> None:
        self.model.situation = situation
        for destination, effects in self.catalogue.views.regate(situation):
            self.manager.run(destination, effects)
        self._note_keepers()
        self.end_of_tick()

    def _tell(self, command: Command, heard: list[Command] | None = None) -> None:
        super()._tell(command, heard)
        self._note_keepers()

    def _note_keepers(self) -> None:
        """While a cluster is in parts, one more subscription of each topic wants everything; nobody takes it."""
        for destination in self.catalogue.all_destinations():
            if not isinstance(destination, Topic):
                continue
            wish = Subscriber(destination.address, "", FOR_OTHER_PARTS.name, True, False, EVERYTHING)
            known = self.subscriber_like(wish)
            keeper = destination.subscription_named("", FOR_OTHER_PARTS.name, durable=True)
            if keeper is not None and known is None:
                assert self.model.is_parted
                self.model.subscribed(wish).number = keeper.messages.number
            elif keeper is None and known is not None:
                assert not self.model.is_parted, "what other parts are owed is gone"
                self.model.unsubscribed(known)

    def check(self) -> None:
        super().check()
        self._check_figures()
        self._check_stamps()

    def _check_stamps(self) -> None:
        """The engine knows where each message was accepted, as the history tells it."""
        standing = self.catalogue.views.standing
        assert (standing is None) == (not self.model.facts)
        for letter in self.model.letters.values():
            destination = self.destination(letter.address)
            if standing is not None and destination is not None:
                places = destination.stamps.places(standing)
                found = [where for first, where in places if first <= letter.number][-1]
                assert found is self.model.where(letter), "accepted elsewhere"

    def _check_figures(self) -> None:
        """What is shown as held back waits for a reason, and nothing is shown when all may go."""
        for address in (QUEUE, TOPIC):
            destination = self.destination(address)
            if destination is not None and not self.model.is_parted and self.model.situation != NOWHERE:
                figures = destination.figures()
                assert (figures.held_back, figures.held_back_why) == (0, "")

    def drain(self) -> None:
        """The parts meet: everything comes that anybody accepted."""
        self.journal.is_full = False
        if self.model.situation is not None:
            self.enter(State.A)
            self.come_into_force()
            self.become_whole()
        super().drain()


def held_back(world: PartedWorld, address: Address = QUEUE) -> dict[Hold, int]:
    destination = world.destination(address)
    assert destination is not None
    return destination.held_back()

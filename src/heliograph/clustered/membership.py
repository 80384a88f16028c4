"""Membership of one member: views, leases, epochs, and hand-over without overlap (H2, docs/decisions/0021).

    candidate ──copies subscribed, in a view──▶ member ──asked to leave, drained──▶ gone
        └──nobody else for long──▶ founder ──▶ member ──lease lapsed, or left out of a view──▶ stopped

What it guarantees, as long as clocks and middleware keep to the terms:
1. No two members act on a value at the same time: a member acts on what it gained in a view only when every
   other member of that view acts on nothing that the view gives away, and who is in no view any more has no lease.
2. Who hears itself no more for the time of a lease acts no more, and comes back as somebody else.
3. Every value has an owner again after the silence of a lease, a word of the leader and one of each member.
4. Where the middleware was in parts and there are two clusters, one is left soon after its parts are one again: who
   hears a cluster with a higher epoch, of which it is no member, gives its own up.

One member leads: the first of the view that is neither silent nor leaving. It decides nothing but who is in
and who owns what. It adopts its own view as the others do, when it hears it.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from heliograph.clustered.agreement import Agreement
from heliograph.clustered.completeness import Completeness
from heliograph.clustered.epochs import first_epoch
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
    HasEverything,
    Heard,
    LeaveAsked,
    Say,
    Stop,
    SubscribeCopies,
    Terms,
    Ticked,
)
from heliograph.clustered.leading import next_view
from heliograph.clustered.presence import NEVER, Presence
from heliograph.clustered.ranges import EVERYTHING, Even, Policy, Ranges
from heliograph.clustered.words import Beat, Member, MemberKey, View


class Membership:
    """One incarnation of one member. It reads no clock: the time comes in events, from one that never goes back."""

    def __init__(
        self,
        *,
        name: str,
        incarnation: int,
        now: float,
        terms: Terms | None = None,
        policy: Policy | None = None,
        weight: int = 1,
        apart: int = 0,
        agreement: Agreement | None = None,
    ) -> None:
        """`apart`: the epoch in which its last life acted apart from the others."""
        self.key: MemberKey = (name, incarnation)
        self.name = name
        self.terms = terms or Terms()
        self.view: View | None = None
        self.acting = Ranges()
        self.lease_until: float | None = None
        """On the member's own clock; None until it has heard itself."""
        self.is_over = False
        self.done_words = 0
        self._policy = policy or Even()
        self._weight = weight
        self._presence = Presence(self.key, silence_seconds=self.terms.silence_seconds, now=now)
        self._now = now  # never ahead of the clock: a beat that is dated late would make a lease too long
        self._beat_due = now
        self._view_due = now
        self._wall_ms = incarnation
        self._highest_epoch = 0
        self._proposed: View | None = None
        self._adopted_at = now
        self._has_released = False
        self._has_gained = False
        self._is_ready = False
        self._is_subscribing = False
        self._is_fresh = False
        self._is_leaving = False
        self._completeness = Completeness(self.key)
        self._fenced: dict[MemberKey, None] = {}
        self._fencing: dict[MemberKey, None] = {}
        self._is_fencing_all = False
        self._has_fenced_all = not self.terms.fences
        self._apart = apart
        self._agreement = agreement or Agreement()
        self._elsewhere_since: dict[MemberKey, float] = {}
        self._strays: dict[MemberKey, None] = {}
        self._forgets_departed = False

    def may_act(self, now: float) -> bool:
        """Asked before every message: an owner whose lease ran out acts no more."""
        return not self.is_over and self.lease_until is not None and now < self.lease_until

    @property
    def epoch(self) -> int:
        return 0 if self.view is None else self.view.epoch

    def handle(self, event: Event) -> list[Effect]:
        if self.is_over:
            return []
        effects: list[Effect] = []
        match event:
            case Ticked(now, wall_ms):
                self._now = now
                self._wall_ms = max(self._wall_ms, wall_ms)
                self._tick(now, effects)
            case Heard(word, now):
                self._now = now
                if isinstance(word, Beat):
                    self._hear_beat(word, now, effects)
                else:
                    self._hear_view(word, now, effects)
            case CopiesSubscribed():
                self._is_ready = True
            case Drained(epoch):
                self._drained(epoch, effects)
            case HasEverything(key, lineage):
                if self._completeness.find_out(key, lineage):
                    effects.append(Say(self._beat(self._now)))
            case FencedOff(key):
                self._fenced[key] = None
            case AllFencedOff():
                self._has_fenced_all = True
            case LeaveAsked():
                self._is_leaving = True
            case _:
                assert_never(event)
        return effects

    # ---- time

    def _tick(self, now: float, effects: list[Effect]) -> None:
        if self.lease_until is not None and now >= self.lease_until:
            self._stop("the lease ran out", effects)
            return
        if now >= self._beat_due:
            self._beat_due = now + self.terms.beat_seconds
            effects.append(Say(self._beat(now)))
        self._found(now, effects)
        self._lead(now, effects)
        self._gain(effects)
        self._leave(effects)

    def _beat(self, now: float, *, is_gone: bool = False) -> Beat:
        return Beat(
            name=self.name,
            incarnation=self.key[1],
            sent=now,
            epoch=self.epoch,
            leader=("", 0) if self.view is None else self.view.leader,
            has_released=self._has_released,
            is_ready=self._is_ready,
            is_leaving=self._is_leaving,
            is_gone=is_gone,
            weight=self._weight,
            done=self.done_words,
            lineage=self._completeness.lineage,
            is_clean=self._completeness.is_clean,
            found=tuple(self._completeness.found),
            apart=self._apart,
            terms=self._agreement.terms,
            fields=self._agreement.fields,
            mode=self._agreement.mode,
        )

    def _stop(self, reason: str, effects: list[Effect], *, apart: int = 0) -> None:
        self.is_over = True
        self.acting = Ranges()
        effects.append(Stop(reason, apart=apart))

    # ---- others

    def _hear_beat(self, beat: Beat, now: float, effects: list[Effect]) -> None:
        if beat.key == self.key:
            self._hear_myself(beat, now, effects)
        elif beat.name == self.name and beat.incarnation > self.key[1]:
            self._stop("another process came with the same name", effects)
        elif difference := self._agreement.differs(beat):
            self._hear_otherwise(beat, difference, now, effects)
        else:
            self._presence.hear(beat, now)
            self._highest_epoch = max(self._highest_epoch, beat.epoch)
            self._look_elsewhere(beat, now, effects)
            if not self.is_over:
                self._gain(effects)

    def _hear_otherwise(self, beat: Beat, difference: str, now: float, effects: list[Effect]) -> None:
        """It was told otherwise. Who comes is refused: by its own judgement, and for those who are in it is not
        there."""
        if self.view is not None:
            self._look_elsewhere(beat, now, effects)
        elif beat.epoch and not beat.is_gone and beat.name != self.name:
            self.is_over = True
            effects.append(Stop(difference, is_refused=True))

    def _hear_myself(self, beat: Beat, now: float, effects: list[Effect]) -> None:
        if self.lease_until is not None and now >= self.lease_until:
            self._stop("the lease ran out", effects)
            return
        self._presence.hear_myself(beat)
        self.lease_until = self._presence.probe + self.terms.lease_seconds
        self._gain(effects)

    def knows(self, name: str) -> bool:
        """Somebody of that name is in, or on its way in."""
        is_in = self.view is not None and _is_mine(self.view, name)
        return is_in or any(beat.name == name for beat in self._presence.here())

    @property
    def departed(self) -> tuple[str, ...]:
        """For a leader whose view everybody has adopted: whose copies may be thrown away."""
        view = self.view
        return view.departed if view is not None and self._has_gained and self.is_leader else ()

    # ---- two clusters, when the middleware was in parts

    def is_stranger(self, key: MemberKey) -> bool:
        """I am in a cluster, and it is no member."""
        return self.view is not None and self.view.member(key) is None

    def _look_elsewhere(self, beat: Beat, now: float, effects: list[Effect]) -> None:
        """Of two clusters the one with the lower epoch is given up; who has the highest of all stays, so one does.

        A word may come a little before the view that explains it, or late from somebody who is gone: only who goes
        on being elsewhere has a cluster.
        """
        view = self.view
        if view is None:
            return
        if beat.apart and self.is_stranger(beat.key):
            self._distrust(beat.key, effects)
        is_elsewhere = self.is_stranger(beat.key) and self.is_stranger(beat.leader)
        if not is_elsewhere or not beat.epoch or beat.is_gone:
            self._elsewhere_since.pop(beat.key, None)
        elif now - self._elsewhere_since.setdefault(beat.key, now) < self.terms.founding_seconds:
            return
        elif (beat.epoch, beat.leader) > _name_of(view):
            self._stop(f"{beat.leader[0]} leads another cluster, which goes on", effects, apart=self.epoch)
        else:
            self._distrust(beat.key, effects)

    def _distrust(self, key: MemberKey, effects: list[Effect]) -> None:
        """It acted apart from us: what waits may be done, and who seemed gone may have what nobody else has."""
        if key not in self._strays:
            self._strays[key] = None
            self._forgets_departed = True
            effects.append(Doubt(EVERYTHING))

    # ---- founding

    def _found(self, now: float, effects: list[Effect]) -> None:
        """Nobody is there: what waits from an earlier life is all there is, and I begin."""
        if self.view is not None or self._proposed is not None or self._is_leaving:
            return
        if not self._presence.has_listened:
            return
        if any(beat.epoch or _rank(beat.key) < _rank(self.key) for beat in self._presence.here()):
            return
        if not self._is_ready:
            self._subscribe(False, effects)
            return
        if not self._has_fenced_all:
            self._fence_all(effects)
            return
        me = Member(self.name, self.key[1], self._weight, is_complete=True)
        epoch = first_epoch(self._wall_ms, self._highest_epoch, self.key)
        slices = self._policy.assign(
            {self.name: self._weight}, View(0, self.key, (), ((0, 1 << 32, ""),)).assignment
        )
        lineage = (epoch, *self.key)
        self._propose(View(epoch, self.key, (me,), slices.slices, is_founding=True, lineage=lineage), effects)

    def _fence_all(self, effects: list[Effect]) -> None:
        """Whoever was a member has no lease, but may have been stopped in the middle of something, and I know of
        nobody."""
        if not self._is_fencing_all:
            self._is_fencing_all = True
            effects.append(FenceOffAll())

    def waits(self, key: MemberKey) -> bool:
        """It is there, and in no view."""
        return any(beat.key == key and not beat.epoch for beat in self._presence.here())

    def _subscribe(self, is_fresh: bool, effects: list[Effect]) -> None:
        if not self._is_subscribing:
            self._is_subscribing = True
            self._is_fresh = is_fresh
            effects.append(SubscribeCopies(is_fresh))

    # ---- leading

    @property
    def is_leader(self) -> bool:
        """The first that is there and stays; if all are leaving, the first that is there."""
        if self.view is None:
            return False
        here = [member.key for member in self.view.members if not self._presence.is_out(member.key)]
        staying = [key for key in here if not self._says_leaving(key)]
        return (staying or here)[0] == self.key

    def _says_leaving(self, key: MemberKey) -> bool:
        if key == self.key:
            return self._is_leaving
        beat = self._presence.beats.get(key)
        return beat is not None and beat.is_leaving

    def _lead(self, now: float, effects: list[Effect]) -> None:
        if self.view is None or not self.is_leader or not self.may_act(now):
            return
        if self._proposed is not None:
            self._repeat(self._proposed, now, effects)
            return
        if not self._fence(effects):
            return
        view = next_view(
            self.view,
            self.key,
            policy=self._policy,
            out=self._presence.out_of(self.view),
            beats={**self._presence.beats, self.key: self._beat(now)},
            highest=self._highest_epoch,
            forgets_departed=self._forgets_departed,
        )
        if view is not None:
            self._propose(view, effects)
        elif self._somebody_is_elsewhere(self.view):
            self._repeat(self.view, now, effects)

    def _fence(self, effects: list[Effect]) -> bool:
        """Whether those who fell silent can do no more, by the word of the middleware where it gives one."""
        if not self.terms.fences or self.view is None:
            return True
        out = [m.key for m in self.view.members if self._presence.is_out(m.key)]
        lost = [key for key in out if not self._presence.is_gone(key)]
        for key in lost:
            if key not in self._fencing:
                self._fencing[key] = None
                effects.append(FenceOff(key))
        return all(key in self._fenced for key in lost)

    def _somebody_is_elsewhere(self, view: View) -> bool:
        return any((beat.epoch, beat.leader) != _name_of(view) for beat in self._presence.here())

    def _repeat(self, view: View, now: float, effects: list[Effect]) -> None:
        if now >= self._view_due:
            self._view_due = now + self.terms.beat_seconds
            effects.append(Say(replace(view, greeted=self._greeted(view))))

    def _greeted(self, view: View) -> tuple[MemberKey, ...]:
        """Who knocks, once everybody in the view has adopted it: no other leader departs from an earlier one then."""
        if view is not self.view or not self._has_gained:
            return ()
        return tuple(beat.key for beat in self._presence.here() if not beat.epoch)

    def _propose(self, view: View, effects: list[Effect]) -> None:
        self._proposed = view
        self._highest_epoch = max(self._highest_epoch, view.epoch)
        self._view_due = NEVER
        self._repeat(view, self._now, effects)

    # ---- views

    def _hear_view(self, view: View, now: float, effects: list[Effect]) -> None:
        if self._proposed is not None and _name_of(view) == _name_of(self._proposed):
            self._proposed = None
        self._highest_epoch = max(self._highest_epoch, view.epoch)
        if self.view is None:
            self._hear_view_as_candidate(view, now, effects)
        elif self._founded_too(view):
            self._stop("somebody older founded the cluster at the same time", effects)
        elif self.view.member(view.leader) is None:
            return  # of somebody who was out when this view was made
        elif view.epoch > self.view.epoch:
            if view.member(self.key) is None:
                # With a lease that could not be, but for a middleware that was in parts.
                apart = self.epoch if self.may_act(now) else 0
                self._stop("the others went on without me", effects, apart=apart)
            else:
                self._adopt(view, now, effects)

    def _hear_view_as_candidate(self, view: View, now: float, effects: list[Effect]) -> None:
        if view.member(self.key) is not None and self._is_ready:
            if view.leader != self.key or not self._knows_a_cluster():
                self._adopt(view, now, effects)
            return
        if view.leader == self.key or _is_mine(view, self.name):
            return  # an earlier life of mine is still in it: wait until it is out
        if self.key not in view.greeted:
            return  # it may have been said long ago, before an earlier life of mine
        is_fresh = self.name in view.departed and not self._apart
        if self._is_subscribing and is_fresh and not self._is_fresh:
            self._stop("what waits from an earlier life is done: begin again without it", effects)
            return
        if is_fresh and not self._is_subscribing:
            self._completeness.begins_afresh(view.lineage)
        self._subscribe(is_fresh, effects)

    def _knows_a_cluster(self) -> bool:
        return any(beat.epoch for beat in self._presence.here())

    def _founded_too(self, view: View) -> bool:
        mine = self.view
        return (
            mine is not None
            and mine.is_founding
            and view.is_founding
            and view.leader != self.key
            and not self._has_gained
            and _rank(view.leader) < _rank(self.key)
        )

    def _adopt(self, view: View, now: float, effects: list[Effect]) -> None:
        before, self.view = self.view, view
        self._adopted_at = now
        self._has_released = self._has_gained = False
        self._proposed = None
        self.acting = self.acting & view.assignment.of(self.name)
        if view.is_founding or (before is not None and before.lineage != view.lineage):
            effects.append(Doubt(EVERYTHING))  # whoever was here before may have begun what waits
        elif before is not None:
            self._learn_who_went(before, view, effects)
        self._presence.adopt(view, now)
        self._forgets_departed = self._forgets_departed and bool(view.departed)
        heard = self._presence.beats
        self._strays = {key: None for key in self._strays if key in heard}
        self._elsewhere_since = {key: at for key, at in self._elsewhere_since.items() if key in heard}
        effects.append(ActOn(self.acting, view.epoch))
        effects += self._completeness.adopt(view)

    def _learn_who_went(self, before: View, view: View, effects: list[Effect]) -> None:
        """What may have been begun by somebody who did not take leave: what it owned; or anything, if it had not yet
        released what the view before took from it."""
        went = [member for member in before.members if view.member(member.key) is None]
        lost = [member for member in went if not self._presence.is_gone(member.key)]
        if any(not self._presence.released(member.key, before) for member in lost):
            effects.append(Doubt(EVERYTHING))
        elif pieces := [piece for member in lost for piece in before.assignment.of(member.name)]:
            effects.append(Doubt(Ranges(pieces)))

    # ---- handing over

    def _drained(self, epoch: int, effects: list[Effect]) -> None:
        if self.view is None or epoch != self.view.epoch or self._has_released:
            return
        self._has_released = True
        effects.append(Say(self._beat(self._now)))
        self._gain(effects)

    def _gain(self, effects: list[Effect]) -> None:
        """Act on all that the view gives me, once nobody else in it acts on any of that."""
        view = self.view
        if view is None or self._has_gained or not self._has_released:
            return
        others = [member.key for member in view.members if member.key != self.key]
        if not all(self._presence.released(key, view) for key in others):
            return
        if view.is_founding and self._presence.probe < self._adopted_at + self.terms.founding_seconds:
            return
        self._has_gained = True
        mine = view.assignment.of(self.name)
        if mine != self.acting:
            self.acting = mine
            effects.append(ActOn(mine, view.epoch))

    # ---- leaving

    def _leave(self, effects: list[Effect]) -> None:
        if not self._is_leaving:
            return
        view = self.view
        if view is None:
            self._go(keeps_copies=not self._is_fresh, effects=effects)
            return
        gone = [member.key for member in view.members if self._presence.is_out(member.key)]
        if len(view.members) - len(gone) > 1:
            if self._has_gained and not view.assignment.of(self.name):
                has_other = self._completeness.has_other(view, gone)
                self._go(keeps_copies=not has_other, effects=effects)
        elif self.acting:
            self.acting = Ranges()
            self._has_released = False
            effects.append(ActOn(self.acting, view.epoch))
        elif self._has_released:
            self._go(keeps_copies=True, effects=effects)

    def _go(self, *, keeps_copies: bool, effects: list[Effect]) -> None:
        effects.append(Say(self._beat(self._now, is_gone=True)))
        self.is_over = True
        effects.append(Stop("left", has_left=True, keeps_copies=keeps_copies))


def _rank(key: MemberKey) -> tuple[int, str]:
    """Whoever started first goes first."""
    return key[1], key[0]


def _name_of(view: View) -> tuple[int, MemberKey]:
    return view.epoch, view.leader


def _is_mine(view: View, name: str) -> bool:
    return any(member.name == name for member in view.members)

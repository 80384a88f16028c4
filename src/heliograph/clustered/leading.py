"""What a leader decides: the next view, or that the present one is right. A function of what it has heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.clustered.ranges import Policy
from heliograph.clustered.words import Beat, Member, MemberKey, View
from heliograph.model.limits import CLUSTERED_DEPARTED_NAMES


def next_view(
    view: View,
    me: MemberKey,
    *,
    policy: Policy,
    out: Sequence[MemberKey],
    present: Sequence[Beat],
    highest: int,
) -> View | None:
    """None if nothing changed. `out` are members without a lease, `present` the last beats of all who are there."""
    beats = {beat.key: beat for beat in present}
    stayed = [member for member in view.members if member.key not in out]
    settled = {
        name: None for m in stayed if m.is_complete and m.key in beats for name in beats[m.key].settled
    }
    stayed = [_completed(m) if m.name in settled else m for m in stayed]
    has_complete = any(member.is_complete for member in stayed)
    if not has_complete:
        # Nobody is left who has everything: what these have not waits in the copies of those who went.
        stayed = [_completed(member) for member in stayed]
    members = (*stayed, *_joining(present, stayed))
    names = {member.name: None for member in members}
    went = [m.name for m in view.members if m.key in out] if has_complete else []
    departed = [name for name in dict.fromkeys([*view.departed, *went]) if name not in names]
    departed = departed[-CLUSTERED_DEPARTED_NAMES:]
    slices = policy.assign(_workers(members, beats), view.assignment).slices
    if (members, slices, tuple(departed)) == (view.members, view.slices, view.departed) and not any(
        _contests(beat, view) for beat in present
    ):
        return None
    return View(max(highest, view.epoch) + 1, me, members, slices, tuple(departed))


def _joining(present: Sequence[Beat], stayed: Sequence[Member]) -> list[Member]:
    """Whose copies are subscribed, in the order in which they started; an earlier life of a name is out first."""
    names = {member.name: None for member in stayed}
    joining: dict[str, Member] = {}
    for beat in sorted(present, key=lambda each: (each.incarnation, each.name)):
        if beat.is_ready and not beat.is_leaving and not beat.epoch and beat.name not in names:
            joining[beat.name] = Member(beat.name, beat.incarnation, beat.weight)
    return list(joining.values())


def _contests(beat: Beat, view: View) -> bool:
    """It has adopted a view of somebody who leads no more: only a later one brings it back."""
    return beat.epoch >= view.epoch and (beat.epoch, beat.leader) != (view.epoch, view.leader)


def _completed(member: Member) -> Member:
    return Member(member.name, member.incarnation, member.weight, is_complete=True)


def _workers(members: Sequence[Member], beats: Mapping[MemberKey, Beat]) -> dict[str, int]:
    """Who is to own values: the complete who stay; if there are none, one of those who leave, until others are."""
    complete = [member for member in members if member.is_complete]
    staying = [m for m in complete if m.key not in beats or not beats[m.key].is_leaving]
    return {member.name: member.weight for member in staying or complete[-1:]}

"""What a leader decides: the next view, or that the present one is right. A function of what it has heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.clustered.epochs import epoch_after
from heliograph.clustered.ranges import Policy
from heliograph.clustered.words import Beat, Lineage, Member, MemberKey, View
from heliograph.model.limits import CLUSTERED_DEPARTED_NAMES


def next_view(
    view: View,
    me: MemberKey,
    *,
    policy: Policy,
    out: Sequence[MemberKey],
    beats: Mapping[MemberKey, Beat],
    highest: int,
    forgets_departed: bool = False,
) -> View | None:
    """None if nothing changed. `out` are those without a lease, `beats` the last of everybody who was heard.

    `forgets_departed`: there were two clusters, and who seemed gone may have copies that nobody here has.
    """
    present = [beat for key, beat in beats.items() if key not in out]
    epoch = epoch_after(max(highest, view.epoch), me)
    lineage = view.lineage
    clean = {key: None for key, beat in beats.items() if beat.is_clean and beat.lineage == lineage}
    stayed = [member for member in view.members if member.key not in out]
    found = _found(stayed, beats, lineage)
    stayed = [_completed(m) if m.key in found and m.key in clean else m for m in stayed]
    went = [m.name for m in view.members if m.key in out and (m.is_complete or m.key in clean)]
    if not any(member.is_complete for member in stayed):
        # Nobody is left who has everything. One must do, and what it has not waits in the copies of the others, of
        # those who went too: none of these is thrown away before its member has come and found it done.
        stayed, went, lineage = _with_one_complete(stayed, beats), [], (epoch, *me)
    members = (*stayed, *_joining(present, stayed))
    names = {member.name: None for member in members}
    departed = [name for name in dict.fromkeys([*view.departed, *went]) if name not in names]
    departed = [] if forgets_departed else departed[-CLUSTERED_DEPARTED_NAMES:]
    slices = policy.assign(_workers(members, beats), view.assignment).slices
    if (members, slices, tuple(departed)) == (view.members, view.slices, view.departed) and not any(
        _contests(beat, view) for beat in present
    ):
        return None
    return View(epoch, me, members, slices, tuple(departed), lineage=lineage)


def _found(
    stayed: Sequence[Member], beats: Mapping[MemberKey, Beat], lineage: Lineage
) -> dict[MemberKey, None]:
    """Who has everything, by the word of somebody who has."""
    complete = [beats[member.key] for member in stayed if member.is_complete and member.key in beats]
    return {key: None for beat in complete if beat.lineage == lineage for key in beat.found}


def _with_one_complete(stayed: Sequence[Member], beats: Mapping[MemberKey, Beat]) -> list[Member]:
    """The first that does not leave."""
    staying = [m.key for m in stayed if m.key not in beats or not beats[m.key].is_leaving]
    chosen = (staying or [m.key for m in stayed])[0]
    return [_completed(member) if member.key == chosen else member for member in stayed]


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

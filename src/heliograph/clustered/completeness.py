"""Who has everything: what one member knows of it. An engine: no clock, no I/O (docs/decisions/0021).

A member is *complete* if it holds, or will be delivered, every message that is not done, but for what waits in the
copies of members that are not clean. It is *clean* if its copies hold nothing that the complete ones have not. Both
are said within a *lineage*: the views since one member was last taken for complete because nobody knew better, at
the founding or after all who were complete had gone. In a new lineage everybody else proves it again.

    subscribed afresh, in this lineage ─────────────────────▶ clean ──found by one who is complete──▶ complete
    came with old copies ──everything that it had is done──▶ clean
"""

from __future__ import annotations

from heliograph.clustered.events import FindComplete
from heliograph.clustered.words import NO_LINEAGE, Lineage, MemberKey, View


class Completeness:
    """One incarnation of one member. What it finds out in one lineage counts for nothing in another."""

    def __init__(self, key: MemberKey) -> None:
        self._key = key
        self.lineage: Lineage = NO_LINEAGE
        self.is_clean = False
        self.found: dict[MemberKey, None] = {}
        """Who has everything that I had when it came."""
        self._asked: dict[MemberKey, None] = {}
        self._fresh_in: Lineage = NO_LINEAGE

    def begins_afresh(self, lineage: Lineage) -> None:
        """The copies begin while members of that lineage have theirs: they hold nothing that those have not."""
        self._fresh_in = lineage

    def adopt(self, view: View) -> list[FindComplete]:
        """What to find out now: whether I am clean, and, if I am complete, who else has everything."""
        me = view.member(self._key)
        assert me is not None, "it is in the view that it adopts"
        if view.lineage != self.lineage:
            self.lineage = view.lineage
            self.is_clean = self._fresh_in == view.lineage
            self.found, self._asked = {}, {}
        self.is_clean = self.is_clean or me.is_complete
        self.found = {key: None for key in self.found if view.member(key) is not None}
        wanted = [] if self.is_clean else [self._key]
        if me.is_complete:
            wanted = [member.key for member in view.members if not member.is_complete]
        new = [key for key in wanted if key not in self._asked]
        self._asked.update(dict.fromkeys(new))
        return [FindComplete(key, self.lineage) for key in new]

    def find_out(self, key: MemberKey, lineage: Lineage) -> bool:
        """Everything that I had when that member came is done. False: it is of another lineage, and says nothing."""
        if lineage != self.lineage:
            return False
        if key == self._key:
            self.is_clean = True
        else:
            self.found[key] = None
        return True

    def has_other(self, view: View, gone: list[MemberKey]) -> bool:
        """Somebody else who is there has all that I have: my copies may be thrown away."""
        others = (each for each in view.members if each.key != self._key and each.key not in gone)
        return self.is_clean and any(member.is_complete for member in others)

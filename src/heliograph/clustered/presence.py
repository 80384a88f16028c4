"""Who is there: what one member knows of the others from what it hears, and of itself from hearing its own beats.

An engine: no clock, no I/O. Only beats tell that somebody lives. A view does not: whoever leads repeats it, when its
maker may be long gone.
"""

from __future__ import annotations

from heliograph.clustered.words import Beat, MemberKey, View

NEVER = float("-inf")


class Presence:
    """Times are those of the member's own clock."""

    def __init__(self, key: MemberKey, *, silence_seconds: float, now: float) -> None:
        self.beats: dict[MemberKey, Beat] = {}
        """The last of everybody else."""
        self.probe = NEVER
        """When the last beat was sent that came back."""
        self._key = key
        self._silence_seconds = silence_seconds
        self._listening_since = now
        self._heard_at: dict[MemberKey, float] = {}

    def hear(self, beat: Beat, now: float) -> None:
        self._heard_at[beat.key] = now
        self.beats[beat.key] = beat

    def hear_myself(self, beat: Beat) -> None:
        self.probe = max(self.probe, beat.sent)

    def adopt(self, view: View, now: float) -> None:
        """Forget who is out for good; who is in has the time of silence to be heard."""
        for key in [key for key in self._heard_at if view.member(key) is None and self.is_out(key)]:
            del self._heard_at[key]
            self.beats.pop(key, None)
        for member in view.members:
            self._heard_at.setdefault(member.key, now)

    @property
    def has_listened(self) -> bool:
        """Long enough to have heard everybody who has a lease."""
        return self.probe - self._listening_since >= self._silence_seconds

    def _is_silent(self, key: MemberKey) -> bool:
        """It has no lease: nothing of it came for long, on a connection on which I heard myself since."""
        since = max(self._heard_at.get(key, NEVER), self._listening_since)
        return self.probe - since >= self._silence_seconds

    def is_gone(self, key: MemberKey) -> bool:
        """It took leave."""
        beat = self.beats.get(key)
        return beat is not None and beat.is_gone

    def is_out(self, key: MemberKey) -> bool:
        return key != self._key and (self.is_gone(key) or self._is_silent(key))

    def out_of(self, view: View) -> list[MemberKey]:
        """Of its members, and of all who were heard."""
        keys = dict.fromkeys((*self.beats, *(member.key for member in view.members)))
        return [key for key in keys if self.is_out(key)]

    def here(self) -> list[Beat]:
        """The last beats of all others who are there."""
        return [beat for key, beat in self.beats.items() if not self.is_out(key)]

    def released(self, key: MemberKey, view: View) -> bool:
        """It acts on nothing that the view gives to others."""
        beat = self.beats.get(key)
        if beat is None:
            return False
        return beat.is_gone or (beat.has_released and beat.epoch == view.epoch and beat.leader == view.leader)

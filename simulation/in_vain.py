"""What costs a client something and need not: a mark on a message that nobody can have had, a commit that is refused
on a connection that is in order (M8, docs/decisions/0011).

A message may come marked to whom it comes first if the client that it was for is dead, was away for long, or gave up
because of an error; or if nobody is left who knows what was handed out, and whoever leads has only its disk, or takes
in what another part did.
"""

from __future__ import annotations

from typing import Final

from heliograph.model.errors import NO_ROOM
from simulation.clients import Client, Receiving, Transacting
from simulation.grip import Grip
from simulation.history import HandOut, History
from simulation.world import World

_LOOK_SECONDS: Final = 0.25
# Less than any lease of a connection that broke, so that it cannot have passed.
_AWAY_SECONDS: Final = 1.0
# So long, at most, something is still handed to a client that is dead: until that is noticed, and a lease has passed.
_LINGERS_SECONDS: Final = 9.0
# So long parts take to meet, at most.
_MEETING_SECONDS: Final = 5.0
_EVENTS: Final = ("branch-taken-in", "replica-leads", "node-left-the-channel")


class _Watched:
    """One client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.life = client.life
        self.away_since: float | None = None
        self.lost_at = 0.0  # when it had been away for long the last time, or was another

    def look(self, now: float) -> None:
        client = self.client
        self.lost_at = max(self.lost_at, client.gave_up_at)
        if client.life != self.life:
            self.life, self.lost_at = client.life, now
        if not client.is_cut_off:
            self.away_since = None
        elif self.away_since is None:
            self.away_since = now
        elif now - self.away_since > _AWAY_SECONDS:
            self.lost_at = now


class InVain:
    """Looks at clients while a run goes on."""

    def __init__(self, world: World, history: History) -> None:
        self._world = world
        self._marked: list[str] = []
        self._refusals: list[tuple[float, str]] = []
        self._parted_at: list[float] = []  # when somebody had, or brought, what others had not
        self._history = history
        self._anew_at = 0.0
        self._restricted: dict[int, None] = {}  # hosts whose view is
        self._restricted_at = 0.0  # when one was until, the last time
        self._full: dict[int, None] = {}  # hosts whose disk is
        self._full_at = 0.0
        self._watched: list[_Watched] = []
        self._grips: dict[tuple[str, str], Grip] = {}  # the last of each message, by its place
        history.on_handed = self._handed
        history.on_refused = self._refused

    def watch(self, clients: list[Client]) -> None:
        self._watched = [
            _Watched(client) for client in clients if isinstance(client, Receiving | Transacting)
        ]
        self._look()

    def heard(self, host: int, event: str, **fields: object) -> None:
        """A node tells what happened to it."""
        if event in _EVENTS and fields.get("took_over") is not True:
            self._anew_at = self._world.now
        if event.startswith("branch-"):
            self._parted_at.append(self._world.now)
        elif event == "view-installed":
            if fields["state"] == "D":
                self._restricted[host] = None
            elif host in self._restricted:
                del self._restricted[host]
                self._restricted_at = self._world.now
        elif event == "disk-full":
            self._full[host] = None
        elif event in ("disk-has-room", "server-started") and host in self._full:
            del self._full[host]
            self._full_at = self._world.now

    def _look(self) -> None:
        for watched in self._watched:
            watched.look(self._world.now)
        self._world.after(_LOOK_SECONDS, self._look)

    def _handed(self, hand_out: HandOut) -> None:
        self._comes_again(hand_out)
        self._is_marked_in_vain(hand_out)

    def _comes_again(self, hand_out: HandOut) -> None:
        """What somebody has, over a connection that is in order since, and did not give back, comes to nobody."""
        name = hand_out.consumer.partition("#")[0]
        client = next((each.client for each in self._watched if each.client.name == name), None)
        if client is None:
            return
        before = self._grips.get((hand_out.place, hand_out.key))
        self._grips[hand_out.place, hand_out.key] = Grip.of(hand_out, client)
        if before is None or hand_out.is_stale or not before.is_held:
            return
        if self._anew_at < before.hand_out.at:
            told = f"{hand_out.key} came to {hand_out.consumer} ({hand_out.at:.6f}) for no reason:"
            since = f"{before.hand_out.consumer} has it since {before.hand_out.at:.6f}"
            self._marked.append(f"in vain: {told} {since}")

    def _is_marked_in_vain(self, hand_out: HandOut) -> None:
        sent = self._history.sent.get(hand_out.key)
        is_first = len(self._history.by_place[hand_out.place, hand_out.key]) == 1
        if (
            sent is None
            or not hand_out.is_marked
            or not is_first
            or self._anew_at > sent.sent_at
            or sent.is_large
        ):
            return
        for watched in self._watched:
            watched.look(self._world.now)
            was_lost = watched.lost_at > max(sent.sent_at - _LINGERS_SECONDS, 0.0)
            if was_lost and watched.client.gets_from(hand_out.place):
                return
        who, at = hand_out.consumer, hand_out.at
        self._marked.append(
            f"in vain: {hand_out.key} came to {who} marked ({at:.6f}), and nobody can have had it"
        )

    def _refused(self, name: str, began_at: float, sentence: str) -> None:
        is_restricted = bool(self._restricted) or self._restricted_at > began_at  # PROTOCOL 7.7
        was_full = bool(self._full) or self._full_at > began_at
        has_no_room = was_full and NO_ROOM in sentence
        if self._anew_at < began_at and not is_restricted and not has_no_room:
            told = f"in vain: {name} was refused though its connection is in order ({sentence})"
            self._refusals.append((self._world.now, told))

    @property
    def violations(self) -> list[str]:
        """While parts meet a commit may be refused, and who has something that others have not says so a little
        later."""
        refused = [
            told
            for at, told in self._refusals
            if all(abs(at - parted_at) > _MEETING_SECONDS for parted_at in self._parted_at)
        ]
        return self._marked + refused

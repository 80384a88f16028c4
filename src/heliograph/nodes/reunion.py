"""Parts become one again: branches are offered and taken in, the cluster is called whole (P6, docs/decisions/0018).

    who follows                       | who leads
    ----------------------------------+--------------------------------------------------
    has a branch → BranchOffered      | is offered one → stops acting, takes it in, goes on
    MERGED is on its disk → removes it|
    has none → UnionComplete          | all have said it → WHOLE

While it takes in a branch the primary is a backup of itself: what is said to it waits, and is heard when it goes on.
Clients that come back before all is in the log wait too (`returning.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from heliograph.bus.commands import (
    AMONG_NODES,
    DECISIONS,
    BranchOffered,
    Command,
    Leads,
    Stored,
    Synchronised,
    UnionComplete,
)
from heliograph.bus.interface import Incarnation, Origin
from heliograph.destinations.branch import Branch
from heliograph.journal.records import NO_MOMENT, RecordKind
from heliograph.model.errors import CorruptJournal, HeliographError, Unavailable
from heliograph.model.large import LargeReference
from heliograph.model.limits import UNION_WAIT_SECONDS, WHOLE_EVERY_RECORDS
from heliograph.nodes.branches import Branches
from heliograph.nodes.catching_up import RemoteBranch, bring_from_any
from heliograph.nodes.following import Following
from heliograph.nodes.merger import Merger, has_all_of
from heliograph.nodes.returning import Returning

if TYPE_CHECKING:
    from heliograph.nodes.leading import Leading
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.replica import Replica

# How often the primary looks whether all it wrote is stored, and how long it does so before it gives up for now.
_LOOK_AGAIN_SECONDS: Final = 0.005
_DRAIN_SECONDS: Final = 10.0
# How soon a branch that could not be had is asked for again.
_TRY_AGAIN_SECONDS: Final = 0.5
_HEARD_WHILE_DRAINING: Final = AMONG_NODES | {Stored, Synchronised, BranchOffered, UnionComplete}


class LocalBranch:
    """A branch of this very manager, which leads now."""

    def __init__(self, branches: Branches, branch: bytes) -> None:
        self._branches = branches
        self._branch = branch

    async def summary(self) -> Branch | None:
        return self._branches.all.get(self._branch)

    async def bodies(self, places: list[tuple[int, int]]) -> list[bytes]:
        return [self._branches.body(self._branch, *place) for place in places]

    def close(self) -> None:
        """Nothing is open."""


class Reunion:
    """The part of a replica that has to do with other parts."""

    def __init__(self, replica: Replica, manager: MessageManager) -> None:
        self._replica = replica
        self.branches = Branches(manager.folder / "branches", manager.disk)
        self._offers: dict[bytes, Incarnation | None] = {}  # branches, and who has each; None: this one
        self._complete: dict[Incarnation, None] = {}
        self._awaited: tuple[Incarnation, ...] = ()  # who come from other parts
        self._was_joined = True
        self._has_offered = False
        self._has_completed = False
        self._whole_index = -1  # of the last WHOLE of this view
        self._task: asyncio.Task[None] | None = None
        self._is_draining = False
        self._retreated: tuple[Leading, Following] | None = None
        self._unheard: deque[tuple[Origin, Command]] = deque()
        self._returning = Returning()
        self._retry_at = 0.0
        self.retreats = 0

    @property
    def is_merging(self) -> bool:
        return self._retreated is not None

    # ---- views and deliveries

    def installed(self) -> None:
        """A view begins: what was said in another does not count."""
        self._offers.clear()
        self._complete.clear()
        self._awaited = ()
        self._has_offered = self._has_completed = False
        self._whole_index = -1
        self._returning.patience_begins_anew()

    def awaits(self, others: tuple[Incarnation, ...]) -> None:
        """These may have something that the log of this one, which leads, has not. So may this one."""
        self._awaited = others
        self._look_at_own()

    def only_these_are_here(
        self, came: Collection[Incarnation], lease_after: Callable[[Incarnation], float]
    ) -> None:
        """The same as for sessions that nobody waits with (`leading.py`)."""
        self._returning.only_these_are_here(came, lease_after)

    @property
    def is_joined(self) -> bool:
        """Whether all is in the log that was done in other parts by those who are here. Until then nothing is handed
        out (P6): consumers that come from there may have had it, and been told that they are through with it."""
        return not self._offers and all(who in self._complete for who in self._awaited)

    def looks_joined(self) -> bool:
        """The same, for whoever lets messages go by it: when it changes, they are to be looked at again."""
        self._was_joined = self.is_joined
        return self._was_joined

    def suspend(self) -> None:
        """A view ends: whoever leads must say where it is."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.go_on()

    def heard(self, sender: Incarnation, said: BranchOffered | UnionComplete) -> None:
        if isinstance(said, UnionComplete):
            self._complete[sender] = None
            self._replica.manager.ask_for_tick()
            return
        self._complete.pop(sender, None)
        for branch in said.branches:
            self._offers.setdefault(branch, sender)
        self._replica.manager.ask_for_tick()

    def keeps(self, origin: Origin, command: Command) -> bool:
        """Whether a command is heard later, or need not be."""
        if not self._is_draining and self._retreated is None:
            return self._replica.leading is not None and self.lets_wait(origin, command)
        kind = type(command)
        if kind in DECISIONS:
            if self._retreated is None:
                return False
            self._retreated[0].heard_own(command)  # nobody else decides
            return True
        if kind in AMONG_NODES or (self._retreated is None and kind in _HEARD_WHILE_DRAINING):
            return False
        self._unheard.append((origin, command))
        return True

    def lets_wait(self, origin: Origin, command: Command) -> bool:
        """Whether somebody who says this to the primary is answered when the union is there. Nobody overtakes those
        who have waited for that and are about to be let in."""
        if self._replica.leading is None or (self.is_joined and not self._returning.is_behind(command)):
            return False
        return self._waits(origin, command)

    def _waits(self, origin: Origin, command: Command) -> bool:
        """Whether somebody comes back to whom only the union can say what is known of it."""
        loop = asyncio.get_running_loop()
        is_first = not self._returning.is_waited_for
        if not self._returning.keeps(origin, command, loop.time()):
            return False
        if is_first:
            loop.call_later(UNION_WAIT_SECONDS, self._replica.manager.ask_for_tick)
        self._replica.manager.ask_for_tick()
        return True

    def _let_in(self) -> None:
        for origin, command in self._returning.taken():
            self._replica.on_apply(origin, [command])
        if self._replica.leading is not None:
            self._replica.leading.introduces_all()  # backups took it for handled when it was kept

    # ---- at the end of each tick

    def look(self) -> None:
        """See what there is to say or to do."""
        replica = self._replica
        if not replica.is_installed or self._is_draining or self._retreated is not None:
            return
        if self.branches.all:
            self._remove_merged()
        if replica.leading is not None:
            if replica.may_act:
                self._lead(replica.leading)
        elif replica.is_following:
            self._follow()

    def _remove_merged(self) -> None:
        """What the log has of a branch must be on this very disk before the branch goes."""
        manager = self._replica.manager
        merged = [branch for branch in self.branches.all if manager.catalogue.ledger.has_merged(branch)]
        if merged:
            manager.journal.sync_now()
            for branch in merged:
                self.branches.remove(branch)
                manager.large.keep(self.branches.files())
                self._replica.record("branch-merged", branch=branch.hex())

    def _follow(self) -> None:
        try:
            if self.branches.all and not self._has_offered:
                self._replica.say(BranchOffered(list(self.branches.all)))
                self._has_offered = True
            elif not self.branches.all and not self._has_completed:
                self._replica.say(UnionComplete(self._replica.manager.place.index))
                self._has_completed = True
        except Unavailable:
            return  # the next tick tries again

    def _lead(self, leading: Leading) -> None:
        ledger = self._replica.manager.catalogue.ledger
        self._look_at_own()
        for branch in [each for each in self._offers if ledger.has_merged(each)]:
            del self._offers[branch]
        if self._was_joined != self.is_joined:
            self._replica.regate()
        if self._returning.is_waited_for and (
            self.is_joined or self._returning.is_over(asyncio.get_running_loop().time())
        ):
            self._let_in()
        if self._offers:
            if self._task is None and asyncio.get_running_loop().time() >= self._retry_at:
                self._task = asyncio.get_running_loop().create_task(self._take_in_all())
        elif self._may_call_whole(leading):
            self._whole_index = self._replica.manager.place.index
            self._replica.became_whole()

    def _look_at_own(self) -> None:
        for branch in self.branches.all:
            self._offers.setdefault(branch, None)

    def _may_call_whole(self, leading: Leading) -> bool:
        """PROTOCOL 5: everybody is here, has everything, and has stored the last WHOLE."""
        index = self._replica.manager.place.index
        is_due = self._whole_index < 0 or index - self._whole_index >= WHOLE_EVERY_RECORDS
        if not is_due or not self._replica.everybody_is_here():
            return False
        stored = leading.stored_by_backups()
        return all(who in self._complete and at > self._whole_index for who, at in stored.items())

    # ---- taking in

    async def _take_in_all(self) -> None:
        try:
            for branch, who in list(self._offers.items()):
                await self._take_in(branch, who)
        except (OSError, EOFError, TimeoutError, HeliographError, msgspec.DecodeError) as error:
            self._replica.record("branch-not-merged", error=str(error) or repr(error))
            self._retry_at = asyncio.get_running_loop().time() + _TRY_AGAIN_SECONDS
            asyncio.get_running_loop().call_later(_TRY_AGAIN_SECONDS, self._replica.manager.ask_for_tick)
        finally:
            if asyncio.current_task() is self._task:
                self._task = None
            self.go_on()

    async def _take_in(self, branch: bytes, who: Incarnation | None) -> None:
        source: RemoteBranch | LocalBranch
        if who is None:
            source = LocalBranch(self.branches, branch)
        else:
            source = await RemoteBranch.reach(self._replica.address_of(who), branch)
        try:
            summary = await source.summary()
            if summary is None:
                self._offers.pop(branch, None)
                return
            if await has_all_of(self._replica.manager, summary):
                self._replica.manager.append(
                    RecordKind.TIME, 0, 0, NO_MOMENT
                )  # nothing before is of the merge
                self._replica.manager.append(RecordKind.MERGED, 0, 0, branch)
                self._offers.pop(branch, None)
                return
            await self._drain()
            merger = self._retreat()
            await merger.take_in(summary, source, self._rest)
            self._replica.record(
                "branch-taken-in", branch=branch.hex(), fork=summary.fork, messages=merger.taken
            )
            if merger.left_out:
                self._replica.record("branch-without-content", branch=branch.hex(), lanes=merger.left_out)
            self._offers.pop(branch, None)
        finally:
            source.close()
        self.go_on()

    async def _rest(self) -> None:
        await asyncio.sleep(0)

    async def _drain(self) -> None:
        """Nothing more is handled until all that was written is stored as "yes" asks."""
        self._is_draining = True
        async with asyncio.timeout(_DRAIN_SECONDS):
            while not self._is_drained():
                self._replica.manager.ask_for_tick()
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _is_drained(self) -> bool:
        leading, manager = self._replica.leading, self._replica.manager
        assert leading is not None, "whoever ends a view ends this"
        return manager.is_all_stored and leading.has_said_all

    def _retreat(self) -> Merger:
        """Be as a backup that has been introduced a moment ago."""
        replica = self._replica
        leading = replica.leading
        assert leading is not None, "whoever ends a view ends this"
        self.retreats += 1
        introduction = leading.introduces_itself()
        manager = replica.retreat()
        following = Following(manager, lambda _: None)
        following.has_log = following.is_announced = True
        following.logged(introduction)
        leading.goes_on_as(manager)
        self._retreated = (leading, following)
        self._is_draining = False

        def end_of_tick() -> None:
            manager.journal.end_of_tick()
            leading.end_of_tick()

        return Merger(manager, leading.ships, end_of_tick, following, self._bring)

    async def _bring(self, reference: LargeReference) -> bool:
        """The content of a large message, from whoever of the view has it: who set aside the branch may have had the
        message alone. False: everybody is here, and nobody has it. Raises Unavailable while somebody is away who may,
        and what went wrong with one who is here."""
        if await bring_from_any(self._replica.addresses_of_others(), self._replica.manager, reference):
            return True
        if not self._replica.is_whole:
            raise Unavailable("who has the content of a large message is not here", code="catch-up-failed")
        return False

    def go_on(self) -> None:
        """Act again, with all that was said meanwhile."""
        self._is_draining = False
        if self._retreated is not None:
            retreated, self._retreated = self._retreated, None
            try:
                self._lead_again(*retreated)
            except (CorruptJournal, OSError) as error:
                self._replica.cannot_lead(error)
                return
        while self._unheard:
            origin, command = self._unheard.popleft()
            self._replica.on_apply(origin, [command])

    def _lead_again(self, leading: Leading, following: Following) -> None:
        """Raises CorruptJournal, OSError: what it would lead with cannot be read."""
        leading.end_of_tick()
        facts = following.take_over(leading)
        assert not facts, "who retreats has handled everything"
        self._replica.manager.begin_turns()
        self._replica.goes_on_leading(leading)
        leading.multicast(Leads(self._replica.manager.place.index))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._is_draining = False
        self._retreated = None
        self._unheard.clear()
        self._returning = Returning()

"""Bugs to plant in the server: each breaks one promise, and a run must show it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from heliograph.bus.commands import Answered
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect, Note
from heliograph.destinations.intake import Intake
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.unit_of_order import Units, _give
from heliograph.journal import reader
from heliograph.journal.directory import Directory
from heliograph.journal.files import Journal
from heliograph.journal.records import Record, RecordKind
from heliograph.journal.syncing import Synced, Syncer
from heliograph.model.block import Block
from heliograph.model.ids import LaneId
from heliograph.nodes.message_manager import MessageManager
from heliograph.nodes.tick import Tick

# What to replace in whom by what.
Plant = tuple[tuple[Any, str, Any], ...]

_end_of_tick = Journal.end_of_tick
_noted = CatalogueRecovery._noted
_record = CatalogueRecovery.record
_committed = CatalogueRecovery._committed
_publish = CatalogueRecovery._publish
_restarted = CatalogueRecovery._restarted
_resume = Intake.resume
_run = Syncer._run
_run_for = MessageManager._run_for
_await_commit = MessageManager.await_commit


def _confirm_before_sync(self: Journal, **options: Any) -> None:
    _end_of_tick(self, **options)
    if not self._writer.has_failed:
        self._stored(self._writer.written_lsn)


def _forget_some_acknowledgements(self: CatalogueRecovery, kind: int, *rest: int) -> None:
    if kind != RecordKind.DONE or rest[2] % 5:
        _noted(self, kind, *rest)


def _forget_hand_outs(self: CatalogueRecovery, kind: int, *rest: int) -> None:
    if kind != RecordKind.DISPATCHED:
        _noted(self, kind, *rest)


def _same_machine(self: CatalogueRecovery, boot: bytes) -> None:
    self.started_on = boot
    _restarted(self, boot)


def _replay_twice(self: CatalogueRecovery, record: Record) -> None:
    _record(self, record)
    if record.kind == RecordKind.PUBLISHED:
        _record(self, record)


def _forget_the_last(self: Intake, lane: LaneId) -> int:
    last = _resume(self, lane)
    if last:
        self._marks[lane] = last = last - 1
    return last


def _nothing(*_: object) -> None:
    """What should be done is not."""


def _only_the_newest(self: Syncer, descriptor: int, job: Synced) -> Synced:
    done = _run(self, descriptor, Synced(job.lsn, job.position, []))
    done.sealed = job.sealed
    for sealed in job.sealed:
        self._disk.truncate(sealed.descriptor, sealed.size)
    return done


def _answer_at_once(self: MessageManager, lsn: int, staged: Any, deciding: Any) -> None:
    _await_commit(self, lsn, staged, deciding)
    for request in deciding.requests:
        self.multicast(Answered(request, {}))


def _commit_in_part(self: CatalogueRecovery, payload: bytes) -> None:
    published: list[Block] = []

    def publish(destination: Destination, block: Block) -> None:
        if not published:
            _publish(self, destination, block)
        published.append(block)

    self._publish = publish  # type: ignore[method-assign]
    try:
        _committed(self, payload)
    finally:
        del self._publish


def _commit_without_done(self: CatalogueRecovery, payload: bytes) -> None:
    self._noted = _nothing  # type: ignore[assignment,method-assign]
    try:
        _committed(self, payload)
    finally:
        del self._noted


def _acknowledge_at_once(self: MessageManager, destination: Destination, effect: AnyEffect) -> None:
    if isinstance(effect, Note) and effect.request:
        self.multicast(Answered(effect.request, {}))
        effect = Note(effect.kind, effect.list_number, effect.ranges)
    _run_for(self, destination, effect)


def _any_unit_to_anybody(self: Units, span: Any, keys: Any, taker: Any, *, hand_over: bool) -> Any:
    given: Any = []
    _give(given, taker, span, span.start, span.stop)
    return given


def _believe(_payload: bytes) -> bool:
    return True


def _send_before_writing(self: Tick) -> None:
    self._asked = self._at_last_journal = False
    for send in self._sends:
        send()
    for write in self._writes:
        write()
    for send in self._sends:
        send()


PLANTS: dict[str, Plant] = {
    "confirm before sync": ((Journal, "end_of_tick", _confirm_before_sync),),
    "forget an acknowledgement at recovery": ((CatalogueRecovery, "_noted", _forget_some_acknowledgements),),
    "forget what was handed out": ((CatalogueRecovery, "_noted", _forget_hand_outs),),
    "take a lost machine for a lost process": ((CatalogueRecovery, "_restarted", _same_machine),),
    "replay twice": ((CatalogueRecovery, "record", _replay_twice),),
    "skip a sequence check": ((Intake, "resume", _forget_the_last),),
    "folders are not synced": ((Directory, "sync", _nothing),),
    "sealed segments are not synced": ((Syncer, "_run", _only_the_newest),),
    "commit before it is stored": ((MessageManager, "await_commit", _answer_at_once),),
    "replay a commit in part": ((CatalogueRecovery, "_committed", _commit_in_part),),
    "replay a commit without what it took": ((CatalogueRecovery, "_committed", _commit_without_done),),
    "confirm an acknowledgement before sync": ((MessageManager, "_run_for", _acknowledge_at_once),),
    "any unit to anybody": ((Units, "route", _any_unit_to_anybody),),
    "believe what is read": ((reader, "verify_checksum", _believe),),
    "hand out before it is written down": ((Tick, "run", _send_before_writing),),
}


@contextlib.contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """With this bug, if there is one."""
    former = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in plant]
    try:
        for owner, attribute, bug in plant:
            setattr(owner, attribute, bug)
        yield
    finally:
        for owner, attribute, right in former:
            setattr(owner, attribute, right)

"""Branches of the log that a message manager has cut off, each in a file until all of it is in the log that goes on
(docs/decisions/0018).

A file holds blocks, one behind the other, then what `destinations/branch.py` says of them, and last where that is and
its checksum. It is written under a name that nobody reads, forced, and renamed: under its own name it is complete.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from crc32c import crc32c

from heliograph.cluster.ranges import Ranges, common
from heliograph.destinations.branch import (
    NOTHING,
    Account,
    Body,
    Branch,
    Layout,
    Lying,
    account_of,
    decode_branch,
    deleted_accounts,
    encode_branch,
    header_of,
    key_of,
    lying_in,
)
from heliograph.destinations.moving import copies_of
from heliograph.destinations.snapshot import CatalogueState, DestinationState
from heliograph.destinations.subscriptions import Terms
from heliograph.destinations.topic import Topic
from heliograph.destinations.untraced import untraced_in
from heliograph.journal.directory import write_all
from heliograph.journal.disk import DISK, MAKE, READ, Disk
from heliograph.model.block import LARGE, Block, Span, parse_trusted
from heliograph.model.destination import Address
from heliograph.model.errors import CorruptJournal
from heliograph.model.ids import LaneId, SessionId
from heliograph.model.large import FileId, file_in
from heliograph.nodes.awaiting import answer_to
from heliograph.nodes.message_manager import MessageManager

_SUFFIX: Final = ".branch"
_UNFINISHED: Final = "next.new"
_MAGIC: Final = b"HBRN"
_TRAILER = struct.Struct("<QI4s")  # where the summary is, its checksum, magic
_ID_BYTES: Final = 16
# Blocks that are read in one go: about as much as a page of the journal's reader.
_BATCH: Final = 256


class Branches:
    """The folder of one message manager."""

    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self._found: dict[bytes, Branch] | None = None

    @property
    def all(self) -> dict[bytes, Branch]:
        """Those that are not in the log yet. Raises CorruptJournal."""
        if self._found is None:
            self._found = {branch.id: branch for branch in self._read_all()}
        return self._found

    def _read_all(self) -> list[Branch]:
        try:
            names = [name for name, _ in self._disk.list(self._folder)]
        except FileNotFoundError:
            return []
        return [self._read(self._folder / name) for name in names if name.endswith(_SUFFIX)]

    def _read(self, path: Path) -> Branch:
        with self._disk.mapped(path) as raw:
            size = len(raw)
            if size >= _TRAILER.size:
                at, checksum, magic = _TRAILER.unpack(raw[size - _TRAILER.size :])
                summary = raw[at : size - _TRAILER.size]
                if magic == _MAGIC and crc32c(summary) == checksum:
                    return decode_branch(summary)
        raise CorruptJournal("a branch that was set aside is damaged", path=str(path), position=0)

    def body(self, branch: bytes, offset: int, size: int) -> bytes:
        descriptor = self._disk.open(self._path(branch), READ)
        try:
            return self._disk.pread(descriptor, size, offset)
        finally:
            self._disk.close(descriptor)

    def files(self) -> dict[FileId, None]:
        """The content of large messages, which must not go before the branches do."""
        return {FileId(file): None for branch in self.all.values() for file in branch.files}

    def remove(self, branch: bytes) -> None:
        """All of it is in the log, and that is on disk."""
        del self.all[branch]
        self._disk.remove(self._path(branch))
        self._disk.sync_folder(self._folder)

    def still_in_log(self, index: int, chain: int) -> None:
        """The log goes to here. A branch that ends just there was set aside and never cut off: it may go on, so what
        was written of it must not be believed."""
        for branch in list(self.all.values()):
            if (branch.index, branch.chain) == (index, chain):
                self.remove(branch.id)

    async def set_aside(self, manager: MessageManager, fork: int) -> Branch:
        """Write what a manager that does not lead has in its log, before it is cut off."""
        assert manager.recovery is not None, "who catches up does not lead"
        place = manager.place
        store = manager.journal.store_id.encode()
        identity = hashlib.blake2b(
            store + struct.pack("<QI", place.index, place.chain), digest_size=_ID_BYTES
        ).digest()
        branch = Branch(identity, store, fork, place.index, place.chain)
        state, _ = manager.recovery.state(place.state)
        self._disk.make_folder(self._folder)
        file = _Writing(self._disk, self._folder / _UNFINISHED)
        try:
            for destination in _concerned(manager, state):
                branch.accounts.append(await _account(manager, destination, file))
            branch.files = list(file.large)
            branch.accounts += deleted_accounts(manager.catalogue)
            _add_the_rest(manager, state, branch)
            file.finish(encode_branch(branch))
        finally:
            file.close()
        self._disk.rename(self._folder / _UNFINISHED, self._path(identity))
        self._disk.sync_folder(self._folder)
        self.all[identity] = branch
        return branch

    def _path(self, branch: bytes) -> Path:
        return self._folder / f"{branch.hex()}{_SUFFIX}"


class _Writing:
    """A file that grows."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._descriptor = disk.open(path, MAKE)
        disk.truncate(self._descriptor, 0)
        self.size = 0
        self.large: dict[FileId, None] = {}  # files that blocks refer to, and that are here

    def append(self, piece: bytes) -> int:
        """Returns where it is."""
        write_all(self._disk, self._descriptor, [piece], self.size)
        self.size += len(piece)
        return self.size - len(piece)

    def finish(self, summary: bytes) -> None:
        at = self.append(summary)
        self.append(_TRAILER.pack(at, crc32c(summary), _MAGIC))
        self._disk.fsync(self._descriptor)

    def close(self) -> None:
        self._disk.close(self._descriptor)


def _concerned(manager: MessageManager, state: CatalogueState) -> list[DestinationState]:
    """Destinations to which anything happened since the cluster was whole."""
    concerned = dict.fromkeys(manager.catalogue.ledger.destinations)
    return [
        each
        for each in state.destinations
        if each.number in concerned and not manager.catalogue.is_temporary(Address(each.address))
    ]


async def _account(manager: MessageManager, state: DestinationState, file: _Writing) -> Account:
    lying = lying_in(state, manager.catalogue.ledger.base_of(state.number))
    layout = await layout_of(manager, lying)
    account = account_of(manager.catalogue, state, lying, layout, _untraced(manager, state, layout))
    blocks = [block for block in layout.blocks() if _is_wanted(account, block)]
    for start in range(0, len(blocks), _BATCH):
        batch = blocks[start : start + _BATCH]
        buffers = await read(manager, [block.position for block in batch])
        for block, buffer in zip(batch, buffers, strict=True):
            for whole in _wanted_parts(lying, block, buffer):
                _keep(manager, account, whole, file)
    return account


def _untraced(manager: MessageManager, state: DestinationState, layout: Layout) -> Mapping[int, Ranges]:
    if not manager.has_lost_its_end:
        return NOTHING
    catalogue = manager.catalogue
    return untraced_in(catalogue.by_number[state.number], catalogue.views.standing, state, layout)


def _is_wanted(account: Account, block: Block) -> bool:
    return block.lane in account.known or block.lane in account.moved


def _wanted_parts(lying: Lying, block: Block, buffer: bytes) -> list[bytes]:
    """The block if all of it waits; otherwise each message of it that does."""
    behind = block.number + block.count - 1
    wanted = common(lying.waiting, ((block.number, behind),))
    if wanted == ((block.number, behind),):
        return [buffer]
    whole = parse_trusted(buffer)
    spans = [Span(whole, low - block.number, high - block.number + 1) for low, high in wanted]
    return [part for span in spans for part in copies_of(span)]


def _keep(manager: MessageManager, account: Account, buffer: bytes, file: _Writing) -> None:
    """A message may have come here before its content: then that is nothing to keep."""
    header = header_of(buffer)
    if header.flags & LARGE and not manager.large.lacks([content := file_in(buffer)]):
        file.large[content] = None
    is_moved = any(first <= header.first <= last for first, last in account.moved.get(header.lane, ()))
    bodies = account.moved_bodies if is_moved else account.bodies
    body = Body(header.first, header.last, file.append(buffer), len(buffer))
    bodies.setdefault(header.lane, []).append(body)


def _add_the_rest(manager: MessageManager, state: CatalogueState, branch: Branch) -> None:
    catalogue, ledger = manager.catalogue, manager.catalogue.ledger
    branch.opened = [payload for session, payload in ledger.opened().items() if session in catalogue.sessions]
    branch.closed = [session for session in ledger.closed() if session not in catalogue.sessions]
    concerned = {
        LaneId(lane)[:14]: None for number in ledger.destinations for lane in ledger.lanes_of(number)
    }
    doubtful = {(each.session, each.number): None for each in ledger.doubtful()}
    branch.outcomes = [
        (session, number, is_committed)
        for session, (number, is_committed) in catalogue.transactions.outcomes().items()
        if SessionId(session)[:14] in concerned and (session, number) not in doubtful
    ]
    branch.subscribed = [each for each in _unlike(ledger.subscribed()) if _exists(manager, *each)]
    branch.ended = [each for each in _unlike(ledger.ended()) if not _exists(manager, *each)]
    branch.documents = list(state.documents)
    branch.placed, branch.paths = ledger.placed(), ledger.paths()
    branch.alerts = [(each.address, each.alerts) for each in state.destinations if each.alerts]


def _unlike(subscriptions: list[tuple[str, Terms]]) -> list[tuple[str, Terms]]:
    """The last of each name."""
    return list({(address, key_of(terms)): (address, terms) for address, terms in subscriptions}.values())


def _exists(manager: MessageManager, address: str, terms: Terms) -> bool:
    topic = manager.catalogue.by_address.get(Address(address))
    return isinstance(topic, Topic) and any(
        key_of(each.terms) == key_of(terms) for each in topic.subscriptions.values() if each.terms.durable
    )


async def layout_of(manager: MessageManager, lying: Lying) -> Layout:
    """Whose the messages are that lie in a destination: their blocks say so."""
    layout = Layout()
    positions = sorted(lying.positions)
    for start in range(0, len(positions), _BATCH):
        batch = positions[start : start + _BATCH]
        for position, buffer in zip(batch, await read(manager, batch), strict=True):
            header = header_of(buffer)
            header.position = position
            layout.add(header, lying.positions[position])
    return layout


async def read(manager: MessageManager, positions: list[int]) -> list[bytes]:
    found: list[bytes] = await answer_to(partial(manager.journal.load, positions))
    return found

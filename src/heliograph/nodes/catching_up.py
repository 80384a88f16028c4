"""How a message manager gets the log of its sub-cluster: point to point from one that has it, while traffic goes on
(M9, docs/decisions/0010).

    newcomer → host    I have come through these views, up to this index          (Wanted)
    host → newcomer    our logs part here; this is my state, at this index        (Offered, then the state)
    newcomer → host    of that I do not have the blocks at these positions        (Missing, until there are none)
    host → newcomer    here they are                                              (Blocks)

Then, on a connection of its own, what readers of the history hold and its journal lacks (docs/decisions/0024):

    newcomer → host    I want the history behind this index                       (Wanted)
    host → newcomer    for that you need everything behind this one               (Needed)
    newcomer → host    of that I lack what is between these two                   (Lacked, until there is nothing)
    host → newcomer    here it is, up to there                                    (Copied)

Who leads gets from others the branches that they have cut off, the same way: what one says of itself, then the blocks
at some places in it (docs/decisions/0018).

Every message is a length and a MessagePack array, compressed. The key in the host's hello, which only members of the
channel heard, opens the door.
"""

from __future__ import annotations

import asyncio
import hmac
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from heliograph.cluster.fork import fork_of
from heliograph.cluster.history import Brought, Cut, encode_brought
from heliograph.cluster.log import ViewMark, with_history
from heliograph.destinations.branch import Branch, decode_branch, encode_branch
from heliograph.destinations.snapshot import CatalogueState, decode_state, encode_state
from heliograph.destinations.state_transfer import Place, blocks_of, relocate_state
from heliograph.journal.feed import Fed, FeedReader, Portion
from heliograph.journal.records import RecordKind
from heliograph.model.block import parse_trusted
from heliograph.model.errors import NO_ROOM, HeliographError, StorageFull, Unavailable
from heliograph.model.large import FileId, LargeReference, reference_of
from heliograph.model.limits import FEED_PORTION_BYTES, MAX_CHUNK_BYTES
from heliograph.nodes.awaiting import answer_to
from heliograph.nodes.branches import Branches
from heliograph.nodes.log_history import LogHistory, history_record
from heliograph.nodes.message_manager import MessageManager

Result = TypeVar("Result")
_LENGTH = struct.Struct("<I")
_MAX_MESSAGE: Final = 2**31
# Blocks that are asked for in one go: about as much as a page of the journal's reader.
_BATCH: Final = 256
_COMPRESSION: Final = 1  # the fastest: the network inside a cluster is fast too
_PATIENCE_SECONDS: Final = 30.0
# A machine that is there takes a connection in milliseconds. One without power says nothing, and the system would
# wait for minutes.
_CONNECT_SECONDS: Final = 2.0


class ContentElsewhere(Unavailable):
    """Who was asked for the content of a large message does not have it, or not all of it."""


# What may go wrong with another, or between the two.
BRINGING_FAILED = (OSError, EOFError, TimeoutError, HeliographError, msgspec.DecodeError)


class Wanted(msgspec.Struct, array_like=True):
    """What the newcomer has; or the file, or the branch, that it wants, and nothing else."""

    key: bytes
    views: list[ViewMark]
    index: int
    file: bytes = b""
    branch: bytes = b""
    history: int = -1  # the index behind which history is wanted


class Offered(msgspec.Struct, array_like=True):
    """What the host has."""

    fork: int
    state: bytes


class Missing(msgspec.Struct, array_like=True):
    """Positions in the host's journal. None: that was all."""

    positions: list[int]


class Pieces(msgspec.Struct, array_like=True):
    """Places in a branch, and sizes. None: that was all."""

    places: list[tuple[int, int]]


class Blocks(msgspec.Struct, array_like=True):
    """What stands there, in the same order."""

    blocks: list[bytes]


class Needed(msgspec.Struct, array_like=True):
    """An index: to read the history, everything behind it is needed."""

    after: int


class Lacked(msgspec.Struct, array_like=True):
    """Everything behind `after` up to `until`. Nothing: that was all."""

    after: int
    until: int


class Copied(msgspec.Struct, array_like=True):
    """Records: kind, destination, list, index, payload. Everything up to `upto` is among them."""

    records: list[tuple[int, int, int, int, bytes]]
    upto: int


_encode = msgspec.msgpack.Encoder().encode


async def _send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    packed = zlib.compress(_encode(message), _COMPRESSION)
    writer.write(_LENGTH.pack(len(packed)) + packed)
    async with asyncio.timeout(_PATIENCE_SECONDS):  # `wait_for` of Python 3.11 may swallow a cancellation
        await writer.drain()


async def _receive(reader: asyncio.StreamReader, kind: Any) -> Any:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _MAX_MESSAGE:
            raise Unavailable("the other side sends nonsense", code="catch-up-failed")
        packed = await reader.readexactly(length)
    return msgspec.msgpack.decode(zlib.decompress(packed), type=kind)


class Host:
    """Lets others catch up."""

    def __init__(
        self, manager: Callable[[], MessageManager], branches: Callable[[], Branches], key: bytes
    ) -> None:
        self._manager = manager
        self._branches = branches
        self._key = key
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.served = 0
        self._is_over = False

    async def start(self, host: str) -> None:
        self._server = await asyncio.start_server(self._connected, host, 0)

    @property
    def address(self) -> str:
        """Where, and the key: for members of the channel only."""
        assert self._server is not None, "the host is started first"
        name, port = self._server.sockets[0].getsockname()[:2]
        return f"{name}:{port}/{self._key.hex()}"

    async def stop(self) -> None:
        self._is_over = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, HeliographError, msgspec.DecodeError, zlib.error):
            pass  # it will try again
        except asyncio.CancelledError:
            if not self._is_over:
                raise
            # The server of asyncio asks a task for its error, and takes one that was cancelled for a defect.
        finally:
            del self._tasks[task]
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wanted: Wanted = await _receive(reader, Wanted)
        if not hmac.compare_digest(wanted.key, self._key):
            return
        manager = self._manager()
        if wanted.file:
            await self._serve_file(manager, FileId(wanted.file), writer)
            return
        if wanted.branch:
            await self._serve_branch(wanted.branch, reader, writer)
            return
        if wanted.history >= 0:
            await self._serve_history(manager, wanted.history, reader, writer)
            return
        manager.journal.pin()
        try:
            fork = fork_of(manager.place, wanted.views, wanted.index)
            await _send(writer, Offered(fork, manager.externalise()))
            while True:
                missing: Missing = await _receive(reader, Missing)
                if not missing.positions:
                    break
                await _send(writer, Blocks(await _read(manager, missing.positions)))
            self.served += 1
        finally:
            manager.journal.unpin()

    async def _serve_history(
        self,
        manager: MessageManager,
        after: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Raises ClientFault `feed-gone`: then it is not here either."""
        manager.journal.pin()
        try:
            await _send(writer, Needed(await _look(manager, lambda log: log.needs(after))))
            while True:
                lacked: Lacked = await _receive(reader, Lacked)
                if lacked.after >= lacked.until:
                    return
                found = await _look(manager, partial(_copy, lacked))
                await _send(writer, Copied([_plain(fed) for fed in found.records], found.upto))
        finally:
            manager.journal.unpin()

    async def _serve_branch(
        self, branch: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        branches = self._branches()
        await _send(writer, Blocks([encode_branch(branches.all[branch])] if branch in branches.all else []))
        while True:
            wanted: Pieces = await _receive(reader, Pieces)
            if not wanted.places:
                return
            await _send(writer, Blocks([branches.body(branch, *place) for place in wanted.places]))

    async def _serve_file(self, manager: MessageManager, file: FileId, writer: asyncio.StreamWriter) -> None:
        """Nothing, if not all of it is here."""
        offset, large = 0, manager.large
        while not large.lacks([file]) and (piece := await large.read(file, offset, MAX_CHUNK_BYTES)):
            await _send(writer, Blocks([piece]))
            offset += len(piece)
        await _send(writer, Blocks([]))


async def _read(manager: MessageManager, positions: list[int]) -> list[bytes]:
    blocks: list[bytes] = await answer_to(partial(manager.journal.load, positions))
    return blocks


def _first_lsn(feed: FeedReader, numbers: list[int]) -> int:
    """In front of it nothing is there any more that would have to be explained."""
    return feed.first(numbers)


def _plain(fed: Fed) -> tuple[int, int, int, int, bytes]:
    return fed.kind, fed.destination, fed.list, fed.lsn, fed.payload


def _copy(lacked: Lacked, log: LogHistory) -> Portion:
    return log.copy(lacked.after, lacked.until, FEED_PORTION_BYTES)


async def _look(manager: MessageManager, job: Callable[[LogHistory], Result]) -> Result:
    """Raises ClientFault `feed-gone`."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        found: Result = await answer_to(partial(manager.pipelines.feeding.look_at_log, job))
    return found


class RemoteBranch:
    """A branch that another message manager has cut off."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def reach(cls, address: str, branch: bytes) -> RemoteBranch:
        reader, writer, key = await _connect(address)
        await _send(writer, Wanted(key, [], 0, b"", branch))
        return cls(reader, writer)

    async def summary(self) -> Branch | None:
        """None: it is not there any more."""
        said: Blocks = await _receive(self._reader, Blocks)
        return decode_branch(said.blocks[0]) if said.blocks else None

    async def bodies(self, places: list[tuple[int, int]]) -> list[bytes]:
        await _send(self._writer, Pieces(places))
        said: Blocks = await _receive(self._reader, Blocks)
        return said.blocks

    def close(self) -> None:
        self._writer.close()


async def catch_up(
    address: str,
    manager: MessageManager,
    cut: Callable[[int], MessageManager],
    set_aside: Callable[[MessageManager, int], Awaitable[object]],
) -> int:
    """Bring a manager's journal to the state of the host at `address`. Returns how many blocks had to come.

    `set_aside` keeps what is behind the fork, if there is anything. `cut` makes a manager that has forgotten its log
    behind an index, and is called where the logs part before the manager's own ends. Afterwards the journal has a
    snapshot of the new state: start from it.
    """
    reader, writer, key = await _connect(address)
    journal = manager.journal
    journal.pin()
    try:
        place = manager.place
        await _send(writer, Wanted(key, place.views, place.index))
        offered: Offered = await _receive(reader, Offered)
        if offered.fork != place.index:
            await set_aside(manager, offered.fork)
            manager = cut(offered.fork)
            journal = manager.journal
            journal.pin()
        first: int = await answer_to(partial(journal.feed, _first_lsn))
        state = decode_state(offered.state)
        moves, missing = _compare(manager, dict(_at_host(state)))
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            await _send(writer, Missing(batch))
            blocks: Blocks = await _receive(reader, Blocks)
            for position, block in zip(batch, blocks.blocks, strict=True):
                moves[position] = _append(manager, block)
            manager.journal.end_of_tick()
        await _send(writer, Missing([]))
        for file, position in _files_of(state, moves):
            if manager.large.lacks([file]):
                message = parse_trusted(manager.journal.read_now(position))
                await bring_file(address, manager, reference_of(message))
        relocate_state(state, moves)
        here = Cut(manager.journal.next_lsn - 1, offered.fork, state.index)
        state.cluster = with_history(state.cluster, manager.place.history.behind(first).with_cut(here))
        await _store(manager, encode_state(state))
    except BaseException:
        journal.unpin()
        raise
    finally:
        writer.close()
    # It stays pinned to its end, which is now: what was brought is held by the new state, which it knows nothing of.
    return len(missing)


async def bring_history(address: str, manager: MessageManager) -> int:
    """Get what the holds need of the history, and this journal lacks. Returns how many records came.

    Raises StorageFull, or ClientFault `feed-gone`: then this manager goes without it."""
    after = min((held.number for held in manager.catalogue.pipelines.holds()), default=-1)
    until = manager.place.index
    if after < 0 or not await _look(manager, lambda log: log.lacks(after)):
        return 0
    reader, writer, key = await _connect(address)
    try:
        await _send(writer, Wanted(key, [], 0, b"", b"", after))
        needed: Needed = await _receive(reader, Needed)
        holes = await _look(manager, lambda log: log.missing(needed.after, until))
        first, count = manager.journal.next_lsn, 0
        for start, stop in holes:
            upto = start
            while upto < stop:
                await _send(writer, Lacked(upto, stop))
                copied: Copied = await _receive(reader, Copied)
                if copied.upto <= upto:
                    raise Unavailable("the other side has it no more", code="catch-up-failed")
                upto, count = copied.upto, count + len(copied.records)
                _append_history(manager, copied)
        await _send(writer, Lacked(0, 0))
    finally:
        writer.close()
    brought = Brought(first, manager.journal.next_lsn - 1)
    manager.place.history = manager.place.history.with_brought(brought)
    payload = encode_brought(brought)
    manager.journal.append(RecordKind.BROUGHT, 0, 0, (payload,), len(payload))
    manager.journal.end_of_tick()
    return count


def _append_history(manager: MessageManager, copied: Copied) -> None:
    for record in copied.records:
        payload = history_record(Fed(*record))
        if not manager.journal.append(RecordKind.HISTORY, 0, 0, (payload,), len(payload), bulky=True):
            raise StorageFull("the disk, or the quota on it, has no room for the history")
    manager.journal.end_of_tick()


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    where, _, key = address.partition("/")
    name, _, port = where.rpartition(":")
    async with asyncio.timeout(_CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(name, int(port))
    return reader, writer, bytes.fromhex(key)


async def bring_file(address: str, manager: MessageManager, reference: LargeReference) -> None:
    """Get the content of a large message. Raises ContentElsewhere, and what `LargeStore.bring` raises."""
    reader, writer, key = await _connect(address)
    try:
        await _send(writer, Wanted(key, [], 0, reference.file))
        first: Blocks = await _receive(reader, Blocks)
        if reference.size and not first.blocks:
            raise ContentElsewhere("the content of a large message is not there", code="catch-up-failed")
        await manager.large.bring(reference, _pieces(first, reader))
    finally:
        writer.close()


async def bring_from_any(addresses: list[str], manager: MessageManager, reference: LargeReference) -> bool:
    """Get the content of a large message from whoever has it. False: none of them does. Raises what went wrong with
    one, if no other had it."""
    trouble: Exception | None = None
    for address in addresses:
        try:
            await bring_file(address, manager, reference)
        except ContentElsewhere:
            continue
        except BRINGING_FAILED as error:
            trouble = error
        else:
            return True
    if trouble is not None:
        raise trouble
    return False


async def bring_lost(addresses: list[str], manager: MessageManager) -> int:
    """Get what messages refer to and this manager lost, or never had. Returns of how many files it came. Raises what
    went wrong with one of those who may have it."""
    large, count = manager.large, 0
    trouble: Exception | None = None
    for file in large.lacks(large.references()):
        position = manager.catalogue.large.position_of(file)
        if position is None:
            continue  # the last message that referred to it ended meanwhile
        try:
            (block,) = await _read(manager, [position])
            count += await bring_from_any(addresses, manager, reference_of(parse_trusted(block)))
        except BRINGING_FAILED as error:
            trouble = error
        large.counted_anew([file], manager.journal.next_lsn)  # so it may have done by now
    if trouble is not None:
        raise trouble
    return count


async def _pieces(said: Blocks, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while said.blocks:
        yield said.blocks[0]
        said = await _receive(reader, Blocks)


def _files_of(state: CatalogueState, moves: dict[int, int]) -> list[tuple[FileId, int]]:
    """Files that messages refer to, each with the position here of one of those."""
    return list({FileId(file): moves[at] for at, file in state.large if at in moves}.items())


def _at_host(state: Any) -> list[tuple[int, Place]]:
    return [(position, place) for place, position in blocks_of(state)]


def _compare(manager: MessageManager, at_host: dict[int, Place]) -> tuple[dict[int, int], list[int]]:
    """Where the host's blocks are here, and the positions of those that are not."""
    assert manager.recovery is not None, "who catches up does not lead"
    state, _ = manager.recovery.state(manager.place.state)
    here = {
        place: position
        for place, position in blocks_of(state)
        if place[0] and manager.journal.has_segment_of(position)
    }
    moves = {position: here[place] for position, place in at_host.items() if place in here}
    return moves, [position for position in at_host if position not in moves]


def _append(manager: MessageManager, block: bytes) -> int:
    position = manager.journal.append(RecordKind.MOVED, 0, 0, (block,), len(block), bulky=True)
    if not position:
        raise StorageFull(f"{NO_ROOM}: this node cannot catch up")
    return position


async def _store(manager: MessageManager, state: bytes) -> None:
    """A snapshot that the manager can start from."""
    while manager.journal.is_snapshotting:
        await asyncio.sleep(0.01)
    await answer_to(partial(manager.journal.snapshot, [state]))

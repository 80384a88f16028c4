"""What selectors may ask about the messages of one block, one list of values per name, decoded once.

A name is one of the headers that JMS 2.0, 3.8.1.1 admits, a JMSX property that the server knows, or a
property that the producer set. What the block says for all its messages at once is *shared*: a selector that
asks for nothing else is answered once for the block. Bodies are never touched, and of a head only what is
wanted is decoded.

Heads come from clients and are not checked when a block is accepted. One that cannot be read has nothing in
it: its properties are NULL, and the message reaches those who do not ask for any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from heliograph.model.block import (
    HEADER_BYTES,
    HEADS,
    LARGE,
    LONE,
    PRIORITIES,
    TIMESTAMPS,
    Block,
    columns_end,
)
from heliograph.model.ids import text_of
from heliograph.model.limits import MAX_PICKED_PROPERTIES
from heliograph.model.message import Property

MICROSECONDS_PER_MILLISECOND: Final = 1000

# Where a block's header has the length of all heads.
_HEAD_BYTES: Final = slice(20, 24)
_NULL: Final[list[Any]] = [None]
# Where in the head a header field stands (see message.Head).
_HEAD_FIELDS: Final = {"JMSCorrelationID": "c", "JMSType": "t", "JMSXGroupID": "g", "JMSXGroupSeq": "s"}
# Only the server could know these, and unless it says so they are NULL, whatever a producer claims.
_SERVER_KNOWS: Final = ("JMSXUserID", "JMSXDeliveryCount")
LARGE_NAME: Final = "JMS_helio_large"
HEADER_NAMES: Final = ("JMSPriority", "JMSDeliveryMode", "JMSTimestamp", LARGE_NAME, *_SERVER_KNOWS)
"""What a block usually says for all its messages at once."""

_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError)
_decode_anything = msgspec.msgpack.Decoder().decode


class Columns:
    """One block, seen by selectors. Make one per block and ask it for all of them."""

    __slots__ = ("_block", "_columns", "_maps", "_raw_heads", "_shared", "count")

    def __init__(self, block: Block, supplied: Mapping[str, Property] | None = None) -> None:
        """`supplied`: what the caller knows of all these messages and the block does not say, such as
        JMSXUserID or JMSXDeliveryCount."""
        self.count = block.count
        self._block = block
        self._columns: dict[str, list[Any]] = {}
        self._maps: list[dict[Any, Any]] | None = None
        self._raw_heads: list[bytes] | None = None
        shared: dict[str, list[Any]] = dict.fromkeys(_SERVER_KNOWS, _NULL)
        shared[LARGE_NAME] = [block.flags & LARGE != 0]
        shared["JMSDeliveryMode"] = ["PERSISTENT" if block.persistent else "NON_PERSISTENT"]
        if not block.flags & PRIORITIES:
            shared["JMSPriority"] = [block.priority]
        if not block.flags & TIMESTAMPS:
            shared["JMSTimestamp"] = [block.timestamp // MICROSECONDS_PER_MILLISECOND]
        if supplied:
            for name, value in supplied.items():
                shared[name] = [value]
        self._shared = shared

    def shared(self, names: Iterable[str]) -> list[list[Any]] | None:
        """Columns of one row that stand for all, if no message differs from another in any of `names`."""
        found: list[list[Any]] = []
        for name in names:
            column = self._shared.get(name)
            if column is None:
                if self._block.flags & HEADS or name in _COLUMN_READERS:
                    return None
                column = _NULL
            found.append(column)
        return found

    def columns(self, names: Collection[str]) -> list[list[Any]]:
        """One list of `count` values for each name."""
        have = self._columns
        try:
            return [have[name] for name in names]
        except KeyError:
            self.prepare(names)
            return [self._column(name) for name in names]

    def prepare(self, names: Iterable[str]) -> None:
        """Decode in one pass what these names need and nobody has asked for yet."""
        if not self._block.flags & HEADS:
            return
        have, shared = self._columns, self._shared
        missing = [
            name for name in names if name not in have and name not in shared and name not in _COLUMN_READERS
        ]
        if missing and self._maps is None:
            fields = [name for name in missing if name in _HEAD_FIELDS]
            properties = [name for name in missing if name not in _HEAD_FIELDS]
            if len(properties) > MAX_PICKED_PROPERTIES:
                self._decode_whole()
            else:
                self._decode_picked(tuple(fields), tuple(properties))
        if missing and self._maps is not None:
            self._fill_from_maps(self._maps, missing)

    def _column(self, name: str) -> list[Any]:
        column = self._columns.get(name)
        if column is None:
            if name in self._shared:
                column = self._shared[name] * self.count
            elif name in _COLUMN_READERS:
                column = _COLUMN_READERS[name](self._block)
            else:
                column = _NULL * self.count
            self._columns[name] = column
        return column

    def _heads(self) -> list[bytes]:
        if self._raw_heads is None:
            self._raw_heads = _cut_heads(self._block)
        return self._raw_heads

    def _decode_picked(self, fields: tuple[str, ...], properties: tuple[str, ...]) -> None:
        picker = _picker(fields, properties)
        try:
            heads = picker.decode_all(_as_array(self._block))
        except _UNREADABLE:  # usually because some messages have no head
            heads = [_pick_leniently(picker, raw) for raw in self._heads()]
        for name, get in zip(fields, picker.fields, strict=True):
            self._columns[name] = list(map(get, heads))
        if "JMSXGroupSeq" in fields:
            self._columns["JMSXGroupSeq"] = _without_zeros(self._columns["JMSXGroupSeq"])
        if properties:
            maps = [head.p for head in heads]
            for name, get in zip(properties, picker.properties, strict=True):
                self._columns[name] = list(map(get, maps))

    def _decode_whole(self) -> None:
        heads = [_read_leniently(raw) for raw in self._heads()]
        for name, letter in _HEAD_FIELDS.items():
            self._columns[name] = [head.get(letter) for head in heads]
        self._columns["JMSXGroupSeq"] = _without_zeros(self._columns["JMSXGroupSeq"])
        self._maps = [_properties_of(head) for head in heads]

    def _fill_from_maps(self, maps: list[dict[Any, Any]], names: Iterable[str]) -> None:
        """A name that no message has is shared: among thousands of names, most are."""
        present = dict.fromkeys(chain.from_iterable(maps))
        for name in names:
            if name in present:
                self._columns.setdefault(name, [properties.get(name) for properties in maps])
            elif name not in self._columns:
                self._shared[name] = _NULL


def _as_array(block: Block) -> bytes:
    """Heads lie one after the other: with three bytes before them they are one MessagePack array, which is
    decoded in less than half the time of cutting and decoding them one by one."""
    buffer = block.buffer
    assert buffer is not None, "the caller loads a block before it looks inside"
    start = columns_end(block.count, block.flags)
    stop = start + int.from_bytes(buffer[_HEAD_BYTES], "little")
    return b"".join((b"\xdc", block.count.to_bytes(2, "big"), memoryview(buffer)[start:stop]))


def _cut_heads(block: Block) -> list[bytes]:
    buffer = block.buffer
    assert buffer is not None, "the caller loads a block before it looks inside"
    if block.flags & LONE:
        return [buffer[HEADER_BYTES : HEADER_BYTES + int.from_bytes(buffer[_HEAD_BYTES], "little")]]
    start = HEADER_BYTES + (block.count + 2 & ~1) * 4
    offsets = memoryview(buffer)[start : start + (block.count + 1) * 4].cast("I").tolist()
    region = columns_end(block.count, block.flags)
    return [buffer[region + begin : region + end] for begin, end in pairwise(offsets)]


def _message_ids(block: Block) -> list[Any]:
    lane = text_of(block.lane)  # as ids.message_id writes it
    return [f"{lane}-{sequence}" for sequence in range(block.first, block.last + 1)]


def _priorities(block: Block) -> list[Any]:
    assert block.buffer is not None
    start = columns_end(block.count, block.flags) - (block.count + 7 & ~7)
    return list(block.buffer[start : start + block.count])


def _timestamps(block: Block) -> list[Any]:
    assert block.buffer is not None
    start = HEADER_BYTES + (block.count + 2 & ~1) * (8 if block.flags & HEADS else 4)
    column = memoryview(block.buffer)[start : start + block.count * 8].cast("q")
    return [microseconds // MICROSECONDS_PER_MILLISECOND for microseconds in column]


_COLUMN_READERS: Final = {
    "JMSMessageID": _message_ids,
    "JMSPriority": _priorities,
    "JMSTimestamp": _timestamps,
}


def _without_zeros(column: list[Any]) -> list[Any]:
    """A head leaves out a group sequence of 0: groups count from 1."""
    return [None if value == 0 else value for value in column]


class _Picker(NamedTuple):
    """Decodes a few fields of a head into structs, and gets them out again."""

    head_type: type[Any]
    properties_type: type[Any]
    decode_one: Any
    decode_all: Any
    letters: tuple[str, ...]
    names: tuple[str, ...]
    fields: tuple[attrgetter[Any], ...]
    properties: tuple[attrgetter[Any], ...]


@lru_cache(maxsize=256)
def _picker(fields: tuple[str, ...], properties: tuple[str, ...]) -> _Picker:
    """Property names come from clients, so they are only ever the encoded names of fields f0, f1, ….

    Fields are Any: a value of an unexpected kind must not make its head unreadable.
    """
    attributes = [f"f{n}" for n in range(len(properties))]
    properties_type = msgspec.defstruct(
        "Properties",
        [(attribute, Any, None) for attribute in attributes],
        rename=dict(zip(attributes, properties, strict=True)),
        frozen=True,
        gc=False,
    )
    letters = tuple(_HEAD_FIELDS[name] for name in fields)
    wanted: list[Any] = [(letter, Any, None) for letter in letters]
    if properties:
        wanted.append(("p", properties_type, properties_type()))
    head_type = msgspec.defstruct("WantedHead", wanted, frozen=True, gc=False)
    return _Picker(
        head_type,
        properties_type,
        msgspec.msgpack.Decoder(head_type).decode,
        msgspec.msgpack.Decoder(list[head_type]).decode,  # type: ignore[valid-type]  # made just above
        letters,
        properties,
        tuple(attrgetter(letter) for letter in letters),
        tuple(attrgetter(attribute) for attribute in attributes),
    )


def _pick_leniently(picker: _Picker, raw: bytes) -> Any:
    """One head, which may be empty or not what it should be."""
    if raw:
        try:
            return picker.decode_one(raw)
        except _UNREADABLE:
            pass
    head = _read_leniently(raw)
    picked = {letter: head.get(letter) for letter in picker.letters}
    if picker.names:
        properties = _properties_of(head)
        picked["p"] = picker.properties_type(*map(properties.get, picker.names))
    return picker.head_type(**picked)


def _read_leniently(raw: bytes) -> dict[Any, Any]:
    try:
        head = _decode_anything(raw) if raw else {}
    except _UNREADABLE:
        return {}
    return head if isinstance(head, dict) else {}


def _properties_of(head: dict[Any, Any]) -> dict[Any, Any]:
    properties = head.get("p")
    return properties if isinstance(properties, dict) else {}

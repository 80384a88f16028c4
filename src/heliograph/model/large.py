"""A very large message as it travels on its lane: not its content but a reference to it (M6).

The content is a file of the large store. Its id is 128 random bits that the server issues; whoever was
given the reference, by sending or receiving it, may read the content, and nobody can guess another.
"""

from __future__ import annotations

from typing import Final, NewType

import msgspec

from heliograph.model.block import Block, lone_body, parse_trusted
from heliograph.model.distribution import UNREACHABLE
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_LARGE_BYTES

FileId = NewType("FileId", bytes)

FILE_ID_BYTES = 16
REFUSED_FOR_NOW: Final = ("too-many-fetches", "too-many-transfers", UNREACHABLE)
"""Why a content cannot be read at the moment, though nothing is wrong with it: there is no room for one more that
reads, or nobody leads where it is."""


class LargeReference(
    msgspec.Struct,
    frozen=True,
    rename={"file": "f", "size": "s", "checksum": "c"},
    forbid_unknown_fields=False,
):
    """The body of a large message. `checksum` is the CRC-32C of the whole content."""

    file: bytes
    size: int
    checksum: int

    def __repr__(self) -> str:
        """Without the file: whoever knows it may read it, and logs are read by many."""
        return f"<large content of {self.size} bytes>"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LargeReference).decode


def encode_reference(reference: LargeReference) -> bytes:
    return _encode(reference)


def decode_reference(raw: bytes) -> LargeReference:
    """Raises ClientFault on bytes that are no reference."""
    try:
        reference = _decode(raw)
    except msgspec.MsgspecError as fault:
        raise ClientFault(f"not a reference to a large message: {fault}", code="large-malformed") from None
    if len(reference.file) != FILE_ID_BYTES or not 0 <= reference.size <= MAX_LARGE_BYTES:
        raise ClientFault("a reference to a large message names a file and its size", code="large-malformed")
    return reference


def reference_of(block: Block) -> LargeReference:
    """What a large block refers to. Raises ClientFault where its body is no reference."""
    return decode_reference(lone_body(block))


def file_in(payload: bytes) -> FileId:
    """The file that a stored large block refers to; it was checked when it came in."""
    return FileId(reference_of(parse_trusted(payload)).file)

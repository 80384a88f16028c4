"""Documents of which every node that needs one has a copy in a file, each with a version (M14): the users, for one.

The journal is where they are kept. Of two that meet, the one with the higher version wins; if both have the same
version and differ, the one that is here.
"""

from __future__ import annotations

import msgspec

from heliograph.model.limits import MAX_DOCUMENTS


class Document(msgspec.Struct, frozen=True, array_like=True):
    """As the journal keeps it."""

    key: str
    version: int
    content: bytes


class Documents:
    """Those of one sub-cluster."""

    def __init__(self) -> None:
        self.by_key: dict[str, Document] = {}

    def restore(self, document: Document) -> None:
        self.by_key[document.key] = document

    def offered(self, document: Document) -> bool:
        """Whether it was taken."""
        here = self.by_key.get(document.key)
        if here is None and len(self.by_key) >= MAX_DOCUMENTS:
            return False
        if here is not None and document.version <= here.version:
            return False
        self.by_key[document.key] = document
        return True


encode_document = msgspec.msgpack.Encoder().encode
decode_document = msgspec.msgpack.Decoder(Document).decode

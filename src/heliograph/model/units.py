"""Units of order: how a name becomes the number that travels with each message (U4).

A unit is a name, chosen by applications or generated. In a block's column it is a 64-bit number made from the
name, so that a server orders messages without reading their heads; the name itself stands in the head. Two
names with one number would be kept in one order: that costs speed, never correctness. The number is part of
the format: it is the same on every machine and in every version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from heliograph.model.block import UNITS, Span, column_of
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_UNIT_NAME_BYTES, UNIT_NAMES_REMEMBERED

NO_UNIT = 0
GENERATED_UNIT = "_session."
"""What the names begin with that libraries make up."""
_NUMBER = struct.Struct("<Q")


@lru_cache(maxsize=UNIT_NAMES_REMEMBERED)
def unit_number(name: str) -> int:
    """The number of a unit's name, never 0. Raises ClientFault `unit-invalid`."""
    raw = name.encode(errors="surrogatepass")
    if not 0 < len(raw) <= MAX_UNIT_NAME_BYTES:
        raise ClientFault(
            f"the name of a unit of order has 1 to {MAX_UNIT_NAME_BYTES} bytes, this one {len(raw)}",
            code="unit-invalid",
        )
    (number,) = _NUMBER.unpack(blake2b(raw, digest_size=8, person=b"helio-unit").digest())
    return int(number) or 1


def unit_for_value(value: object) -> str:
    """The unit of messages that have none of their own, by the value of a property; empty: none.

    Long texts that begin alike share one."""
    if value is None or value == "":
        return ""
    return (value if isinstance(value, str) else repr(value))[:60]


def units_of(span: Span) -> Sequence[int]:
    """The unit of each message of a span, 0 where there is none."""
    if not span.block.flags & UNITS:
        return (NO_UNIT,) * (span.stop - span.start)
    return column_of(span, UNITS, "Q")

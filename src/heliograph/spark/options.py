"""What a reader or a writer is told by options, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from heliograph.model.errors import ClientFault
from heliograph.model.limits import HOLD_SECONDS, LEASE_SECONDS, MAX_LEASE_MESSAGES

EARLIEST, LATEST = "earliest", "latest"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """As given to `option()`; Spark makes no difference between capitals and small letters."""

    url: str = "helio://127.0.0.1:7700"
    user: str = ""
    password: str = ""
    destination: str = ""
    mode: Literal["feed", "queue"] = "feed"
    startingoffset: str = EARLIEST
    endingoffset: str = LATEST
    partitions: int = 0  # 0: as many as Spark has cores, told by the driver
    maxrowspertrigger: int = 0  # 0: whatever is there; in mode queue, 100,000
    holdseconds: float = HOLD_SECONDS
    leaseseconds: float = LEASE_SECONDS
    lease: str = ""  # in mode queue, under what name it leases; a stream draws one unless told
    selector: str = ""  # in mode queue: lease only what it selects
    content: Literal["messages", "events"] = "messages"  # events: what happened to messages, for an audit
    retryseconds: float = 120.0  # how long a server that is away is waited for
    name: str = ""  # of a writer, instead of the query's id

    @property
    def lease_messages(self) -> int:
        return min(self.maxrowspertrigger or 100_000, MAX_LEASE_MESSAGES)


_NAMES = frozenset(Options.__struct_fields__)


def options_of(given: Mapping[str, Any], *, default_partitions: int = 1) -> Options:
    """Raises ClientFault `option-invalid`."""
    known = {key.lower(): value for key, value in given.items()}
    known = {key: value for key, value in known.items() if key in _NAMES}
    try:
        options = msgspec.convert(known, Options, strict=False)
    except msgspec.ValidationError as fault:
        raise ClientFault(
            f"an option of the source heliograph is wrong: {fault}", code="option-invalid"
        ) from None
    if options.partitions <= 0:
        options = msgspec.structs.replace(options, partitions=max(default_partitions, 1))
    return options


def required_destination(options: Options) -> str:
    """Raises ClientFault."""
    if not options.destination:
        raise ClientFault(
            'the source heliograph needs option("destination", "queue:NAME") or "topic:NAME"',
            code="option-invalid",
        )
    return options.destination

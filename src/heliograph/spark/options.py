"""What a reader or a writer is told by options, checked."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal

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
    hold: str = ""  # of a batch of the feed: under what name its history is held; one is drawn unless told
    leaseseconds: float = LEASE_SECONDS
    lease: str = ""  # in mode queue, under what name it leases; a stream draws one unless told
    epoch: int = 1  # in mode queue, of a batch: the number of its lease under that name
    selector: str = ""  # in mode queue: lease only what it selects
    content: Literal["messages", "events"] = "messages"  # events: what happened to messages, for an audit
    retryseconds: float = 120.0  # how long a server that is away is waited for
    name: str = ""  # of a writer, instead of the query's id
    batch: int = 0  # of a batch that is written under a name: its number; numbers only rise

    @property
    def lease_messages(self) -> int:
        return min(self.maxrowspertrigger or 100_000, MAX_LEASE_MESSAGES)


_NAMES: Final = frozenset(Options.__struct_fields__)
_OF_SPARK: Final = ("path", "checkpointlocation", "queryname", "outputmode")
"""What Spark hands to every source and sink, beside names of its own that begin with two underscores."""


def options_of(given: Mapping[str, Any], *, default_partitions: int = 1) -> Options:
    """Raises ClientFault `option-invalid`, also for what nobody knows: a slip would be a default in silence."""
    told = {key.lower(): value for key, value in given.items()}
    known = {key: value for key, value in told.items() if key in _NAMES}
    unknown = [key for key in told if key not in _NAMES and key not in _OF_SPARK and not key.startswith("__")]
    if unknown:
        close = get_close_matches(unknown[0], sorted(_NAMES), 1)
        raise ClientFault(
            f"the source heliograph has no option {unknown[0][:80]!r}"
            + (f"; did you mean {close[0]}?" if close else f"; it has {', '.join(sorted(_NAMES))}"),
            code="option-invalid",
        )
    try:
        options = msgspec.convert(known, Options, strict=False)
    except msgspec.ValidationError as fault:
        raise ClientFault(
            f"an option of the source heliograph is wrong: {fault}", code="option-invalid"
        ) from None
    if options.partitions <= 0:
        options = msgspec.structs.replace(options, partitions=max(default_partitions, 1))
    return options


def check_reading(options: Options, *, is_stream: bool) -> None:
    """What would be passed over in silence is refused. Raises ClientFault `option-invalid`."""
    is_queue = options.mode == "queue"
    ignored = (
        (
            "selector",
            options.selector and not is_queue,
            "is of the mode queue; in mode feed, filter the rows",
        ),
        ("startingOffset", options.startingoffset != EARLIEST and is_queue, "is of the mode feed"),
        ("endingOffset", options.endingoffset != LATEST and is_queue, "is of the mode feed"),
        ("endingOffset", options.endingoffset != LATEST and is_stream, "is of batches: a stream has no end"),
        ("hold", options.hold and is_queue, "is of the mode feed, which leaves messages where they are"),
        ("hold", options.hold and is_stream, "is of batches: a stream holds under a name that it draws"),
        ("content", options.content == "events" and is_stream, "may be events in batches only"),
        ("content", options.content == "events" and is_queue, "may be events in mode feed only"),
    )
    for name, is_told, why in ignored:
        if is_told:
            raise ClientFault(f"the option {name} {why}", code="option-invalid")


def required_destination(options: Options) -> str:
    """Raises ClientFault."""
    if not options.destination:
        raise ClientFault(
            'the source heliograph needs option("destination", "queue:NAME") or "topic:NAME"',
            code="option-invalid",
        )
    return options.destination

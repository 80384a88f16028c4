"""What a destination asks its message manager to do. Effects are data and are carried out in order."""

from __future__ import annotations

from typing import Any

import msgspec

from heliograph.bus.commands import Decision
from heliograph.destinations.pages import Page
from heliograph.model.block import Block, Span
from heliograph.model.ids import LaneId


class Effect(msgspec.Struct, gc=False):
    """Something to do in the world."""


class Multicast(Effect):
    """Tell everybody on the bus."""

    command: Decision


class Persist(Effect):
    """Append a block to the journal and hold it there once; `BlocksStored` comes when it is on disk."""

    block: Block


class Note(Effect):
    """Append what happened to inclusive ranges of message numbers of a list. Nobody waits, unless `request`
    is set."""

    kind: int
    list_number: int
    ranges: list[tuple[int, int]]
    request: int = 0


class Answer(Effect):
    """Answer a request when everything that was noted so far is stored."""

    request: int
    body: dict[str, Any]


class Retain(Effect):
    """Further lists need `count` messages of the record at `position`."""

    position: int
    count: int


class Release(Effect):
    """A list needs `count` messages of the record at `position` no longer."""

    position: int
    count: int


class ReleasePage(Effect):
    """A list needs none of a page's messages any longer."""

    page: Page


class Load(Effect):
    """Read a page of cold messages from the journal; `PageLoaded` follows."""

    list_number: int
    priority: int
    page: Page


class Bury(Effect):
    """Move these messages to the dead message queue, in one stroke with the note that they are done here.

    `errors`: the last word of a consumer about each.
    """

    list_number: int
    spans: list[Span]
    reason: str
    errors: list[str]


class Missed(Effect):
    """A lane goes on behind these sequences, which are not here. In a cluster another part may have them."""

    lane: LaneId
    first: int
    last: int


class Administer(Effect):
    """The messages of a block are commands to the server (M13)."""

    block: Block


class Wake(Effect):
    """Something is due at this time (microseconds): come back with `TimeCame`."""

    due: int


class Continue(Effect):
    """There is more to do than fits one turn: come back with `TurnCame` after the others had theirs."""


class Write(Effect):
    """Append a small record of this kind. Nobody waits for it, unless `wait` is set."""

    kind: int
    payload: bytes
    wait: bool = False


class StoreAlert(Effect):
    """Append the record of an alert; `AlertStored` comes when it is on disk, `AlertRefused` if there is no room."""

    index: int
    payload: bytes


class Announce(Effect):
    """Tell everybody on the bus when everything that was written so far is stored."""

    command: Decision


AnyEffect = (
    Multicast
    | Persist
    | Note
    | Answer
    | Retain
    | Release
    | ReleasePage
    | Load
    | Bury
    | Missed
    | Administer
    | Wake
    | Continue
    | Write
    | StoreAlert
    | Announce
)

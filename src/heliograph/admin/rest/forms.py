"""What may be said in a request: the parameters behind `?` and the bodies. The API's description is made of these,
and what arrives is checked by them, so that neither can differ from the other."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from heliograph.model.limits import FOUND_ENTRIES, MAX_LOOKED_AT, MAX_LOOKED_PAST, MAX_REDRIVEN


class Form(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is not known is refused: a parameter that is spelt wrong does not go unnoticed."""


class Nothing(Form):
    """No parameters."""


# ---- parameters

ADDRESS = "^(queue|topic|alerts):[^ ]+$"
Name = Annotated[str, Meta(max_length=255)]
Selector = Annotated[str, Meta(max_length=4096, description="A selector, as consumers have: `priority > 3`.")]


class FindQuery(Form):
    """Which destinations."""

    contains: Annotated[Name, Meta(description="A part of the name, whatever the case of its letters.")] = ""
    kind: Annotated[
        Literal["", "queue", "topic", "alerts"], Meta(description="Only destinations of this kind.")
    ] = ""
    sort: Annotated[
        Literal[
            "name",
            "depth",
            "in_flight",
            "consumers",
            "delivered",
            "stopped_units",
            "published",
            "bytes",
            "held_back",
        ],
        Meta(description="By name, or those first that have the most."),
    ] = "name"
    own: Annotated[bool, Meta(description="The server's own destinations, too.")] = False
    limit: Annotated[int, Meta(ge=1, le=FOUND_ENTRIES, description="Entries of a page.")] = 50
    after: Annotated[Name, Meta(description="The `next` of the page before; none: the first page.")] = ""


class PageQuery(Form):
    """Which page."""

    after: Annotated[
        int, Meta(ge=0, le=2**60, description="The `next` of the page before; 0: the first.")
    ] = 0


class DeleteQuery(Form):
    """How seriously it is meant."""

    force: Annotated[bool, Meta(description="Though it has consumers or messages, which are lost.")] = False


class LookQuery(Form):
    """Which messages."""

    selector: Selector = ""
    skip: Annotated[int, Meta(ge=0, le=MAX_LOOKED_PAST, description="Begin behind so many.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_LOOKED_AT, description="At most so many.")] = 50


class PeekQuery(Form):
    """How to show a body."""

    body: Annotated[
        Literal["auto", "text", "json", "hex", "raw"],
        Meta(description="auto: what it is; raw: the reply is the body itself, as bytes."),
    ] = "auto"


class AlertsQuery(Form):
    """Which alerts."""

    topics: Annotated[str, Meta(max_length=1024, description="As in `TAG:^db,disk;USER:ann`.")] = ""
    after: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$", description="The `next` of the page before.")] = (
        ""
    )


class EventsQuery(Form):
    """What a stream tells about."""

    topics: Annotated[
        str,
        Meta(
            pattern="^(overview|log|cluster)(,(overview|log|cluster))*$",
            description="With commas between them: overview, log, cluster.",
        ),
    ] = "overview"
    destination: Annotated[Name, Meta(description="A destination to tell about, too.")] = ""


class MetricsQuery(Form):
    """How much detail."""

    destinations: Annotated[
        str,
        Meta(
            max_length=255,
            description="A part of the names of destinations that get lines of their own; `*`: all of them."
            " None: all are summed up.",
        ),
    ] = ""


# ---- bodies


class LogInForm(Form):
    """Who comes in."""

    user: Annotated[str, Meta(max_length=64)]
    password: Annotated[str, Meta(max_length=1024)]


class CreateForm(Form):
    """A destination to be."""

    destination: Annotated[
        str,
        Meta(
            max_length=255,
            pattern=ADDRESS,
            description="`queue:NAME`, `topic:NAME` or `alerts:NAME`.",
        ),
    ]
    policy: dict[str, Any] = {}


class PolicyForm(Form):
    """What changes in a policy."""

    policy: dict[str, Any]


class PauseForm(Form):
    """What pauses or goes on; neither: both."""

    production: bool = False
    consumption: bool = False


class SendForm(Form):
    """A message."""

    body: Annotated[Any, Meta(description="A text, or whatever JSON can say; with `encoding`, a text.")] = ""
    encoding: Annotated[
        Literal["", "hex", "base64"], Meta(description="How bytes are written in `body`; none: as they are.")
    ] = ""
    properties: dict[Annotated[str, Meta(min_length=1, max_length=255)], bool | int | float | str | None] = {}
    priority: Annotated[int, Meta(ge=0, le=9)] = 4
    persistent: bool = True
    expires_seconds: Annotated[float, Meta(ge=0, le=1e9, description="0: never.")] = 0.0
    delay_seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    correlation_id: Annotated[str, Meta(max_length=1024)] | None = None
    reply_to: Name | None = None
    type: Name | None = None
    unit_of_order: Name | None = None
    group_id: Name | None = None
    group_sequence: Annotated[int, Meta(ge=0, le=2**31)] = 0


Ids = Annotated[
    list[Annotated[str, Meta(max_length=80)]],
    Meta(max_length=MAX_LOOKED_AT, description="Only messages with these ids."),
]


class WhichForm(Form):
    """Which messages are deleted; neither ids nor a selector: all."""

    ids: Ids = []
    selector: Selector = ""
    limit: Annotated[int, Meta(ge=0, le=2**31, description="0: all.")] = 0


class MoveForm(Form):
    """Which messages are moved, and where to."""

    target: Name
    ids: Ids = []
    selector: Selector = ""
    limit: Annotated[int, Meta(ge=0, le=2**31, description="0: all.")] = 0


class RedriveForm(Form):
    """Which dead messages go again to where they came from, or to `to`."""

    ids: Ids = []
    selector: Selector = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_REDRIVEN)] = MAX_REDRIVEN
    to: Name = ""


class ResumeUnitForm(Form):
    """How a stopped unit goes on."""

    give_up: Annotated[bool, Meta(description="Without the message for which it stopped.")] = False


class AlertForm(Form):
    """An alert."""

    destination: Annotated[str, Meta(max_length=255, description="`TAG:…`, `PROFILE:…` or `USER:…`.")]
    body: Annotated[str, Meta(max_length=65536)] = ""
    priority: Annotated[int, Meta(ge=1, le=10)] = 5
    duration: Annotated[float, Meta(ge=0, le=1e9, description="Seconds; 0: until it is cancelled.")] = 0.0
    persistent: bool = True


_Word = Annotated[str, Meta(min_length=1, max_length=64)]
_Words = Annotated[list[_Word], Meta(max_length=100)]
_Right = Literal["send", "receive", "browse", "create", "admin"]


class GrantForm(Form):
    """Rights for some, where a pattern matches."""

    destinations: Annotated[Name, Meta(description="As in `queue:orders.*`.")]
    rights: Annotated[list[_Right], Meta(min_length=1, max_length=5)]
    users: _Words = []
    roles: _Words = []


class RevokeForm(Form):
    """Rights that they have no more; none named: all."""

    destinations: Annotated[Name, Meta(description="The pattern of the rules that gave them.")]
    rights: Annotated[list[_Right], Meta(max_length=5)] = []
    users: _Words = []
    roles: _Words = []


class UserForm(Form):
    """Somebody new."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    password: Annotated[str, Meta(min_length=1, max_length=1024)]
    roles: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=100)] = []
    clearance: Annotated[str, Meta(max_length=40)] = ""

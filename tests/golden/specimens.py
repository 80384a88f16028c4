"""Fixed inputs of which the golden files hold the bytes: blocks, frames and ids that must never change.

A golden file that differs means that stored messages or older clients would not be understood any more. The
files are hex dumps, sixteen bytes a line, so that a difference can be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heliograph.frontends.native import frames
from heliograph.frontends.native.conversation import encode
from heliograph.model import block
from heliograph.model.alert import AlertHeader, AlertView
from heliograph.model.block import BodyKind, Contents, Span
from heliograph.model.claim import Claim
from heliograph.model.gathering import gather
from heliograph.model.ids import IdIssuer, lane_of
from heliograph.model.large import LargeReference
from heliograph.model.message import Head, encode_body, encode_head
from heliograph.sessions import commands

FOLDER = Path(__file__).parent

ISSUER = IdIssuer(site=1, node=2, started_ms=1_700_000_000_000)
SESSION = ISSUER.session()
CONSUMER = ISSUER.consumer()
LANE = lane_of(SESSION, 3)
OTHER_LANE = lane_of(SESSION, 4)

TIMESTAMP = 1_700_000_000_123_456
ALERT = bytes(range(12))
HEADER = AlertHeader("TAG:db.eu", 9, 60.0, 0, True, 0, 2, 1, 2)
HEADS = [
    encode_head(Head()),
    encode_head(Head(correlation_id="order 17", reply_to="queue:answers", type="order")),
    encode_head(
        Head(
            kind=BodyKind.TEXT,
            unit="customer 5",
            group_id="batch",
            group_sequence=2,
            properties={
                "yes": True,
                "count": -3,
                "rate": 0.5,
                "name": "Zoë",
                "raw": b"\x00\xff",
                "none": None,
            },
        )
    ),
]


def _fragment() -> bytes:
    whole = block.parse(BLOCKS["all-columns"])
    return b"".join(block.slice_span(Span(whole, 1, 3)))


def _gathered() -> bytes:
    """What a server picked for a consumer: messages of two lanes that do not stand side by side."""
    one = block.parse(block.pack(_ALL_BODIES, lane=LANE, first=41, timestamp=TIMESTAMP, units=[5, 6, 5]))
    other = block.parse(block.pack_lone(b"lone", lane=OTHER_LANE, sequence=8, timestamp=TIMESTAMP + 9))
    return b"".join(gather([Span(one, 0, 1), Span(one, 2, 3), Span(other, 0, 1)]))


def _contents(**fields: object) -> Contents:
    plain: dict[str, object] = {
        "flags": 0,
        "priority": 4,
        "persistent": True,
        "kind": 0,
        "lane": LANE,
        "first": 1,
        "timestamp": TIMESTAMP,
        "expiry": 0,
        "delivery_time": 0,
        "heads": None,
        "timestamps": None,
        "expiries": None,
        "delivery_times": None,
        "units": None,
        "priorities": None,
    }
    return Contents(**{**plain, **fields})  # type: ignore[arg-type]


_DATA = [encode_body({"sku": "A-1", "amounts": [1, 2.5]})[1], encode_body([None, True, "é"])[1]]
_LARGE = LargeReference(bytes(range(16)), 10_737_418_240, 0xDEADBEEF)
_ALL_BODIES = [b"first", b"", b"third message"]
_ALL_COLUMNS: dict[str, Any] = {
    "heads": HEADS,
    "timestamps": [TIMESTAMP, TIMESTAMP + 1, TIMESTAMP + 5],
    "expiries": [0, TIMESTAMP + 60_000_000, 0],
    "delivery_times": [TIMESTAMP + 1_000_000, 0, 0],
    "units": [0, 0xFEDCBA9876543210, 7],
    "priorities": [9, 0, 4],
}

BLOCKS: dict[str, bytes] = {
    "plain": block.pack([b"one", b"two", b"three"], lane=LANE, first=1, timestamp=TIMESTAMP),
    "lone": block.pack_lone(b"hello", lane=LANE, sequence=258, timestamp=TIMESTAMP, priority=7),
    "lone-with-head": block.pack_lone(
        b"body",
        lane=LANE,
        sequence=2,
        timestamp=TIMESTAMP,
        head=HEADS[1],
        expiry=TIMESTAMP + 1,
        delivery_time=TIMESTAMP + 2,
    ),
    "not-persistent": block.pack([b"", b"x"], lane=LANE, first=9, persistent=False, priority=0),
    "heads": block.pack([b"a", b"bc", b""], lane=LANE, first=1, timestamp=TIMESTAMP, kind=255, heads=HEADS),
    "all-columns": block.pack(
        _ALL_BODIES,
        lane=LANE,
        first=41,
        timestamp=TIMESTAMP,
        kind=BodyKind.MIXED,
        **_ALL_COLUMNS,
    ),
    "text": block.pack(
        [b"plain", "Zoë".encode()], lane=LANE, first=1, timestamp=TIMESTAMP, kind=BodyKind.TEXT
    ),
    "data": block.pack(_DATA, lane=LANE, first=1, timestamp=TIMESTAMP, kind=BodyKind.DATA),
    "large": block.pack_lone(
        encode_body(_LARGE)[1], lane=LANE, sequence=7, timestamp=TIMESTAMP, kind=BodyKind.LARGE
    ),
}
BLOCKS["fragment"] = _fragment()
BLOCKS["gathered"] = _gathered()

CONTENTS: dict[str, Contents] = {
    "plain": _contents(count=3, bodies=[b"one", b"two", b"three"]),
    "lone": _contents(count=1, flags=1, first=258, priority=7, bodies=[b"hello"]),
    "lone-with-head": _contents(
        count=1,
        flags=3,
        first=2,
        expiry=TIMESTAMP + 1,
        delivery_time=TIMESTAMP + 2,
        bodies=[b"body"],
        heads=[HEADS[1]],
    ),
    "not-persistent": _contents(
        count=2, first=9, persistent=False, priority=0, timestamp=0, bodies=[b"", b"x"]
    ),
    "heads": _contents(count=3, flags=2, kind=255, bodies=[b"a", b"bc", b""], heads=HEADS),
    "all-columns": _contents(
        count=3, flags=0b1111110, first=41, kind=255, bodies=_ALL_BODIES, **_ALL_COLUMNS
    ),
    "gathered": _contents(
        count=3,
        flags=0b1100100100,
        first=41,
        bodies=[b"first", b"third message", b"lone"],
        timestamps=[TIMESTAMP, TIMESTAMP, TIMESTAMP + 9],
        units=[5, 5, 0],
        sequences=[41, 43, 8],
        lanes=[LANE, LANE, OTHER_LANE],
    ),
    "text": _contents(count=2, kind=1, bodies=[b"plain", b"Zo\xc3\xab"]),
    "data": _contents(count=2, kind=2, bodies=_DATA),
    "large": _contents(count=1, flags=129, first=7, kind=3, bodies=[encode_body(_LARGE)[1]]),
    "fragment": _contents(
        count=2,
        flags=0b1111110,
        first=42,
        kind=255,
        bodies=_ALL_BODIES[1:],
        **{name: column[1:] for name, column in _ALL_COLUMNS.items()},
    ),
}

FROM_CLIENT: dict[str, frames.FromClient] = {
    "hello": frames.Hello(
        client="golden", mechanism="plain", user="ann", password="secret", heartbeat_seconds=2.5
    ),
    "hello-in-short": frames.Hello(),
    "hello-scram": frames.Hello(mechanism="scram-sha-256", initial=b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"),
    "response": frames.Response(data=b"c=biws,r=rOprNGfwEbeRWgbNEkqOx,p=AAAA"),
    "open-session": frames.OpenSession(request=1, number=0),
    "open-session-again": frames.OpenSession(request=2, number=1023, resume=SESSION, token=b"\x01" * 16),
    "open-session-kept": frames.OpenSession(request=2, number=0, keep=True),
    "close-session": frames.CloseSession(request=3, number=0),
    "find-path": frames.FindPath(request=4, number=0, destination="queue:orders", unit=2**63 + 1),
    "open-lane": frames.OpenLane(request=4, number=0, lane=3, destination="queue:orders"),
    "subscribe": frames.Subscribe(
        request=5, number=0, consumer=70_000, destination="topic:prices", credit=1000
    ),
    "subscribe-durable": frames.Subscribe(
        request=5,
        number=0,
        consumer=7,
        destination="topic:prices",
        credit=10,
        selector="size > 3",
        subscription="evening",
        durable=True,
        shared=True,
        no_local=True,
        prompt=False,
    ),
    "subscribe-claim": frames.Subscribe(
        request=5,
        number=0,
        consumer=8,
        destination="queue:orders",
        credit=1000,
        claim=Claim([(41, 44), (46, 46)], [(30, 40)], 42),
    ),
    "subscribe-browse": frames.Subscribe(
        request=5, number=0, consumer=8, destination="queue:orders", credit=10, browse=True
    ),
    "unsubscribe": frames.Unsubscribe(request=6, number=0, consumer=70_000),
    "unsubscribe-seen": frames.Unsubscribe(request=6, number=0, consumer=7, seen=41),
    "retire": frames.Retire(request=6, number=0, consumer=7, seen=41),
    "end-subscription": frames.EndSubscription(request=6, number=0, subscription="evening"),
    "return": frames.Return(number=0, consumer=7, ranges=[(3, 5)], error="no such customer"),
    "recover": frames.Recover(request=6, number=0, seen=[(7, 41)]),
    "commit": frames.Commit(request=6, number=0, transaction=9, messages=100, consumed=[(7, [(1, 41)])]),
    "rollback": frames.Rollback(request=6, number=0, transaction=9, seen=[(7, 41)]),
    "make-temporary": frames.MakeTemporary(request=6, number=0, kind="queue"),
    "delete-temporary": frames.DeleteTemporary(
        request=6, number=0, destination="queue:_temporary.1.2.18bcfe56800.1.1"
    ),
    "begin-upload": frames.BeginUpload(request=8, number=0, transfer=5, destination="queue:films"),
    "begin-upload-again": frames.BeginUpload(
        request=8, number=0, transfer=5, destination="queue:films", resume=_LARGE.file
    ),
    "end-upload": frames.EndUpload(
        request=9, number=0, transfer=5, size=_LARGE.size, checksum=_LARGE.checksum
    ),
    "drop-upload": frames.DropUpload(number=0, transfer=5),
    "begin-fetch": frames.BeginFetch(
        request=10,
        number=0,
        transfer=6,
        destination="queue:films",
        file=_LARGE.file,
        offset=4096,
        allowed=2_101_248,
    ),
    "end-fetch": frames.EndFetch(number=0, transfer=6),
    "publish-alert": frames.PublishAlert(
        request=11,
        number=0,
        destination="alerts:ops",
        lane=3,
        sequence=258,
        header=HEADER,
        body=b"disk full",
    ),
    "acknowledge-alert": frames.AcknowledgeAlert(
        request=12, number=0, destination="alerts:ops", lane=3, sequence=259, alert=ALERT, body=b"seen"
    ),
    "cancel-alert": frames.CancelAlert(request=13, number=0, destination="alerts:ops", alert=ALERT),
    "attach-alerts": frames.AttachAlerts(
        request=14,
        number=0,
        consumer=4,
        destination="alerts:ops",
        name="console",
        topics="TAG:^db;USER:ann",
        acknowledgements="TAG:.*",
        credit=8,
        held=[ALERT],
        taken=[ALERT],
    ),
    "change-alerts": frames.ChangeAlerts(request=15, number=0, consumer=4, topics="USER:ann", removes=True),
    "detach-alerts": frames.DetachAlerts(request=16, number=0, consumer=4, unsubscribe=False),
    "take-alerts": frames.TakeAlerts(request=17, number=0, consumer=4, taken=[ALERT], dropped=[ALERT]),
    "list-alerts": frames.ListAlerts(
        request=18, number=0, destination="alerts:ops", topics="TAG:db", after=ALERT
    ),
    "audit-alert": frames.AuditAlert(request=19, number=0, destination="alerts:ops", alert=ALERT),
    "ask": frames.Ask(request=7, subject="destinations", arguments={"like": "queue:*"}),
    "goodbye": frames.Goodbye(),
}

FROM_SERVER: dict[str, frames.FromServer] = {
    "welcome": frames.Welcome(version=1, server="heliograph 1.0", user="ann", heartbeat_seconds=2.5),
    "welcome-proof": frames.Welcome(
        version=1, server="heliograph 1.0", user="ann", heartbeat_seconds=2.5, proof=b"v=AAAA"
    ),
    "challenge": frames.Challenge(data=b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
    "welcome-addresses": frames.Welcome(
        version=1,
        server="heliograph 1.0",
        user="ann",
        heartbeat_seconds=2.5,
        addresses=["one.example:7700", "two.example:7700"],
    ),
    "session-opened": frames.SessionOpened(request=1, session=SESSION, token=b"\x01" * 16),
    "session-opened-again": frames.SessionOpened(
        request=2, session=SESSION, token=b"\x01" * 16, resumed=True, lanes=[(3, "queue:orders", 258)]
    ),
    "lane-opened": frames.LaneOpened(request=4, last=258),
    "distributed": frames.Distributed(
        request=4,
        members=["east", "west"],
        routing="hash",
        version=1,
        unit_from="property:customer",
        leaving=["south"],
    ),
    "completed": frames.Completed(request=5),
    "answer": frames.Answer(request=7, body={"destinations": []}),
    "failed": frames.Failed(request=5, code="not-allowed", sentence="you may not"),
    "refused": frames.Refused(number=0, lane=3, first=259, code="storage-full", sentence="the disk is full"),
    "consumer-closed": frames.ConsumerClosed(
        number=0, consumer=70_000, code="settlement-unknown", sentence="not outstanding"
    ),
    "blocked": frames.Blocked(number=0, destination="queue:orders", reason="messages"),
    "transfer-failed": frames.TransferFailed(
        number=0, transfer=5, code="storage-full", sentence="the disk is full"
    ),
    "browse-ended": frames.BrowseEnded(number=0, consumer=8),
    "recalled": frames.Recalled(number=0, consumer=8, tags=[(3, 4), (9, 9)]),
    "settled": frames.Settled(number=0, consumer=70_000),
    "alert": frames.Alert(
        number=0, consumer=4, alert=AlertView(ALERT, HEADER, "ann", TIMESTAMP, b"disk full", True)
    ),
    "alert-withdrawn": frames.AlertWithdrawn(number=0, consumer=4, alert=ALERT),
    "alert-receipt": frames.AlertReceipt(
        number=0, destination="alerts:ops", alert=ALERT, user="bob", name="console", at=TIMESTAMP
    ),
    "move": frames.Move(seconds=10.0),
    "goodbye-of-the-server": frames.Goodbye(code="server-stopping", sentence="the server is stopping"),
}


def _encoded(effect: commands.AnySessionEffect) -> bytes:
    parts: list[bytes | memoryview] = []
    encode(0x0102, effect, parts)
    return b"".join(parts)


_FRAGMENT = Span(block.parse(BLOCKS["all-columns"]), 1, 3, 2)
HOT_FRAMES: dict[str, bytes] = {
    "publish": frames.publish_frame(0x0102, BLOCKS["lone"]),
    "publish-again": frames.publish_frame(0x0102, BLOCKS["plain"], resent=True),
    "confirm": _encoded(commands.Confirm(3, 258)),
    "deliver": _encoded(commands.Deliver(70_000, 11, Span(block.parse(BLOCKS["plain"]), 0, 3), "ann")),
    "deliver-from": _encoded(
        commands.Deliver(70_000, 11, Span(block.parse(BLOCKS["plain"]), 0, 3), "ann", "topic:prices")
    ),
    "deliver-fragment": _encoded(commands.Deliver(70_000, 14, _FRAGMENT, "")),
    "credit": frames.credit_frame(0x0102, 70_000, 500),
    "settle": frames.settle_frame(
        0x0102,
        70_000,
        frames.DONE,
        [(1, 256), (300, 300)],
        frames.REPLENISH | frames.CONFIRM_SETTLEMENT,
    ),
    "settle-returned": frames.settle_frame(0x0102, 70_000, frames.RETURNED, [(257, 299)]),
    "heartbeat": frames.HEARTBEAT_FRAME,
    "chunk": frames.chunk_header(0x0102, 5, 262_144, 3) + b"abc",
    "advance": frames.advance_frame(0x0102, 5, 262_144, 131_072),
}

FRAMES: dict[str, bytes] = {
    **{name: frames.control_frame(message) for name, message in FROM_CLIENT.items()},
    **{name: frames.control_frame(message) for name, message in FROM_SERVER.items()},
    **HOT_FRAMES,
}

IDS: dict[str, bytes] = {"session": SESSION, "consumer": CONSUMER, "lane": LANE}


def dump(raw: bytes) -> str:
    """Bytes as a golden file has them."""
    return "".join(f"{raw[at : at + 16].hex(' ')}\n" for at in range(0, len(raw), 16))


def golden(folder: str, name: str) -> bytes:
    """The bytes of a golden file."""
    return bytes.fromhex((FOLDER / folder / f"{name}.hex").read_text(encoding="ascii"))


def names_in(folder: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / folder).glob("*.hex"))

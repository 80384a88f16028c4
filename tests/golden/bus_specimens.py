"""Every command of the bus, and frames that show every form. The files in tests/golden/bus pin their bytes."""

import msgspec

from heliograph.bus import bridge_words, commands, wire
from heliograph.bus.commands import Command
from heliograph.bus.frames import HEADER_BYTES, FrameWriter
from heliograph.bus.interface import (
    NO_VIEW,
    Change,
    Configuration,
    Incarnation,
    Origin,
    Place,
    Reason,
    Ring,
    Stamp,
)
from heliograph.bus.presence import MESSAGE_MANAGER, Beat, Company, Expelled, Hello, NodeState, Regrouped
from heliograph.model import block
from heliograph.model.alert import AlertView
from heliograph.model.block import Span
from heliograph.model.claim import Claim
from heliograph.model.destination import Address
from tests.golden.specimens import ALERT, BLOCKS, CONSUMER, HEADER, LANE, SESSION

ORDERS = Address("queue:orders")
PRICES = Address("topic:prices")
OPS = Address("alerts:ops")
FILE = bytes(range(16))
TOKEN = b"\x01" * 16
INCARNATION = Incarnation(bytes(range(0xA0, 0xB0)))
STAMP = Stamp((7).to_bytes(8, "little") + bytes(range(0xC0, 0xD0)))

# A block as somebody sees it who knows of it and does not have it.
_NAMED = block.parse_trusted(BLOCKS["all-columns"], keep=False)
_NAMED.number = 1000

_COMPANY = Company(Ring(1, 12), (Place(1, 700), Place(2, 701)), (INCARNATION, Incarnation(b"\xb0" * 16)))
_NODE = NodeState("mm-1", MESSAGE_MANAGER, 2, "B", 5, b"\xd0" * 16, b"\xd1" * 16, ((INCARNATION, 41),))

_ORIGIN = Origin(Place(2, 701), INCARNATION, 41, STAMP)
_OUTER = bridge_words.Outer(Place(2, 701), INCARNATION, 41, is_new=True)
_CONFIGURATION = Configuration(
    Ring(1, 12), (Place(1, 700), Place(2, 701)), (Change(Place(2, 701), Reason.ENTERED),)
)
_ACQUAINTANCE = bridge_words.Acquaintance(
    (bridge_words.Related("east", _OUTER, Place(1, 700)),),
    (Place(1, 700),),
    b"\xe3" * 8,
    b"\xe1" * 8,
    _CONFIGURATION,
)

COMMANDS: dict[str, Command] = {
    "destination-wanted": commands.DestinationWanted(1, ORDERS, True, LANE),
    "published": commands.Published(ORDERS, block.parse(BLOCKS["plain"])),
    "published-again": commands.Published(ORDERS, block.parse(BLOCKS["lone"]), True, True),
    "consumer-attached": commands.ConsumerAttached(
        2,
        PRICES,
        CONSUMER,
        SESSION,
        1000,
        False,
        "size > 3",
        "evening",
        "ann",
        True,
        True,
        True,
        False,
        False,
    ),
    "consumer-claimed": commands.ConsumerAttached(
        2, ORDERS, CONSUMER, SESSION, 1000, number=7, claim=Claim([(41, 44), (46, 46)], [(30, 40)], 42)
    ),
    "topics-wanted": commands.TopicsWanted(3, "prices.*"),
    "subscription-ended": commands.SubscriptionEnded(4, "ann", "evening"),
    "consumer-retired": commands.ConsumerRetired(ORDERS, CONSUMER, 5, 41),
    "credit-granted": commands.CreditGranted(ORDERS, CONSUMER, 500),
    "settled": commands.Settled(ORDERS, CONSUMER, False, [(1, 256), (300, 300)], True, 6, ""),
    "settled-returned": commands.Settled(ORDERS, CONSUMER, True, [(257, 299)], False, 0, "no such customer"),
    "consumer-detached": commands.ConsumerDetached(ORDERS, CONSUMER, 7, 41),
    "destination-deleted": commands.DestinationDeleted(ORDERS),
    "commit-asked": commands.CommitAsked(8, SESSION, 9, 100, [(ORDERS, CONSUMER, [(1, 41)])]),
    "rollback-asked": commands.RollbackAsked(9, SESSION, 9, [(ORDERS, CONSUMER, -1)]),
    "session-opened": commands.SessionOpened(10, SESSION, "ann", TOKEN, SESSION, "till-4"),
    "session-resumed": commands.SessionResumed(11, SESSION, "ann", TOKEN, SESSION, "till-4"),
    "session-lost": commands.SessionLost(SESSION),
    "session-lost-for-a-while": commands.SessionLost(SESSION, 5.0, SESSION),
    "session-closed": commands.SessionClosed(SESSION),
    "upload-begun": commands.UploadBegun(12, SESSION, 5, ORDERS, FILE, True),
    "chunk-sent": commands.ChunkSent(SESSION, 5, 262_144, b"abc"),
    "upload-ended": commands.UploadEnded(13, SESSION, 5, 10_737_418_240, 0xDEADBEEF),
    "upload-dropped": commands.UploadDropped(SESSION, 5),
    "fetch-begun": commands.FetchBegun(14, SESSION, 6, FILE, 4096, 2_101_248),
    "fetch-allowed": commands.FetchAllowed(SESSION, 6, 4_202_496),
    "fetch-ended": commands.FetchEnded(SESSION, 6),
    "asked": commands.Asked(15, "destinations", {"like": "queue:*"}),
    "confirmed": commands.Confirmed(LANE, 258),
    "refused": commands.Refused(LANE, 259, "storage-full", "the disk is full"),
    "parcelled": commands.Parcelled(CONSUMER, 13, [Span(_NAMED, 0, 1), Span(_NAMED, 2, 3, 1)], "ann"),
    "recalled": commands.Recalled(CONSUMER, [(14, 14), (17, 19)]),
    "dispatched": commands.Dispatched(CONSUMER, 11, Span(_NAMED, 1, 3, 2, 5), "ann"),
    "browse-ended": commands.BrowseEnded(CONSUMER),
    "upload-advanced": commands.UploadAdvanced(SESSION, 5, 262_144, 131_072),
    "chunk-read": commands.ChunkRead(SESSION, 6, 4096, b"xyz"),
    "transfer-failed": commands.TransferFailed(SESSION, 5, "storage-full", "the disk is full"),
    "destination-made": commands.DestinationMade(ORDERS),
    "destination-gone": commands.DestinationGone(ORDERS, [CONSUMER]),
    "flow-changed": commands.FlowChanged(ORDERS, "messages"),
    "answered": commands.Answered(15, {"destinations": []}),
    "rejected": commands.Rejected(2, "not-allowed", "you may not"),
    "stored": commands.Stored(1234),
    "synchronised": commands.Synchronised(1234),
    "branch-offered": commands.BranchOffered([bytes(range(16))]),
    "union-complete": commands.UnionComplete(1234),
    "body-wanted": commands.BodyWanted(CONSUMER, 42),
    "destination-sought": commands.DestinationSought(43, Address("queue:orders")),
    "placement-wanted": commands.PlacementWanted(
        44, Address("queue:orders"), "east", [("east", 3.5), ("west", 2.0)]
    ),
    "path-wanted": commands.PathWanted(45, ORDERS, 2**63 + 1, SESSION, ["east", "west"], ["south"]),
    "oldest-wanted": commands.OldestWanted(46, ORDERS, [SESSION]),
    "paths-checked": commands.PathsChecked(ORDERS, "west", [1, 2**63 + 1], 7, 258, 300, [SESSION]),
    "paths-unused": commands.PathsUnused(ORDERS, "west", [1, 2**63 + 1], [SESSION], 7),
    "prepare-asked": commands.PrepareAsked(
        15, SESSION, 9, 100, [(ORDERS, CONSUMER, [(1, 41)])], "east", ["east", "west"], "west"
    ),
    "outcome-asked": commands.OutcomeAsked(16, SESSION, 9, True),
    "final-asked": commands.FinalAsked(17, SESSION, 9, True, "east", "west"),
    "commit-state-asked": commands.CommitStateAsked(18, SESSION, 9),
    "document-offered": commands.DocumentOffered("users", 3, b"version = 3\n", "1.1"),
    "dispatch-seen": commands.DispatchSeen(1234),
    "view-recorded": commands.ViewRecorded(),
    "enrolled": commands.Enrolled(
        msgspec.msgpack.encode((3, (("1.3", b"store"), ("1.4", b"other")), ("1.1", "1.2"))), is_settled=True
    ),
    "enrolment-seen": commands.EnrolmentSeen(3),
    "document-told": commands.DocumentTold("users", 4, b"version = 4\n"),
    "nodes-asked": commands.NodesAsked(TOKEN, "node", {"after": 5}, ["1.1", "1.2"]),
    "node-answered": commands.NodeAnswered(TOKEN, "1.2", {"roles": ["message-manager"]}),
    "node-answered-no": commands.NodeAnswered(TOKEN, "1.1", {}, "not-leading", "node 1.1 does not lead"),
    "happened": commands.Happened([{"time": 1.5, "node": "1.2", "event": "replica-leads", "index": 7}]),
    "logged": commands.Logged(
        1235,
        0xCAFE,
        [(bytes(INCARNATION), 41)],
        [commands.Shipped(1, 2, 1000, b"name", True), commands.Shipped(3, 2, 0, bytes(16))],
        [commands.ConsumerAttached(2, ORDERS, CONSUMER, SESSION, 1000)],
        [commands.Standing(CONSUMER, 0, 999, 2)],
        [CONSUMER],
        commands.Introduction(
            [(SESSION, bytes(INCARNATION), b"")],
            [(CONSUMER, 1, 1000, 1000)],
            answered=[14],
            unconfirmed=[(LANE, 100)],
            resumed=[(ORDERS, LANE)],
        ),
        beside=[(ORDERS, LANE, 99, False)],
    ),
    "supplied": commands.Supplied(b"s\x01", block.parse(BLOCKS["plain"])),
    "leads": commands.Leads(1234),
    "alert-published": commands.AlertPublished(50, OPS, True, LANE, 7, HEADER, b"disk full", "ann", 2),
    "alert-acknowledged": commands.AlertAcknowledged(51, OPS, LANE, 8, ALERT, b"ACK", "bob", 3),
    "alert-cancelled": commands.AlertCancelled(52, OPS, ALERT, "ann", 2),
    "alerts-attached": commands.AlertsAttached(
        53, OPS, True, SESSION, 4, "bob", "console", 3, 32, [(0, "TAG", "^db")], [ALERT], [ALERT]
    ),
    "alert-topics-changed": commands.AlertTopicsChanged(
        54, OPS, SESSION, 4, [(0, "USER", "ann")], [(1, "TAG", "^db")]
    ),
    "alerts-detached": commands.AlertsDetached(55, OPS, SESSION, 4, True),
    "alerts-taken": commands.AlertsTaken(56, OPS, SESSION, 4, [ALERT], [ALERT]),
    "alerts-listed": commands.AlertsListed(57, OPS, 3, [(0, "TAG", "^db")], ALERT),
    "alert-audited": commands.AlertAudited(58, OPS, ALERT, 3),
    "alert-handed": commands.AlertHanded(
        AlertView(ALERT, HEADER, "ann", 1_700_000_000_123_456, b"disk full"), [(SESSION, 4, True)]
    ),
    "alert-withdrawn": commands.AlertWithdrawn(ALERT, [(SESSION, 4)]),
    "alert-receipted": commands.AlertReceipted(SESSION, OPS, ALERT, "bob", "console", 1_700_000_000_123_456),
    "alerts-closed": commands.AlertsClosed(SESSION, 4, "destination-deleted", "alerts:ops was deleted"),
    "outcome-wanted": commands.OutcomeWanted(SESSION, 9, "east", ["east", "west"]),
    "hello": Hello(
        _COMPANY, STAMP, 7, (INCARNATION,), b"\xd2" * 16, b"\xd3" * 16, b"\xd4" * 16, 41, (_NODE,)
    ),
    "hello-of-a-newcomer": Hello(_COMPANY, NO_VIEW, 0, (), bytes(16), bytes(16), bytes(16), 1, ()),
    "beat": Beat(b"\xd5" * 16, 40, 41, b"\xd3" * 16, b"\xd4" * 16, 1500),
    "expelled": Expelled(INCARNATION),
    "regrouped": Regrouped(),
    "introduced": bridge_words.Introduced(b"\xe0" * 8, is_central=True, is_new=True),
    "acquainted": bridge_words.Acquainted(INCARNATION, _ACQUAINTANCE),
    "relayed": bridge_words.Relayed(b"\xe0" * 8, _ORIGIN, [commands.SessionClosed(SESSION)]),
    "outers-stated": bridge_words.OutersStated(
        b"\xe0" * 8, "east", (_OUTER,), ((Incarnation(b"\xb1" * 16), Reason.DIED),)
    ),
    "present": bridge_words.Present(False, None, b"\xe1" * 8, True, INCARNATION),
    "present-central": bridge_words.Present(True, Place(1, 700), b"", False, INCARNATION),
    "lead": bridge_words.Lead(b"\xe0" * 8, b"\xe2" * 24, b"\xe3" * 8, b"\xe4" * 8, Place(1, 700)),
    "follows": bridge_words.Follows(b"\xe2" * 24),
    "echoed": bridge_words.Echoed(b"\xe3" * 8, _ORIGIN, False, [commands.SessionClosed(SESSION)]),
    "echoed-heard": bridge_words.Echoed(b"\xe3" * 8, _ORIGIN, True, []),
    "configuration-echoed": bridge_words.ConfigurationEchoed(
        b"\xe3" * 8, b"\xe5" * 8, b"\xe1" * 8, _CONFIGURATION, (INCARNATION,)
    ),
    "followed": bridge_words.Followed(b"\xe1" * 8),
}


def entry(command: Command) -> bytes:
    parts: list[wire.Bytes] = []
    wire.append(command, parts)
    return b"".join(parts)


def _frames() -> dict[str, bytes]:
    writer = FrameWriter(INCARNATION, piece_bytes=HEADER_BYTES + 67)
    writer.add(COMMANDS["confirmed"])
    writer.add(COMMANDS["session-closed"])
    pieces = writer.restamp(STAMP) + writer.add(COMMANDS["published"]) + writer.seal()
    names = ("frame", "frame-first-piece", "frame-middle-piece", "frame-last-piece")
    return {name: bytes(piece) for name, piece in zip(names, pieces, strict=True)}


ENTRIES: dict[str, bytes] = {name: entry(command) for name, command in COMMANDS.items()}
FRAMES: dict[str, bytes] = _frames()
BUS: dict[str, bytes] = {**ENTRIES, **FRAMES}

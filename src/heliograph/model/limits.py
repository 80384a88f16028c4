"""Every bound in one place, each with its reason. Full means push back, never drop and never grow without
end."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# A frame is read whole before it is acted upon; this is what one peer can make the server hold for it.
MAX_FRAME_BYTES = 8 * MIB
# Before a peer has proved who it is, it gets room for a greeting and nothing more (X2).
MAX_GREETING_BYTES = 4 * KIB
# What a peer may say until TLS has begun: a few certificates, each of one or two kilobytes, and some talk.
MAX_TLS_HANDSHAKE_BYTES = 64 * KIB
# How often it is looked whether the files of certificates have changed.
CERTIFICATES_SECONDS = 10.0
# Of so many addresses it is known how they behave; each takes some two hundred bytes.
MAX_ADDRESSES_KNOWN = 50_000
# From one address come at most half of all connections, so that nobody keeps everybody else out by accident.
MAX_CONNECTIONS_PER_ADDRESS = 10_000
# A machine that opens more in a second does nothing else.
MAX_CONNECTION_RATE = 2_000
# Peers that have not said who they are. When there are more, the one that has been silent longest has to go: a client
# that means it is through in milliseconds.
MAX_UNPROVED = 4_096
# In a minute, from one address. Each costs a core 50 ms.
MAX_FAILED_LOGINS = 100
# Of one connection: whoever tries without end shall not push everything else out of the log.
MAX_REFUSALS_NOTED = 100
# A smaller frame would not take the chunks of very large messages, and blocks.
MIN_FRAME_LIMIT_BYTES = 1 * MIB
# A control frame is small by nature; a larger one is a mistake or an attack.
MAX_CONTROL_BYTES = 64 * KIB
# The header and columns of a block fit beside the largest message in a frame.
MAX_MESSAGE_BYTES = MAX_FRAME_BYTES - 64 * KIB
# Properties and headers of one message.
MAX_HEAD_BYTES = 64 * KIB
# A delivery puts its own header and the sender's name before the block: what was taken in must also fit out.
MAX_BLOCK_BYTES = MAX_FRAME_BYTES - 4 * KIB
# Offsets in a block are 32 bits and blocks are handled whole; beyond this a larger block gains nothing.
MAX_BLOCK_MESSAGES = 8192
# Sequences of a lane stay within signed 64 bits wherever they are stored; nobody ever sends so many.
MAX_SEQUENCE = 2**63 - 1

# A client packs blocks up to this; larger ones stop paying and start to cost latency.
BLOCK_MESSAGES = 256
BLOCK_BYTES = 128 * KIB
# Unconfirmed messages and bytes a producer may have under way before `send` waits.
PRODUCER_WINDOW_MESSAGES = 20_000
PRODUCER_WINDOW_BYTES = 16 * MIB
# What the server takes from one connection before it stops reading: more than a client's window, so that only
# one that ignores its window is ever stopped.
SESSION_UNCONFIRMED_BYTES = 2 * PRODUCER_WINDOW_BYTES
# Messages a consumer lets the server send ahead.
CONSUMER_CREDIT = 10_000
MAX_CREDIT = 1_000_000
# Bytes handed to one consumer and not settled; its messages stay in memory meanwhile.
CONSUMER_WINDOW_BYTES = 4 * MIB
# Spans that one list hands out before the others get their turn: about half a millisecond.
DISPATCH_SPANS_PER_TURN = 64
# Bytes the server sends ahead on one connection before it waits for the socket to drain.
CONNECTION_OUTGOING_BYTES = 8 * MIB

MAX_NAME_BYTES = 255
# The longest address is a name with its kind; a longer pattern over addresses could match nothing.
MAX_ADDRESS_PATTERN_BYTES = MAX_NAME_BYTES + len("queue:")
# A longer glob matches no name but by its `*`; a regular expression has more to spell out.
MAX_GLOB_BYTES = MAX_NAME_BYTES
MAX_REGEX_BYTES = 1024
# What RE2 may use for one automaton; a pattern that wants more is refused when it is compiled.
MAX_AUTOMATON_BYTES = 1 * MIB
# Decisions on rights that are remembered. Clients choose addresses, so without a bound they could fill the
# memory.
MAX_ACCESS_DECISIONS = 65_536
# A decision that is not remembered looks at all rules: some tens of microseconds.
MAX_ACCESS_RULES = 1_000
# The longest selectors that people write have some hundred characters; each costs the server a compilation.
MAX_SELECTOR_BYTES = 8 * KIB
# Parentheses, signs and NOTs inside each other, and operators in one sum or product. Seven frames of the
# parser each stay far from Python's limit of a thousand.
MAX_SELECTOR_DEPTH = 64
# Identifiers and literals of a selector, those in IN lists included.
MAX_SELECTOR_TERMS = 512
# Properties that are found while decoding cost a comparison each; with more of them a whole map is cheaper.
MAX_PICKED_PROPERTIES = 16
# Selectors of one application differ in their constants and hardly in their shape, which is small and compiled
# once. What is larger is compiled each time: clients choose the shapes, so those kept must have a bound.
MAX_SHARED_SELECTOR_SOURCE = 4 * KIB

MAX_SESSIONS_PER_CONNECTION = 1024
MAX_LANES_PER_SESSION = 0xFFFF
MAX_CONSUMERS_PER_SESSION = 10_000
# A consumer's number is the client's choice and travels in 32 bits.
MAX_CONSUMER_NUMBER = 0xFFFFFFFF
MAX_CONNECTIONS = 20_000
MAX_TEMPORARIES_PER_CONNECTION = 1000
MAX_DESTINATIONS = 100_000
# Ranges of messages of one destination that were accepted in restricted views. Each view adds one at most, until the
# cluster is whole; a network that flaps for a day makes some hundreds.
MAX_STAMP_RANGES = 1000
MAX_ACK_RANGES = 4096
# Sessions whose client went away are remembered this long, so that a resend is recognised.
SESSION_MEMORY_SECONDS = 24 * 3600
MAX_REMEMBERED_SESSIONS = 100_000
# What the consumers of a client have waits for it: after a broken connection about as long as a client needs to come
# back, since one that was killed looks the same; longer where its client manager was lost, which takes time to see.
RECONNECT_LEASE_SECONDS = 5.0
SESSION_LEASE_SECONDS = 60.0
# What clients of a client manager have that may be in another part of a cut waits until the cluster is whole: longer
# than any cut.
DOUBT_SECONDS = 10 * 366 * 24 * 3600.0
# Clients that come back while parts of a cut meet wait for what those did to be in the log: otherwise the primary
# knows less of their sessions than they were told. Not for longer than this, which is less than clients wait for an
# answer; a branch of gigabytes takes longer. Nor more of them: beyond it they are answered as if all were in the log.
UNION_WAIT_SECONDS = 5.0
MAX_RETURNING = 10_000
# Members of a channel that are known to have ended; what matters is only who was in the last view.
MAX_ENDED_MEMBERS = 10_000
# A client that closes while there is no server waits this long for one to tell what became of its messages: enough
# for a broken connection, and less than their lease. Where servers answer and connections break, it goes on trying.
CLOSE_RECONNECT_SECONDS = 2.0
# Ranges of delivery tags in one claim. With 64-bit numbers as many as fit a control frame.
MAX_CLAIM_RANGES = 2048
# Parts of a cut cluster of whose delivery tags a client remembers what it settled last. A client that has been to
# more of them before they all met may be given something again, marked.
MAX_CLAIM_PARTS = 8
# What a consumer remembers of the messages that it is through with, in ranges of a lane; about 150 KB of a client's
# memory for one that takes from thousands of producers. What is forgotten may come again after a cut.
MAX_REMEMBERED_RANGES = 1024
# Nodes of each kind that belong to a sub-cluster: their names go with every hello.
MAX_ENROLLED = 200
# Addresses that a welcome lists; a client tries them in turn.
MAX_ADVERTISED = 100
# Sessions of clients that store and forward (U7): such a client may be away for a season. They are never forgotten to
# make room for others, so they may take half of it.
KEPT_SESSION_SECONDS = 366 * 24 * 3600
MAX_KEPT_SESSIONS = 50_000

# Requests of a client are paired with their replies by number; nobody has this many under way.
MAX_REQUESTS_UNDER_WAY = 10_000
# Checking a password costs 16 MB and 50 ms on purpose; more at once would let strangers use up the machine.
PASSWORD_THREADS = 2
MAX_WAITING_PASSWORDS = 200

# A peer has this long to greet; a half-open connection must not cost anything for ever.
HANDSHAKE_SECONDS = 10.0
HEARTBEAT_SECONDS = 10.0
# Silence of this many heartbeats means that the peer is gone.
HEARTBEATS_MISSED = 3

# Bodies of waiting messages kept in memory over all destinations; what is beyond is read again from the
# journal.
RESIDENT_BYTES = 64 * MIB
# Messages of one list that stay in memory at its head.
PAGE_MESSAGES = 4096
PAGE_BYTES = 1 * MIB

SEGMENT_BYTES = 64 * MIB
SNAPSHOT_EVERY_BYTES = 256 * MIB
SNAPSHOT_EVERY_RECORDS = 500_000
# A segment of which less than this share is still needed is rewritten.
COMPACT_BELOW = 0.25
# Up to this size and while the disk is quick, a sync is done in the loop: it is faster than waking a thread.
INLINE_SYNC_BYTES = 64 * KIB
INLINE_SYNC_SECONDS = 300e-6

# Where nobody said otherwise, a destination tells its producers to wait when this much is there: disk, not
# memory.
DESTINATION_HIGH_WATER_MESSAGES = 100_000_000
DESTINATION_HIGH_WATER_BYTES = 256 * 1024 * MIB
# Where priorities are used, a consumer is sent only this many messages ahead, so that an urgent one is not
# queued behind what was prefetched.
PRIORITY_PREFETCH = 32
# Where units of order are used, a consumer is sent only this many ahead: what it has keeps its units from the
# others.
UNIT_PREFETCH = 256
# How long a server stays awake for the next message of a client that answers each confirmation with one: a few
# times what the client needs for it.
VIGIL_SECONDS = 100e-6
# How long a client stays awake for the confirmation of a message that it waits for: a sync of a quick disk.
WAKEFUL_SECONDS = 320e-6
# Messages of a list that are held back for their units and stay in memory; beyond, only their places do.
UNIT_HELD_MESSAGES = 16_384
# Messages of one unit that are let go at a time: one that nobody shares goes in strides, not step by step.
UNIT_STRIDE = 256
MAX_UNIT_NAME_BYTES = 255
# Names whose numbers a process remembers: making one costs more than sending a message.
UNIT_NAMES_REMEMBERED = 65_536
# Units of order whose member a path service remembers: some 500 bytes each, in memory and in snapshots.
MAX_PATHS = 1_000_000
# Of those that nobody uses, so many are looked at in one round of housekeeping: a frame on the bus, a moment's work.
PATHS_CHECKED_AT_ONCE = 1_000
# A queue with more messages in memory than this is not searched for its oldest: what has a path there keeps it.
MESSAGES_SEARCHED_FOR_OLDEST = 10_000
# Units that one answer to an administrator lists.
MAX_UNITS_LISTED = 1000
# Topics that one wildcard subscription is attached to; a pattern that means more is too wide.
MAX_WILDCARD_TOPICS = 10_000
# Messages that an administrator has moved or deleted before the others get their turn: a few milliseconds.
MOVE_PORTION_MESSAGES = 256
# Sets of consumers that what waits is sorted by, where consumers have selectors.
MAX_BUCKETS = 1024
# Messages of one list that a turn looks at, to find what suits a consumer with a selector.
SORT_MESSAGES_PER_TURN = 4096
# What a session may stage in one transaction; it is in memory until it is decided.
MAX_TRANSACTION_BYTES = 64 * MIB
# A transaction over several sub-clusters takes two round trips and two forced writes. A participant that was told
# nothing for so long asks what became of it, and again after so long.
IN_DOUBT_SECONDS = 5.0
ASK_AGAIN_SECONDS = 3.0
# So long a decider waits for its client manager, as long as that has the session: other participants may be away.
TRANSACTION_PATIENCE_SECONDS = 60.0
# What is prepared is locked, and stages are in memory: a server in doubt about so many takes no more.
MAX_PREPARED_TRANSACTIONS = 1_000
# Transactions over several sub-clusters that a client manager has under way. One for each session that waits, and
# those whose last participant has not answered yet: it asks by itself if they are dropped.
MAX_COORDINATED_TRANSACTIONS = 10_000
# In doubt about many, it asks for these first: the bus has other things to carry.
OUTCOMES_WANTED_AT_ONCE = 100
# Events that wait to be written; more means that the disk does not keep up, and nobody waits for it.
EVENTS_WAITING = 10_000
# The last events, for an administrator who asks what happened just now.
EVENTS_REMEMBERED = 1000
# As many of them as fit one control frame, whatever is in their fields.
EVENTS_PER_ANSWER = 50
# A name or sentence in an event.
EVENT_FIELD_LENGTH = 200
# The event log takes five files of this size and no more.
EVENT_FILE_BYTES = 16 * MIB
EVENT_FILES = 5
# Events of a node that wait to be told to the others: while nobody leads, some minutes of an ordinary node's.
RELAYED_EVENTS_WAITING = 1000
# A node tells the others this many events, this often: nobody fills the bus with what happens to it.
RELAYED_AT_ONCE = 20
RELAY_SECONDS = 0.1
# How long a node that is there has to answer an administrator: longer than a node that stumbled is suffered.
SURVEY_SECONDS = 5.0
# Questions to nodes that are open at a time; each is a timer and a few answers.
MAX_SURVEYS = 100
# A document that every node has a copy of, as the users are: a thousand users and more, in one frame of the bus.
MAX_DOCUMENT_BYTES = 256 * KIB
# And how many there are: one for each thing that nodes share, of which there are few.
MAX_DOCUMENTS = 16
# Nodes that one question can name: more than a cluster has.
MAX_NODES_ASKED = 1000
# What the answers of all nodes come to, so that with a few words around them they fit a control frame.
SURVEY_BYTES = MAX_CONTROL_BYTES - 4 * KIB
# A consumer's word on why it returns a message.
MAX_ERROR_LENGTH = 1024

# ---- very large messages (M6)

# A stream up to this size is sent as an ordinary message; beyond, it travels in chunks.
LARGE_THRESHOLD_BYTES = 1 * MIB
# A chunk holds up the other frames of its connection for a fraction of a millisecond.
CHUNK_BYTES = 256 * KIB
MAX_CHUNK_BYTES = 1 * MIB
# Bytes of an upload that are sent and not written yet, and of a download that are sent ahead of the reader: enough
# to keep both ends busy, and what a message of another producer may have to wait behind.
TRANSFER_WINDOW_BYTES = 2 * MIB
# An upload is forced to disk in steps: with much unwritten data, a sync of the journal beside it takes long. A client
# keeps what is not forced yet, so that a stream that cannot be read twice survives even the loss of the machine.
LARGE_SYNC_BYTES = 4 * MIB
# Sizes and offsets stay within signed 64 bits wherever they are stored.
MAX_LARGE_BYTES = 2**63 - 1
# Uploads and downloads under way: of one session, and of a node. Each may hold its window in memory.
MAX_TRANSFERS_PER_SESSION = 64
# A transfer's number is the client's choice and travels in 32 bits.
MAX_TRANSFER_NUMBER = 0xFFFFFFFF
MAX_UPLOADS = 256
MAX_FETCHES = 1024
# An upload whose client went away can be taken up again for so long.
UPLOAD_MEMORY_SECONDS = 600.0
# Large files leave this much of the disk to the journal, so that a full disk refuses uploads and nothing else.
LARGE_RESERVE_BYTES = 256 * MIB
# A large file is given back in steps of this size: freeing many gigabytes at once would hold up the journal.
LARGE_REMOVE_BYTES = 16 * MIB

# ---- store and forward (U7)

# What a client's store takes on its disk unless it is told otherwise: hours of an ordinary producer.
STORE_BYTES = 1024 * MIB
# A segment of a store is deleted as a whole: small enough that room comes back soon.
STORE_SEGMENT_BYTES = 16 * MIB
# When nothing waits, a segment of this size is left for a fresh one, so that an idle store is small.
STORE_IDLE_BYTES = 1 * MIB
# A segment of which less than this share is still needed is written again, once the store is half full.
STORE_COMPACT_BELOW = 0.25
# All lanes of a store are in one record at the start of each segment.
MAX_FORWARD_DESTINATIONS = 1000
# Bytes that leave a store and are not confirmed, over all its destinations: what fills a line, and well below what
# the server takes from one connection.
FORWARD_WINDOW_BYTES = 8 * MIB
# What is read back from a store at a time.
FORWARD_READ_BYTES = 1 * MIB
# Confirmations are noted in the store at the latest after this; what is not noted is asked again of the server.
FORWARD_MARK_SECONDS = 0.1
# How long closing a connection waits for the server to take what is stored; the rest is for the next time.
FORWARD_CLOSE_SECONDS = 10.0
# A destination that refused is tried again after the first, then twice as long each time up to the second.
FORWARD_RETRY_SECONDS = (1.0, 30.0)

# ---- alerts (A1)

# An alert says that something is the case; what is larger is a message. Header and body fit a control frame.
MAX_ALERT_BODY_BYTES = 32 * KIB
MAX_ALERT_DESTINATION_BYTES = 4 * KIB
# A century, as for all times that people set.
MAX_ALERT_SECONDS = 100 * 365 * 86400
# Topics that one request names, and that one subscriber has: each may be an automaton.
MAX_TOPICS_PER_REQUEST = 256
MAX_TOPICS_PER_SUBSCRIBER = 1024
# Live alerts of a channel are in memory, and in each snapshot.
MAX_LIVE_ALERTS = 1_000_000
MAX_LIVE_ALERT_BYTES = 256 * MIB
# Those among them that only a cancel ends, unless a policy says otherwise (A5).
ENDLESS_ALERTS = 10_000
# Subscribers of a channel, those that are away and those of whom only marks are left included.
MAX_ALERT_SUBSCRIBERS = 100_000
# Alerts that a subscriber is handed ahead of what its application took: what is urgent waits behind no more.
ALERT_CREDIT = 32
MAX_ALERT_CREDIT = 1024
# Alerts whose destinations stand in one text, so that a sweep passes over all of them with one search.
SWEEP_CHUNK_ALERTS = 256
# Chunks that a sweep passes before others get their turn: about a millisecond.
SWEEP_CHUNKS_PER_TURN = 64
# Patterns in one set of RE2. Larger sets are quicker as long as their automaton fits, which has so much room.
MAX_PATTERNS_PER_SET = 1024
MAX_SET_BYTES = 64 * MIB
# Ended alerts whose trail a channel remembers (A7), and entries of one trail that an answer has.
ENDED_ALERTS_REMEMBERED = 10_000
TRAIL_ENTRIES = 500
# Alerts that a consumer remembers having received: a server that was killed may not know of those that it could lose.
ALERTS_REMEMBERED = 1_000
# Alerts in one answer to who lists them: with their headers, and the beginnings of what they say, they fit a frame.
ALERTS_PER_PAGE = 50
# Of what an alert says, so much stands in a list: enough for a line, and a page of them still fits.
ALERT_BEGINNING_BYTES = 240
# Recipients that one decision names: it fits a frame of the bus with the alert.
ALERT_RECIPIENTS = 4096
# A client hands nothing over that has not heard from its server for so many heartbeats, and one more until it looks.
DEAF_HEARTBEATS = HEARTBEATS_MISSED + 2
# ---- the bus (M2)

# Larger messages gain nothing on a ring and hold up everybody else's (docs/decisions/0007).
BUS_FRAME_BYTES = 256 * KIB
# The largest command is a block with what is said about it.
MAX_BUS_PAYLOAD_BYTES = MAX_FRAME_BYTES + 64 * KIB
# Commands within commands: decisions in a log that another bus relays are two deep, and nobody says more.
MAX_BUS_NESTING = 8
# What waits for the bus before members are asked to wait, and when they may go on: a tenth of a second of a ring.
BUS_HIGH_WATER_BYTES = 8 * MIB
BUS_LOW_WATER_BYTES = 2 * MIB
# Here nothing more is taken. Until then there is room for all that a member has to say that was asked to wait.
BUS_QUEUE_BYTES = 64 * MIB
# Commands that wait in the in-memory bus while another is being delivered: each delivery causes a few at most.
LOCAL_BUS_COMMANDS = 100_000
# And when their senders are asked to wait, and may go on.
LOCAL_BUS_HIGH_WATER = 10_000
LOCAL_BUS_LOW_WATER = 1_000
# Deliveries and sends in one go, before the rest of the loop gets its turn.
BUS_DELIVERIES_PER_TURN = 64
BUS_SENDS_PER_TURN = 32
# How soon a bus that was full is tried again, if no delivery shows earlier that it moves.
BUS_RETRY_SECONDS = 0.002
# A group's name, as libcpg takes it.
MAX_CHANNEL_BYTES = 127

# ---- views (P1)

# A member that says nothing for so long is taken for dead, though the bus still lists it: longer than a slow sync or
# a busy second, shorter than a client's patience.
SILENCE_SECONDS = 2.0
# How often a member shows that it is alive; several must go missing before it counts as silent.
BEAT_SECONDS = 0.25
# How often an answer to a configuration is repeated while others are awaited.
HELLO_SECONDS = SILENCE_SECONDS / 4
# How long a place is given to say who is there, before the others go on without it.
GATHER_SECONDS = SILENCE_SECONDS / 2
# A member that was not run for so long knows nothing about the silence of others.
DEAF_SECONDS = SILENCE_SECONDS / 2
# How often the engine of the views is told the time: a beat is late by half its interval at most.
VIEW_TICK_SECONDS = BEAT_SECONDS / 2
# How soon a member whose incarnation ended comes again, and how long it waits at most if incarnations are short: each
# return makes everybody begin a new view.
RETURN_SECONDS = (0.01, 1.0)
# How long a process that ends waits until the bus has let it go; the others notice in any case.
LEAVING_SECONDS = 3.0
# How long the clients of a node that is stopped have to go elsewhere by themselves, with nothing under way.
DRAIN_SECONDS = 5.0
# How long a client manager lets its clients wait for somebody who leads, before it sends them elsewhere.
NOBODY_LEADS_SECONDS = 3.0

# ---- the cluster

# What a client manager keeps of blocks it heard published, so that a dispatch need not bring them. Of this much the
# primary knows that everybody has half.
BODY_CACHE_BYTES = 64 * MIB
# How much later those client managers say what they have seen whose word is not waited for. Long enough to cover many
# dispatches, short enough that a message is not late by much if one whose word is waited for is stuck.
LATE_WORD_SECONDS = 0.05
# Views that a log remembers having come through: whoever was away for longer catches up from nothing.
REMEMBERED_VIEWS = 1_000
# Records after which a cluster that stays whole says so again: what is remembered for the case that it falls apart (a
# few dozen bytes for each lane that was used, docs/decisions/0018) is as much as two times so many records touched.
WHOLE_EVERY_RECORDS = 100_000
# Requests that a primary remembers having carried out. One that comes twice does so within a moment of a take-over.
REMEMBERED_REQUESTS = 10_000
# A primary whose disk has not answered for so long lets a backup lead: as long as silence is suffered.
STUCK_SECONDS = SILENCE_SECONDS
# So long a message manager that has not the log of a primary is in views that nobody leads, before it leads without
# those who may know more, restricted: hosts that come back from a power cut do so within a few seconds of each other,
# and a part that led alone has to be merged.
RESTRICTED_START_SECONDS = 10.0

# ---- clustered consumers

# How long a member may act after it last heard itself on the control topic. A dead member's values rest for about
# this long; a pause of a process or a broker's hiccup that is shorter costs nothing.
CLUSTERED_LEASE_SECONDS = 5.0
# How far the rates of members' clocks may be off. Quartz is a hundred times better; virtual machines are not.
CLUSTERED_DRIFT = 0.01
# How much later one member may be handed a control word than another, both reading at once.
CLUSTERED_SKEW_SECONDS = 0.5
# Messages that a member keeps, its own and those it waits for others to finish: then it takes no more.
CLUSTERED_HELD_MESSAGES = 20_000
CLUSTERED_HELD_BYTES = 64 * MIB
# How often one copy may be delivered again before it is done, so that each delivery is acknowledged: once with every
# connection that was lost meanwhile. Of more the oldest are forgotten, which are of connections that are no more.
CLUSTERED_DELIVERIES_OF_ONE = 16
# Ids of finished messages that a member remembers, because a copy may come after the word that it is done: as many as
# a few members can be ahead of the slowest, who holds them up by what they may keep.
CLUSTERED_REMEMBERED_IDS = 400_000
# Finished messages in one word: an id has a few dozen bytes, and a control frame 64 KiB.
CLUSTERED_DONE_IDS = 256
# A shared result, and how many of them are in one word: together no more than middleware takes without being asked.
CLUSTERED_RESULT_BYTES = 16 * KIB
CLUSTERED_RESULTS = 16
# A copy that another member sends goes in one control word up to so many bytes, and in pieces of so many beyond: all
# middleware takes that, as it was installed.
CLUSTERED_PIECE_BYTES = 128 * KIB
# How much of copies a member says before it has heard it itself: a beat stands behind no more than that, and at 250
# kilobytes a second that still takes less than half of a lease.
CLUSTERED_COPIES_AHEAD_BYTES = 4 * CLUSTERED_PIECE_BYTES
# How long finished messages gather before the others are told.
CLUSTERED_DONE_SECONDS = 0.02
# A copy that its owner has not spoken of for so long is asked about; then after twice as long, and so on.
CLUSTERED_ASK_SECONDS = 5.0
# So many are asked about at a time, in words as long as those that tell what is done.
CLUSTERED_ASK_MESSAGES = 2_048
# To look for them means to look at everything that is held, so it is not done with every tick.
CLUSTERED_ASK_PAUSE_SECONDS = 2.0
# How often a member lets go of words that its middleware keeps for it: their copies are acknowledged long before.
CLUSTERED_LET_GO_SECONDS = 10.0
# Names of members that are gone and whose old copies are worth nothing.
CLUSTERED_DEPARTED_NAMES = 1_000
# How long a member is gone before its copies are thrown away at the middleware: nobody hurries, and it may be back.
CLUSTERED_DISCARD_SECONDS = 60.0
# Messages processed at the same time by one member; those of one value always one after the other.
CLUSTERED_LANES = 8
# Messages in one transaction of the transacted mode, and how long its handlers may take together before no more are
# begun: a commit costs a sync of the disk, and who drains waits for one.
CLUSTERED_TRANSACTION_MESSAGES = 250
CLUSTERED_TRANSACTION_SECONDS = 0.25
# How soon a member that lost its lease comes again, and how long it waits at most if that happens again and again.
CLUSTERED_RETURN_SECONDS = (0.1, 5.0)
# How long a member that leaves waits for its handlers and for the others.
CLUSTERED_LEAVING_SECONDS = 30.0
# Longer ids are no ids, and each is remembered by everybody.
CLUSTERED_ID_BYTES = 256

# ---- other protocols (X1)

# What a connection may have waiting here for a destination that is not ready, or asked to wait, before it is not read
# from: a few reads of a socket.
FOREIGN_HELD_BYTES = 1 * MIB
# Bytes that wait for the socket of such a client before it is waited for. What it does not acknowledge counts as
# received when less waits, so this much can be lost with a connection.
FOREIGN_OUTGOING_BYTES = 256 * KIB
# Messages that are sent ahead to a client that says nothing about it. Those it has to acknowledge are not for others
# meanwhile, so they are fewer.
FOREIGN_CREDIT = 1000
FOREIGN_UNACKNOWLEDGED = 256
# Alerts that such a client has sent and that are not stored yet, before it is not read from.
FOREIGN_ALERTS_UNDER_WAY = 1_000
# Alerts of such a connection whose receipts are sent on; of more, those published first are in the audit only.
ALERT_RECEIPTS_AWAITED = 1_000
# The headers of a STOMP frame become properties of a message, for which there is so much room; nobody writes so many.
MAX_STOMP_HEAD_BYTES = MAX_HEAD_BYTES
MAX_STOMP_HEADERS = 256
# Transactions that a client of STOMP or AMQP has open at a time; what is in them is in memory until they end.
MAX_HELD_TRANSACTIONS = 64
# How often a STOMP client is promised to hear something: connections are looked at every second.
STOMP_PULSE_SECONDS = 2.0
# What a client may say while it is found out who it is: one read of a socket.
MAX_EARLY_BYTES = 256 * KIB
# Frames of a STOMP client that came along with its CONNECT: a few subscriptions. They are in memory, read already,
# and take more room there than on their way.
MAX_EARLY_FRAMES = 16
# What clients left for the next time (MQTT): some hundred bytes each. The oldest ends when there are more.
MAX_KEEPSAKES = 20_000
# An MQTT packet has a message and what is said about it.
MAX_MQTT_PACKET_BYTES = MAX_MESSAGE_BYTES
# Topics that an MQTT connection may have short names for, each way.
MQTT_TOPIC_ALIASES = 64
# Filters in one SUBSCRIBE; a packet of more is a mistake.
MAX_MQTT_FILTERS = 1000
# Messages that one subscription gets first because they were retained; a filter that means more is too wide.
MAX_RETAINED = 10_000
# How long it is remembered that a retained message was deleted: longer than it takes until the message is gone.
RETAINED_GRAVE_SECONDS = 60
# A will waits at most so long for its client to come back.
MAX_WILL_DELAY_SECONDS = 24 * 3600.0
# Destinations of other protocols whose addresses are remembered: clients choose them.
ADDRESSES_REMEMBERED = 4096
# How long it is waited, after a connection was lost, to learn whether what its client sent is stored: some turns of a
# slow disk.
UNFINISHED_SECONDS = 5.0
# Topics of one MQTT connection whose addresses are remembered.
TOPICS_REMEMBERED = 1024
# Lists and maps of an AMQP message inside each other; each level is a frame of Python's stack or two.
MAX_AMQP_DEPTH = 32
# Values in the body of an AMQP message whose exact types are noted where they are unusual; of more, only the values
# are kept.
MAX_AMQP_NOTES = 8 * KIB
# An AMQP frame, of which a large message is many: small enough that others get their turn in between.
AMQP_FRAME_BYTES = 64 * KIB
# What a client may send ahead on an AMQP session: each frame is taken at once, so this many frames are a window and
# no buffer.
AMQP_WINDOW_BYTES = 2048 * AMQP_FRAME_BYTES
# Sessions of an AMQP connection, and links over all of them: some KiB of Proton's memory each.
MAX_AMQP_CHANNEL = 255
MAX_AMQP_LINKS = 2000
# Messages that a client may send ahead on an AMQP link, and how few it may have left before it is allowed more.
AMQP_CREDIT = 1000
AMQP_LOW_CREDIT = 500
# A link of an AMQP client is given so many messages ahead, however many it allows.
AMQP_GRANTED = 2000
# Messages of an AMQP connection that have not come completely, over all its links.
AMQP_UNFINISHED_BYTES = 4 * MAX_MESSAGE_BYTES
# The content of a message in one section, whose size AMQP writes in 32 bits.
MAX_AMQP_CONTENT_BYTES = 2**32 - 1
# How long an AMQP client may be silent, and the shortest time in which it may want to hear something: connections are
# looked at every second.
AMQP_IDLE_SECONDS = 60.0
AMQP_MIN_IDLE_SECONDS = 2.0

# ---- data pipelines (docs/decisions/0024)

# Who reads the history of a journal keeps it on the disk. A person can look through so many.
MAX_HOLDS = 64
# A hold, unless renewed: a pipeline that stands over a long weekend finds its place again.
HOLD_SECONDS = 4 * 24 * 3600.0
MAX_HOLD_SECONDS = 366 * 24 * 3600.0
# Writers and readers of queues whose last batch is remembered, each for as long as its checkpoint may be used again.
MAX_PIPELINE_MARKS = 10_000
PIPELINE_MARK_SECONDS = 366 * 24 * 3600.0
MAX_PIPELINE_NAME_BYTES = 200
# What a reader of the feed, or of a lease, is sent at a time: it fits a frame, and nobody else waits long behind it.
FEED_PORTION_BYTES = 2 * MIB
MAX_FEED_PORTION_BYTES = 6 * MIB
# How far the feed looks for one answer where little of the journal is for the reader.
FEED_LOOK_BYTES = 64 * MIB
# Places in the journal that the feed remembers, so that readers go on where they were without looking for it.
FEED_CURSORS = 64
# What one lease of a queue takes, within the bytes of a transaction: it is in memory until it is done or returned.
MAX_LEASE_MESSAGES = 1_000_000
# A lease, and rows that were staged, wait so long for a pipeline that is not heard of. Longer than a driver's
# restart.
LEASE_SECONDS = 3600.0
MAX_LEASE_SECONDS = 7 * 24 * 3600.0
# Tasks of one batch of a writer.
MAX_BATCH_PARTS = 1_000
# Alerts that a pipeline raises with one question, which is a control frame with all of them in it.
MAX_RAISED_ALERTS = 256

# ---- several buses (M3)

# Commands of a member that have no place in the order yet: when it is asked to wait, when it may go on, and where
# nothing more is taken. What it said crosses two buses before it is heard; this is more than both hold.
BRIDGE_HIGH_WATER = 2_500
BRIDGE_LOW_WATER = 500
BRIDGE_COMMANDS = 10_000
# Frames and words that wait in a member for word about others: on the way from one relay to the next, milliseconds of
# a busy bus.
BRIDGE_WAITING_UNITS = 200_000
# Configurations that newcomers can still ask about: each asks about the one that it came with.
BRIDGE_REMEMBERED_CONFIGURATIONS = 16
# Events of the order that were not echoed on another bus yet: past the first mark message managers wait; past the
# second the members there come again.
BRIDGE_BACKLOG_HIGH_WATER = 20_000
BRIDGE_BACKLOG_EVENTS = 200_000
# How long a central member waits for others that do not answer, before it goes on without them: well below the
# silence after which members are expelled, far above a turn of a busy process. In ticks of so many seconds.
BRIDGE_TICK_SECONDS = 0.1
BRIDGE_PATIENCE_TICKS = 8

# ---- HTTP: the API, the console, metrics (X3)

# A request line with its headers: browsers send one or two kilobytes, cookies of other servers of the host included.
MAX_HTTP_HEAD_BYTES = 16 * KIB
# What a request may carry: messages that are sent by API are put together in memory. Larger ones have other ways.
MAX_HTTP_BODY_BYTES = 1 * MIB
# A body that is larger than this is taken in when it is known who sends it.
HTTP_UNPROVED_BYTES = 64 * KIB
# A client that asks again before it has its answer is not read from past this.
HTTP_AHEAD_BYTES = 64 * KIB
# One read can bring thousands of requests for a page that is larger than they are: when so much was answered, the
# next waits until the network has that.
HTTP_ANSWERED_BYTES = 1 * MIB
# Who began a request finishes it by then; who has asked for nothing for so long is let go.
HTTP_REQUEST_SECONDS = 20.0
HTTP_IDLE_SECONDS = 75.0
# How long an answer is waited for: longer than a cluster takes to find a new primary.
HTTP_ANSWER_SECONDS = 15.0
# Streams of events of one server: each asks once a second.
MAX_HTTP_STREAMS = 100
HTTP_STREAM_SECONDS = 1.0
# Log-ins that are remembered, and for how long from the last use, and at most.
MAX_LOG_INS = 10_000
LOG_IN_IDLE_SECONDS = 2 * 3600.0
LOG_IN_SECONDS = 12 * 3600.0
# A password that was right is not worked out again for so long: who asks by API sends it with every request.
PASSWORD_REMEMBERED_SECONDS = 60.0
# Messages that are looked at in one request: how many, how far from the first, and what of them is in memory.
MAX_LOOKED_AT = 200
MAX_LOOKED_PAST = 10_000
LOOK_CREDIT = 20
MAX_LOOK_BYTES = 4 * MIB
# What is shown of a body in a list.
PREVIEW_BYTES = 512
# Dead messages that are sent again in one request: they travel in one transaction.
MAX_REDRIVEN = 500
# Destinations of one page of the API, and how many a scrape of all of them asks for at a time.
FOUND_ENTRIES = 100
# Destinations that are counted in one turn of the loop, about a millisecond; and how long a count is good for.
TALLY_PORTION = 400
TALLY_SECONDS = 0.5

"""Every bound in one place, each with its reason. Full means push back, never drop and never grow without
end."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# A frame is read whole before it is acted upon; this is what one peer can make the server hold for it.
MAX_FRAME_BYTES = 8 * MIB
# Before a peer has proved who it is, it gets room for a greeting and nothing more (X2).
MAX_GREETING_BYTES = 4 * KIB
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
MAX_SESSIONS_PER_CONNECTION = 1024
MAX_LANES_PER_SESSION = 0xFFFF
MAX_CONSUMERS_PER_SESSION = 10_000
# A consumer's number is the client's choice and travels in 32 bits.
MAX_CONSUMER_NUMBER = 0xFFFFFFFF
MAX_CONNECTIONS = 20_000
MAX_TEMPORARIES_PER_CONNECTION = 1000
MAX_DESTINATIONS = 100_000
MAX_ACK_RANGES = 4096
# Sessions whose client went away are remembered this long, so that a resend is recognised.
SESSION_MEMORY_SECONDS = 24 * 3600
MAX_REMEMBERED_SESSIONS = 100_000

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
# Sets of consumers that what waits is sorted by, where consumers have selectors.
MAX_BUCKETS = 1024
# Messages of one list that a turn looks at, to find what suits a consumer with a selector.
SORT_MESSAGES_PER_TURN = 4096
# What a session may stage in one transaction; it is in memory until it is decided.
MAX_TRANSACTION_BYTES = 64 * MIB
# A consumer's word on why it returns a message.
MAX_ERROR_LENGTH = 1024

"""What `helio bench` can measure.

- queue: one message per `send`, pipelined; a consumer in another process receives them all at the same time.
- paced: the same, but the producer yields to its event loop after every message.
- sync: every send is confirmed before the next begins; nobody consumes.
- fanout: every message to several subscribers, each in its own process; figures count deliveries.
- latency: messages at a steady rate; what is timed is from the send call to the consumer's hands.
"""

from __future__ import annotations

import enum


class Workload(enum.StrEnum):
    """What to measure."""

    QUEUE = "queue"
    PACED = "paced"
    SYNC = "sync"
    FANOUT = "fanout"
    LATENCY = "latency"


class Role(enum.StrEnum):
    """What a client process does."""

    PRODUCE = "produce"
    CONSUME = "consume"

"""What is measured: the workloads, the plan that a client process is handed, and the figures that come back.

Every workload sends one message per call of the client's send function. What differs is when the producer
waits and who listens:

- queue: persistent messages to one queue, confirmations awaited in a window; one consumer acknowledges.
- paced: the same, but the producer yields to its event loop after every message (Heliograph only).
- sync: a persistent send whose confirmation is awaited before the next; nobody consumes.
- fanout: every message to five subscribers in five processes; rates count deliveries.
- latency: 2,000 messages a second to a queue; what is timed is from the send call to the consumer's hands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

Kind = Literal["queue", "paced", "sync", "fanout", "latency"]
Role = Literal["produce", "consume"]
Synced = Literal["yes", "no", "or acknowledged"]
"""Whether a message is synced to disk when its producer hears "yes", or at least done with."""

LATENCY_RATE: Final = 2_000
"""Messages per second of the latency workload: busy enough to be real, slow enough for every peer."""

STAMP_BYTES: Final = 8
"""A latency message begins with its send time: CLOCK_MONOTONIC in nanoseconds, which all processes share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One row of work that every system is asked to do."""

    key: str
    title: str
    kind: Kind
    size: int
    consumers: int

    @property
    def deliveries(self) -> int:
        """How many deliveries one message causes; a rate counts deliveries."""
        return max(1, self.consumers)


WORKLOADS: Final = (
    Workload(key="queue", title="Pipelined persistent queue, 256 B", kind="queue", size=256, consumers=1),
    Workload(key="queue-1k", title="Pipelined persistent queue, 1 KiB", kind="queue", size=1024, consumers=1),
    Workload(
        key="paced",
        title="Queue, producer yields after each message, 256 B",
        kind="paced",
        size=256,
        consumers=1,
    ),
    Workload(key="sync", title="Synchronous persistent send, 256 B", kind="sync", size=256, consumers=0),
    Workload(key="fanout", title="Fan-out to 5 subscribers, 256 B", kind="fanout", size=256, consumers=5),
    Workload(
        key="latency", title="End-to-end latency at 2,000 msg/s, 256 B", kind="latency", size=256, consumers=1
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one client process does: handed over as JSON on its command line."""

    peer: str
    role: Role
    kind: Kind
    destination: str
    messages: int
    size: int
    port: int
    index: int = 0
    """Which of the subscribers this process is."""

    def to_json(self) -> str:
        """The plan as a command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan as the client process reads it."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one client process saw. Times are CLOCK_MONOTONIC nanoseconds; latencies are in milliseconds."""

    started_ns: int
    finished_ns: int
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one run of one workload on one system came to; `error` says why there are no figures."""

    messages: int
    seconds: float = 0.0
    messages_per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    server_cpu_us_per_message: float | None = None
    server_rss_mb: float | None = None
    durability: str | None = None
    error: str | None = None


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which `fraction` of the sorted values lie."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def outcome(started_ns: int, finished_ns: int, latencies_ns: Sequence[int] = ()) -> Outcome:
    """An outcome with the two quantiles that are reported."""
    if not latencies_ns:
        return Outcome(started_ns=started_ns, finished_ns=finished_ns)
    ordered = sorted(latencies_ns)
    return Outcome(
        started_ns=started_ns,
        finished_ns=finished_ns,
        p50_ms=quantile(ordered, 0.50) / 1e6,
        p99_ms=quantile(ordered, 0.99) / 1e6,
    )

"""The plan that a client process of `helio bench` is handed, and the figures that come back.

Times are CLOCK_MONOTONIC nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from heliograph.cli.workloads import Role, Workload

# A latency message begins with the time of its sending.
STAMP_BYTES = 8


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one client process does: JSON on its command line. The password comes by environment."""

    role: Role
    workload: Workload
    url: str
    destination: str
    messages: int
    size: int
    persistent: bool = True
    rate: float = 2000.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one client process saw."""

    started_ns: int
    finished_ns: int
    p50_ms: float | None = None
    p99_ms: float | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to; None where it does not apply."""

    workload: Workload
    messages: int
    size: int
    messages_per_second: float | None
    p50_ms: float | None
    p99_ms: float | None
    server_cpu_us_per_message: float | None
    server_rss_mb: float | None
    durability: str | None


def quantiles(nanoseconds: Sequence[int]) -> tuple[float, float] | tuple[None, None]:
    """The median and the 99th percentile in milliseconds."""
    if not nanoseconds:
        return None, None
    ordered = sorted(nanoseconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return round(p50 / 1e6, 4), round(p99 / 1e6, 4)


def stamped(now_ns: int, size: int) -> bytes:
    """A body of the given size that begins with the time of its sending."""
    return now_ns.to_bytes(STAMP_BYTES, "little").ljust(size, b"x")


def stamp_of(body: bytes) -> int:
    """The time that a stamped body begins with."""
    return int.from_bytes(body[:STAMP_BYTES], "little")


def figures_of(
    plan: Plan,
    produced: Outcome,
    consumed: Sequence[Outcome],
    *,
    before: dict[str, float],
    after: dict[str, float],
    durability: str | None,
) -> Figures:
    """Put together what the processes saw and what the server said about itself before and after."""
    deliveries = plan.messages * (len(consumed) if plan.workload is Workload.FANOUT else 1)
    finished = max(outcome.finished_ns for outcome in (produced, *consumed))
    seconds = max(finished - produced.started_ns, 1) / 1e9
    timed = consumed[0] if plan.workload is Workload.LATENCY else produced
    cpu = (after["cpu_seconds"] - before["cpu_seconds"]) / deliveries * 1e6
    return Figures(
        workload=plan.workload,
        messages=plan.messages,
        size=plan.size,
        messages_per_second=round(deliveries / seconds, 1),
        p50_ms=timed.p50_ms,
        p99_ms=timed.p99_ms,
        server_cpu_us_per_message=round(cpu, 3),
        server_rss_mb=round(after["rss_bytes"] / 1e6, 1),
        durability=durability,
    )

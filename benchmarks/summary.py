"""From raw figures to what is reported: medians, and the bars that Heliograph has set itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from benchmarks.heliograph import KEY as OURS
from benchmarks.limits import BareEcho, BareLoop
from benchmarks.peers import all_peers
from benchmarks.rounds import Results
from benchmarks.workloads import Figures

Verdict = Literal["PASS", "FALLS SHORT", "NOT MEASURED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The medians of one system on one workload; None where nothing was measured."""

    messages_per_second: float | None
    p50_ms: float | None
    p99_ms: float | None
    server_cpu_us_per_message: float | None
    server_rss_mb: float | None
    runs: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One promise, the figure it asks for, and how it turned out."""

    promise: str
    figure: str
    verdict: Verdict


Summaries = dict[tuple[str, str], Summary]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def summarise(results: Results) -> Summaries:
    """Medians over the rounds, by system and workload."""
    return {key: _summary(runs) for key, runs in results.items()}


def _summary(runs: Sequence[Figures]) -> Summary:
    return Summary(
        messages_per_second=_median(run.messages_per_second for run in runs),
        p50_ms=_median(run.p50_ms for run in runs),
        p99_ms=_median(run.p99_ms for run in runs),
        server_cpu_us_per_message=_median(run.server_cpu_us_per_message for run in runs),
        server_rss_mb=_median(run.server_rss_mb for run in runs),
        runs=sum(run.error is None for run in runs),
        errors=tuple(run.error for run in runs if run.error is not None),
    )


def judge(summaries: Summaries) -> list[Bar]:
    """Every bar with its figure."""

    def rate(system: str, workload: str) -> float | None:
        found = summaries.get((system, workload))
        return found.messages_per_second if found else None

    def cpu(system: str) -> float | None:
        found = summaries.get((system, "queue"))
        return found.server_cpu_us_per_message if found else None

    def p50(system: str) -> float | None:
        found = summaries.get((system, "sync"))
        return found.p50_ms if found else None

    ours = rate(OURS, "queue")
    best_fanout = max(
        (speed for key, peer in all_peers().items() if not peer.is_limit and (speed := rate(key, "fanout"))),
        default=None,
    )
    rabbit, quorum, redis = (rate(key, "queue") for key in ("rabbitmq", "rabbitmq-quorum", "redis-always"))
    return [
        _at_least(
            "Pipelined queue: 40 times RabbitMQ with pika (classic queue, the default)", ours, rabbit, 40
        ),
        _at_least("Pipelined queue: 40 times RabbitMQ with pika (quorum queue)", ours, quorum, 40),
        _at_least("Pipelined queue: 10 times Redis Streams that sync always", ours, redis, 10),
        _at_most("Synchronous send, p50: at most 1.5 times the bare echo", p50(OURS), p50(BareEcho.key), 1.5),
        _at_least("Fan-out: 4 times the best peer", rate(OURS, "fanout"), best_fanout, 4),
        _cpu_bar(cpu(OURS)),
        _at_most("Server processor time: at most 2.5 times the bare loop", cpu(OURS), cpu(BareLoop.key), 2.5),
        _at_least("Producer yields after each message: 25 % of pipelined", rate(OURS, "paced"), ours, 0.25),
    ]


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _verdict(kept: bool) -> Verdict:
    return "PASS" if kept else "FALLS SHORT"


def _at_least(promise: str, ours: float | None, theirs: float | None, bar: float) -> Bar:
    ratio = _ratio(ours, theirs)
    if ratio is None:
        return Bar(promise=promise, figure="–", verdict="NOT MEASURED")
    shown = f"{ratio:.0%}" if bar < 1 else f"{ratio:.1f} times"
    return Bar(promise=promise, figure=shown, verdict=_verdict(ratio >= bar))


def _at_most(promise: str, ours: float | None, theirs: float | None, bar: float) -> Bar:
    ratio = _ratio(ours, theirs)
    if ratio is None:
        return Bar(promise=promise, figure="–", verdict="NOT MEASURED")
    return Bar(promise=promise, figure=f"{ratio:.2f} times", verdict=_verdict(ratio <= bar))


def _cpu_bar(cpu: float | None) -> Bar:
    promise = "Server processor time: at most 1 µs per message of the pipelined queue"
    if cpu is None:
        return Bar(promise=promise, figure="–", verdict="NOT MEASURED")
    return Bar(promise=promise, figure=f"{cpu:.2f} µs", verdict=_verdict(cpu <= 1.0))

"""`helio bench` without a server: plans and figures."""

import msgspec
import pytest

from heliograph.cli.bench_plan import Outcome, Plan, figures_of, quantiles, stamp_of, stamped
from heliograph.cli.bench_run import Request, plans_of
from heliograph.cli.workloads import Role, Workload

pytestmark = pytest.mark.req("X4")

BEFORE = {"cpu_seconds": 1.0, "rss_bytes": 1e6}
AFTER = {"cpu_seconds": 1.5, "rss_bytes": 50e6}


def request(workload: Workload) -> Request:
    return Request(
        workload=workload,
        messages=1000,
        size=256,
        consumers=5,
        rate=2000,
        persistent=True,
        durability=None,
        url=None,
        user="ann",
        password="secret",
        data=None,
    )


@pytest.mark.parametrize(
    ("workload", "kind", "consumers"),
    [
        (Workload.QUEUE, "queue", 1),
        (Workload.PACED, "queue", 1),
        (Workload.LATENCY, "queue", 1),
        (Workload.SYNC, "queue", 0),
        (Workload.FANOUT, "topic", 5),
    ],
)
def test_each_workload_has_its_clients(workload: Workload, kind: str, consumers: int) -> None:
    plans = plans_of(request(workload), "helio://h:1")
    assert [plan.role for plan in plans] == [Role.PRODUCE, *[Role.CONSUME] * consumers]
    assert len({plan.destination for plan in plans}) == 1
    assert plans[0].destination.startswith(f"{kind}:bench.")
    raw = msgspec.json.encode(plans[0])
    assert msgspec.json.decode(raw, type=Plan) == plans[0]
    assert b"secret" not in raw, "other users of the machine can read a command line"


def test_a_rate_counts_until_the_last_message_is_received_and_confirmed() -> None:
    plan = plans_of(request(Workload.QUEUE), "helio://h:1")[0]
    produced = Outcome(started_ns=10**9, finished_ns=2 * 10**9)
    consumed = [Outcome(started_ns=0, finished_ns=3 * 10**9)]
    figures = figures_of(plan, produced, consumed, before=BEFORE, after=AFTER, durability="fsync")
    assert (figures.messages_per_second, figures.server_cpu_us_per_message, figures.server_rss_mb) == (
        500,
        500,
        50,
    )
    assert figures.p50_ms is None


def test_fan_out_counts_deliveries() -> None:
    plan = plans_of(request(Workload.FANOUT), "helio://h:1")[0]
    outcomes = [Outcome(started_ns=0, finished_ns=10**9)] * 6
    figures = figures_of(plan, outcomes[0], outcomes[1:], before=BEFORE, after=AFTER, durability="fsync")
    assert (figures.messages_per_second, figures.server_cpu_us_per_message) == (5000, 100)


def test_latency_is_what_the_consumer_saw() -> None:
    plan = plans_of(request(Workload.LATENCY), "helio://h:1")[0]
    consumed = Outcome(started_ns=0, finished_ns=1, p50_ms=1.0, p99_ms=2.0)
    figures = figures_of(
        plan, Outcome(started_ns=0, finished_ns=1), [consumed], before=BEFORE, after=AFTER, durability=None
    )
    assert (figures.p50_ms, figures.p99_ms) == (1.0, 2.0)


def test_quantiles_are_in_milliseconds() -> None:
    assert quantiles([n * 10**6 for n in range(100, 0, -1)]) == (51.0, 100.0)
    assert quantiles([]) == (None, None)


def test_a_stamp_comes_back_out_of_its_body() -> None:
    body = stamped(123456789, 256)
    assert (len(body), stamp_of(body)) == (256, 123456789)

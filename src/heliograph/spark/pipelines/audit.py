"""Audit (D4): what was produced, handed out, acknowledged and buried, joined and judged (`verdicts.py`).

Everything comes from the journal. The result is a table of violations in Parquet, figures for the report, and whether
anything was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heliograph.spark.holds import held
from heliograph.spark.pipelines.running import Tell, source
from heliograph.spark.pipelines.verdicts import NEVER, WANTED, judge, overtaking

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

_JUDGED = (
    "destination string, list int, number bigint, first_lsn bigint, first_place int, done_lsn bigint,"
    " doubled int, is_removed boolean, is_elsewhere boolean, removal string, ended timestamp"
)
_VIOLATIONS = "violation string, destination string, list int, number bigint, id string, detail string"


_STRETCH = 4096
"""Messages that are judged at a time."""


class Findings(NamedTuple):
    """What the report shows."""

    violations: list[dict[str, Any]]
    rates: pd.DataFrame  # destination, second, kind, messages
    latencies: pd.DataFrame  # destination, second, kind, p50, p95, p99 (milliseconds)
    totals: pd.DataFrame  # destination, kind, messages
    slowest: pd.DataFrame  # destination, list, messages, p50, p95, p99 from hand-out to acknowledgement
    dead: pd.DataFrame  # reason, messages
    removed: pd.DataFrame  # reason, messages: those that nobody had and that are not among the dead
    untimed: (
        pd.DataFrame
    )  # kind, messages: what happened when nobody held the history; in no rate and no latency


def run(
    spark: SparkSession, options: dict[str, Any], result: Path | None, tell: Tell, *, lanes: bool = True
) -> Findings:
    """`lanes`: hold the order of lanes against consumers, too, which those with selectors do not keep. The option
    `destination` is `*`, or of one of several sub-clusters `*@NAME`."""
    with held({"destination": "*", **options, "content": "events"}) as asked:
        return _audited(spark, asked, result, tell, lanes=lanes)


def _audited(
    spark: SparkSession, asked: dict[str, Any], result: Path | None, tell: Tell, *, lanes: bool
) -> Findings:
    """What is not in memory any more is read again, up to the end."""
    from pyspark.sql import functions as f

    events = source(spark, asked, streams=False).cache()
    tell(f"{events.count()} records of the journal")
    starts = sorted(row["lsn"] for row in events.where("kind = 'started'").select("lsn").collect())
    published, notes = _published(events), _notes(events)
    stretches = notes.withColumn("stretch", f.expr(f"number div {_STRETCH}"))
    groups = stretches.groupBy("destination", "list", "stretch")
    judged = groups.applyInPandas(_judge_with(starts), _JUDGED).cache()
    found = _violations(published, judged, lanes=lanes).cache()
    if result is not None:
        found.write.mode("overwrite").parquet(str(result))
    violations = [row.asDict() for row in found.orderBy("violation", "destination", "number").collect()]
    tell(f"{len(violations)} violations")
    figures = _figures(published, notes, events, judged)
    return Findings(violations, *figures)


def _published(events: DataFrame) -> DataFrame:
    return events.where("kind in ('published', 'adopted')").withColumnRenamed("first", "number")


def _notes(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    notes = events.where("kind in ('dispatched', 'returned', 'done', 'removed', 'united', 'seen')")
    return notes.select(
        "destination",
        "list",
        "lsn",
        "place",
        "kind",
        "reason",
        "written",
        f.explode(f.expr("sequence(first, last)")).alias("number"),
    )


def _judge_with(starts: list[int]) -> Any:
    """What Spark sends to its workers: small, and everything else is found there by its name."""

    def judge_group(group: pd.DataFrame) -> pd.DataFrame:
        return judge_stretch(group, starts)

    return judge_group


def judge_stretch(group: pd.DataFrame, starts: list[int]) -> pd.DataFrame:
    """All that happened to a stretch of the messages of a list: a frame for each message would cost more than it."""
    import pandas as pd

    ordered = group.sort_values(["number", "lsn", "place"])
    destination, list_number = ordered["destination"].iloc[0], ordered["list"].iloc[0]
    columns = ("number", "lsn", "place", "kind", "reason", "written")
    rows = zip(*(ordered[name].tolist() for name in columns), strict=True)
    judged = []
    for number, found in groupby(rows, key=itemgetter(0)):
        history = list(found)
        verdict = judge(
            ((lsn, place, kind, reason or "") for _, lsn, place, kind, reason, _ in history), starts
        )
        ended = next((written for *_, kind, _, written in history if kind in ("done", "removed")), None)
        told = (
            *verdict.handed_out,
            verdict.done[0],
            verdict.doubled,
            verdict.is_removed,
            verdict.is_elsewhere,
            verdict.removal,
            ended,
        )
        judged.append((destination, list_number, number, *told))
    frame = pd.DataFrame(judged, columns=[part.split()[0] for part in _JUDGED.split(", ")])
    return frame.astype({"ended": "datetime64[ns]"})


def _violations(published: DataFrame, judged: DataFrame, *, lanes: bool) -> DataFrame:
    from pyspark.sql import functions as f

    messages = published.select(
        "destination", "number", "id", "lane", "unit", "priority", "is_delayed", "expires"
    )
    known = judged.join(messages, ["destination", "number"], "left")
    columns = [part.split()[0] for part in _VIOLATIONS.split(", ")]
    doubled = known.where("doubled > 0").withColumn("violation", f.lit("doubled"))
    doubled = doubled.withColumn(
        "detail", f.concat(f.lit("handed out again "), f.col("doubled"), f.lit(" times"))
    )
    lost = _lost(known, published).withColumn("violation", f.lit("lost"))
    lost = lost.withColumn("detail", f.lit("done, and never handed out"))
    early = _out_of_order(messages, judged, lanes=lanes)
    return doubled.select(columns).unionByName(lost.select(columns)).unionByName(early.select(columns))


def _lost(known: DataFrame, published: DataFrame) -> DataFrame:
    """Removed, and not because it had expired, was moved elsewhere, or died, because a policy or an administrator
    wanted it, nor because another part of the cluster had handed it out. Where the journal does not say when
    something happened, what could expire had expired."""
    from pyspark.sql import functions as f

    gone = known.where("is_removed AND NOT is_elsewhere AND id IS NOT NULL")
    gone = gone.where(~f.col("removal").isin(*WANTED))
    gone = gone.where("expires IS NULL OR coalesce(ended < expires, false)")
    buried = published.where("original_id IS NOT NULL").select(f.col("original_id").alias("id")).distinct()
    moved = published.where("kind = 'adopted'").select("id").distinct()
    return gone.join(buried, "id", "left_anti").join(moved, "id", "left_anti")


def _out_of_order(messages: DataFrame, judged: DataFrame, *, lanes: bool) -> DataFrame:
    from pyspark.sql import functions as f

    lists = judged.select("destination", "list").distinct()
    places = messages.join(lists, "destination").join(judged, ["destination", "list", "number"], "left")
    # What was removed, or had by another part, without having been handed out here held back nothing.
    was_not_here = f"is_removed OR (is_elsewhere AND first_lsn >= {NEVER[0]})"
    places = places.where(f"coalesce({was_not_here}, false) = false")
    units = places.where("unit <> 0").withColumn("order_of", f.concat(f.lit("unit "), f.hex("unit")))
    kept = [units]
    if lanes:
        plain = places.where("unit = 0 AND NOT is_delayed AND destination LIKE 'queue:%'")
        name = f.concat(f.lit("lane "), f.col("lane"), f.lit(" priority "), f.col("priority"))
        kept.append(plain.withColumn("order_of", name))
    ordered = kept[0]
    for more in kept[1:]:
        ordered = ordered.unionByName(more)
    wanted = ordered.select(
        "destination",
        "list",
        "order_of",
        "number",
        "id",
        *[f.col(name) for name in ("first_lsn", "first_place")],
    )
    return wanted.groupBy("destination", "list", "order_of").applyInPandas(_find_early, _VIOLATIONS)


def _find_early(group: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    waiting = group["first_lsn"].isna()
    lsns = group["first_lsn"].fillna(NEVER[0]).astype("int64").tolist()
    spots = group["first_place"].fillna(0).astype("int64").tolist()
    numbers = group["number"].tolist()
    places = [
        (number, NEVER if waits else (lsn, spot))
        for number, lsn, spot, waits in zip(numbers, lsns, spots, waiting.tolist(), strict=True)
    ]
    early = dict.fromkeys(overtaking(places))
    row = group.iloc[0]
    ids = dict(zip(numbers, group["id"].tolist(), strict=True))
    return pd.DataFrame(
        [
            (
                "out of order",
                row["destination"],
                row["list"],
                number,
                ids[number],
                f"before an earlier one of {row['order_of']}",
            )
            for number in early
        ],
        columns=[part.split()[0] for part in _VIOLATIONS.split(", ")],
    )


def _figures(
    published: DataFrame, notes: DataFrame, events: DataFrame, judged: DataFrame
) -> Iterator[pd.DataFrame]:
    """Rates, latencies, totals, slowest, dead, removed, untimed. What has no time is in no rates and latencies, nor
    is a message that was handed out more than once if one of those times is not known."""
    from pyspark.sql import functions as f

    second = f.date_trunc("second", "written").alias("second")
    made = published.select("destination", f.lit("published").alias("kind"), "written", "number")
    told = notes.where("kind in ('dispatched', 'returned', 'done', 'removed')")
    happened = made.unionByName(told.select("destination", "kind", "written", "number"))
    timed = happened.where("written IS NOT NULL")
    yield timed.groupBy("destination", second, "kind").agg(f.count("*").alias("messages")).toPandas()
    first = (
        notes.where("kind = 'dispatched'")
        .groupBy("destination", "list", "number")
        .agg(_first_of_all("written").alias("handed_out"))
    )
    ended = (
        notes.where("kind = 'done'")
        .groupBy("destination", "list", "number")
        .agg(_first_of_all("written").alias("ended"))
    )
    whole = (
        published.select("destination", "number", f.col("written").alias("made"))
        .join(first, ["destination", "number"])
        .join(ended, ["destination", "list", "number"], "left")
    )
    waits = _milliseconds("handed_out", "made").alias("milliseconds")
    works = _milliseconds("ended", "handed_out").alias("milliseconds")
    hand_out = whole.select(
        "destination", "list", f.col("made").alias("at"), f.lit("to hand-out").alias("kind"), waits
    )
    acknowledged = whole.select(
        "destination",
        "list",
        f.col("handed_out").alias("at"),
        f.lit("to acknowledgement").alias("kind"),
        works,
    )
    both = hand_out.unionByName(acknowledged).where("milliseconds IS NOT NULL AND at IS NOT NULL")
    bucket = f.date_trunc("second", "at").alias("second")
    yield both.groupBy("destination", bucket, "kind").agg(*_percentiles()).toPandas()
    yield happened.groupBy("destination", "kind").agg(f.count("*").alias("messages")).toPandas()
    slow = acknowledged.where("milliseconds IS NOT NULL").groupBy("destination", "list")
    yield (
        slow.agg(f.count("*").alias("messages"), *_percentiles()).orderBy(f.desc("p95")).limit(20).toPandas()
    )
    died = events.where("kind = 'published' AND reason IS NOT NULL")
    dead = died.groupBy("reason").agg(f.count("*").alias("messages"))
    yield dead.orderBy(f.desc("messages")).toPandas()
    yield _removed(judged)
    untimed = happened.where("written IS NULL").groupBy("kind").agg(f.count("*").alias("messages"))
    yield untimed.orderBy("kind").toPandas()


def _first_of_all(name: str) -> Any:
    """None if one of them is not known: that may have been the first."""
    from pyspark.sql import functions as f

    return f.when(f.count(name) == f.count("*"), f.min(name))


def _removed(judged: DataFrame) -> pd.DataFrame:
    from pyspark.sql import functions as f

    removed = judged.where("is_removed AND removal <> ''").withColumnRenamed("removal", "reason")
    return removed.groupBy("reason").agg(f.count("*").alias("messages")).orderBy("reason").toPandas()


def _milliseconds(later: str, earlier: str) -> Any:
    from pyspark.sql import functions as f

    return (f.col(later).cast("double") - f.col(earlier).cast("double")) * 1000


def _percentiles() -> list[Any]:
    from pyspark.sql import functions as f

    return [
        f.percentile_approx("milliseconds", share).alias(f"p{round(share * 100)}")
        for share in (0.5, 0.95, 0.99)
    ]

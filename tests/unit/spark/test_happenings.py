"""What an audit is told of the journal, record by record (D4)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa

from heliograph.destinations.dead_letters import ORIGINAL_ID, REASON
from heliograph.journal.records import RecordKind
from heliograph.model.block import pack
from heliograph.model.ids import IdIssuer, lane_of
from heliograph.model.message import Head, encode_head
from heliograph.spark import happenings

pytestmark = pytest.mark.req("D4")
LANE = lane_of(IdIssuer(site=1, node=2, started_ms=1_700_000_000_000).session(), 3)


def test_what_a_sender_may_say_is_told_however_strange_it_is() -> None:
    heads = [encode_head(Head(properties={ORIGINAL_ID: 7, REASON: True})), b"\x91" * 5000]
    block = pack([b"a", b"b"], lane=LANE, first=1, expiries=[1 << 62, 1_000_000], heads=heads)
    rows = list(happenings.rows_of(RecordKind.PUBLISHED, "queue:_DMQ", 0, 9, block, {}))
    pa.RecordBatch.from_pylist(rows, schema=happenings._ARROW)
    assert [row["expires"].year for row in rows] == [9999, 1970]
    assert [(row["original_id"], row["reason"]) for row in rows] == [("7", "true"), (None, None)]

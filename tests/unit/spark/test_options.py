"""Options of the source, as Spark hands them over (D1)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from heliograph.model.errors import ClientFault
from heliograph.spark.options import options_of

pytestmark = pytest.mark.req("D1")


def test_capitals_do_not_matter_and_numbers_come_as_texts() -> None:
    options = options_of(
        {"maxRowsPerTrigger": "7", "DESTINATION": "queue:a", "partitions": "0"}, default_partitions=3
    )
    assert (options.maxrowspertrigger, options.destination, options.partitions) == (7, "queue:a", 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "no option 'startingoffsets'; did you mean startingoffset?"),
        ({"subCluster": "east"}, "no option 'subcluster'"),
        ({"zzz": "1"}, "it has batch, content, destination"),
        ({"partitions": "many"}, "partitions"),
        ({"mode": "stack"}, "mode"),
    ],
)
def test_what_is_unknown_or_wrong_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ClientFault) as refused:
        options_of(given)
    assert refused.value.code == "option-invalid"
    assert said in refused.value.sentence


def test_what_spark_adds_is_let_through() -> None:
    added = {"path": "x", "checkpointLocation": "/c", "queryName": "q", "__internal": "1"}
    assert options_of({**added, "url": "helio://a"}).url == "helio://a"

"""Options of the source, as Spark hands them over (D1)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from heliograph.model.errors import ClientFault
from heliograph.spark.options import check_reading, options_of

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


@pytest.mark.parametrize(
    ("given", "is_stream", "said"),
    [
        ({"selector": "n = 1"}, False, "selector is of the mode queue"),
        ({"selector": "n = 1"}, True, "selector is of the mode queue"),
        ({"mode": "queue", "startingOffset": "latest"}, True, "startingOffset is of the mode feed"),
        ({"mode": "queue", "endingOffset": "7"}, False, "endingOffset is of the mode feed"),
        ({"endingOffset": "7"}, True, "endingOffset is of batches"),
        ({"mode": "queue", "hold": "h"}, False, "hold is of the mode feed"),
        ({"hold": "h"}, True, "hold is of batches"),
        ({"content": "events"}, True, "content may be events in batches only"),
        ({"content": "events", "mode": "queue"}, False, "content may be events in mode feed only"),
    ],
)
def test_what_would_be_passed_over_is_refused(given: dict[str, str], is_stream: bool, said: str) -> None:
    with pytest.raises(ClientFault) as refused:
        check_reading(options_of(given), is_stream=is_stream)
    assert refused.value.code == "option-invalid"
    assert said in refused.value.sentence


@pytest.mark.parametrize(
    ("given", "is_stream"),
    [
        ({"startingOffset": "latest"}, True),
        ({"startingOffset": "3", "endingOffset": "7", "hold": "h", "content": "events"}, False),
        ({"mode": "queue", "selector": "n = 1", "lease": "l"}, False),
        ({"mode": "queue", "selector": "n = 1", "startingOffset": "earliest"}, True),
    ],
)
def test_what_is_heeded_is_let_through(given: dict[str, str], is_stream: bool) -> None:
    check_reading(options_of(given), is_stream=is_stream)

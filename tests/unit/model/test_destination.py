"""Names of destinations: what is one, what is not, and what each refusal is called."""

import pytest

from heliograph.model.destination import Kind, kind_of, name_of, parse_address
from heliograph.model.errors import InvalidName
from heliograph.model.limits import MAX_NAME_BYTES

pytestmark = pytest.mark.req("J1")


@pytest.mark.parametrize(
    "text", ["queue:orders", "topic:a.b/c", "queue:with blank", "topic:Zürich", "queue:a:b"]
)
def test_a_queue_or_topic_is_written_with_its_kind(text: str) -> None:
    address = parse_address(text)
    assert address == text
    assert f"{kind_of(address)}:{name_of(address)}" == text
    assert kind_of(address) is Kind(text[:5])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid-destination"),
        ("orders", "invalid-destination"),
        ("exchange:orders", "invalid-destination"),
        ("Queue:orders", "invalid-destination"),
        (" queue:orders", "invalid-destination"),
        (":orders", "invalid-destination"),
        ("queue:", "name-empty"),
        ("topic:" + "n" * (MAX_NAME_BYTES + 1), "name-too-long"),
        ("queue:" + "é" * (MAX_NAME_BYTES // 2 + 1), "name-too-long"),
        ("queue:_ADMIN", "name-reserved"),
        ("topic:_x", "name-reserved"),
        ("queue: orders", "name-unprintable"),
        ("queue:orders ", "name-unprintable"),
        ("queue:or\nders", "name-unprintable"),
        ("queue:\x00", "name-unprintable"),
        ("queue:\u202eorders", "name-unprintable"),
    ],
)
def test_what_is_no_destination_is_refused_by_its_reason(text: str, code: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        parse_address(text)
    assert refusal.value.code == code
    assert len(refusal.value.sentence) < 200


def test_the_longest_name() -> None:
    assert name_of(parse_address("queue:" + "n" * MAX_NAME_BYTES)) == "n" * MAX_NAME_BYTES


@pytest.mark.req("M11")
def test_the_servers_own_names_are_for_those_who_may() -> None:
    assert parse_address("queue:_ADMIN", system=True) == "queue:_ADMIN"

"""Heads and bodies: what travels comes back the same, and what cannot travel is refused before it leaves."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.model.block import BodyKind
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_HEAD_BYTES
from heliograph.model.message import Head, decode_body, decode_head, encode_body, encode_head

pytestmark = pytest.mark.req("J2")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PROPERTIES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), TEXT, st.binary()
)
HEADS = st.builds(
    Head,
    correlation_id=st.none() | TEXT,
    reply_to=st.none() | TEXT,
    type=st.none() | TEXT,
    kind=st.sampled_from([0, 1, 2]),
    unit=st.none() | TEXT,
    group_id=st.none() | TEXT,
    group_sequence=st.integers(0, 2**31),
    properties=st.dictionaries(TEXT.filter(bool), PROPERTIES, max_size=5),
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(HEADS)
@settings(deadline=None)
def test_a_head_comes_back_as_it_was_with_its_types(head: Head) -> None:
    back = decode_head(encode_head(head))
    assert back == head
    kinds = {name: type(value) for name, value in head.properties.items()}
    assert {name: type(value) for name, value in back.properties.items()} == kinds


def test_a_head_with_nothing_to_say_is_one_byte() -> None:
    assert encode_head(Head()) == b"\x80"


@given(st.one_of(st.binary(), TEXT, st.lists(DATA, max_size=4), st.dictionaries(TEXT, DATA, max_size=4)))
@settings(deadline=None)
def test_a_body_comes_back_as_it_was(body: Any) -> None:
    kind, raw = encode_body(body)
    assert decode_body(kind, raw) == body


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc")])
def test_anything_like_bytes_is_a_body_of_bytes(body: Any) -> None:
    assert encode_body(body) == (BodyKind.BYTES, b"abc")


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "body", [None, 5, 1.5, object(), {"a": object()}, [2**70], "\ud800", {"a": "\ud800"}, _circle()]
)
def test_a_body_that_cannot_travel_is_refused(body: Any) -> None:
    with pytest.raises(ClientFault) as refusal:
        encode_body(body)
    assert refusal.value.code == "body-invalid"


@pytest.mark.parametrize(
    "properties", [{"": 1}, {5: 1}, {"a": []}, {"a": {}}, {"a": object()}, {"a": 2**70}, {"a": "\ud800"}]
)
def test_a_property_that_cannot_travel_is_refused(properties: Any) -> None:
    with pytest.raises(ClientFault) as refusal:
        encode_head(Head(properties=properties))
    assert refusal.value.code == "property-invalid"


def test_a_head_beyond_its_limit_is_refused() -> None:
    assert len(encode_head(Head(type="x" * (MAX_HEAD_BYTES - 100)))) <= MAX_HEAD_BYTES
    with pytest.raises(ClientFault) as refusal:
        encode_head(Head(type="x" * MAX_HEAD_BYTES))
    assert refusal.value.code == "head-too-large"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x81\xa1c\x05",
        b"\x81\xa1c\xa2\xff\xff",
        b"\x81\xa1p\x81\xa1a" + b"\x91" * 10_000 + b"\xc0",
    ],
)
def test_a_head_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(ClientFault) as refusal:
        decode_head(raw)
    assert refusal.value.code == "head-malformed"


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_head_or_are_refused(raw: bytes) -> None:
    code = ""
    try:
        decode_head(raw)
    except ClientFault as refusal:
        code = refusal.code
    assert code in {"", "head-malformed"}


def test_a_head_from_a_newer_client_is_read_as_far_as_it_is_known() -> None:
    assert decode_head(b"\x82\xa1z\x05\xa1t\xa1x") == Head(type="x")


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (1, b"\xff"),
        (2, b"\xc1"),
        (2, b"\x05"),
        (2, b"\x91" * 10_000 + b"\xc0"),
        (2, b"\x81\x80\xc0"),
        (77, b"x"),
    ],
)
def test_a_body_that_is_not_what_it_claims_is_handed_over_as_bytes(kind: int, raw: bytes) -> None:
    assert decode_body(kind, raw) == raw

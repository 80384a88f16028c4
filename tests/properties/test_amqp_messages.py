"""Whatever an AMQP message says comes out as it went in; and no bytes at all break who reads them."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Data, Message, byte, float32, int32, short, timestamp, ubyte, uint, ulong, ushort

from heliograph.frontends.amqp import values
from heliograph.frontends.amqp.messages import Encoder, arrived
from heliograph.model import block
from heliograph.model.errors import ClientFault

pytestmark = pytest.mark.req("X1")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-128, 127).map(byte),
    st.integers(-(2**15), 2**15 - 1).map(short),
    st.integers(-(2**31), 2**31 - 1).map(int32),
    st.integers(0, 255).map(ubyte),
    st.integers(0, 2**16 - 1).map(ushort),
    st.integers(0, 2**32 - 1).map(uint),
    st.integers(0, 2**64 - 1).map(ulong),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(float32),
    st.integers(0, 2**40).map(timestamp),
    texts,
    st.uuids(),
    st.binary(max_size=8),
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
properties = st.dictionaries(
    texts.filter(lambda name: name and not name.startswith("JMS_")), scalars, max_size=5
)
ids = st.one_of(
    st.none(), texts, st.uuids(), st.integers(0, 2**64 - 1).map(ulong), st.binary(min_size=1, max_size=4)
)


def through(raw: bytes) -> bytes:
    """What a client gets of what another sent."""
    message = arrived(raw, 1_000_000).message
    lone = block.pack_lone(
        message.body,
        lane=b"0123456789abcdef",  # type: ignore[arg-type]
        sequence=1,
        timestamp=1_000_000,
        priority=message.priority,
        persistent=message.persistent,
        kind=message.kind,
        head=message.head,
    )
    return Encoder(jms=False).encode(
        block.unpack(lone), 0, destination="queue:a", earlier=0, user="", now=1_000_000
    )


def encoded(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def typed(value: Any) -> Any:
    """A value with the types of all its parts."""
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [typed(each) for each in value]
    if isinstance(value, memoryview):
        return "bytes", bytes(value)
    return type(value).__name__, value


@given(trees, properties, ids, ids)
def test_bodies_properties_and_ids_keep_values_and_types(
    body: Any, said: dict[str, Any], identity: Any, correlation: Any
) -> None:
    sent = Message(
        body=body, properties=said, id=identity, correlation_id=correlation, subject="s", priority=3
    )
    got = Message()
    got.decode(through(bytes(sent.encode())))
    assert typed(got.body) == typed(body)
    assert typed(got.properties or {}) == typed(said)
    assert got.correlation_id == correlation
    if identity is not None:
        assert got.id == identity
    assert (got.subject, got.priority) == ("s", 3)


@given(trees)
def test_values_are_read_as_proton_writes_them_and_written_as_it_reads_them(value: Any) -> None:
    raw = encoded(value)
    notes: list[str] = []
    read, end = values.read(raw, 0, notes)
    assert end == len(raw)
    data = Data()
    data.decode(values.write(read, iter(notes)))
    assert typed(data.get_object()) == typed(value)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(raw: bytes) -> None:
    for data in (raw, b"\x00\x53\x77" + raw, b"\x00\x53\x74" + raw, b"\x00\x53\x73" + raw):
        with suppress(ClientFault):
            through(data)


def test_an_array_that_promises_more_than_it_has_is_refused() -> None:
    for raw in (b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40", b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff"):
        with pytest.raises(ClientFault):
            values.read(raw, 0)


def test_depth_is_bounded() -> None:
    with pytest.raises(ClientFault):
        values.read(b"\xc0\x02\x01" * 100 + b"\x45", 0)
    with pytest.raises(ClientFault):
        values.read(b"\x00" * 10_000, 0)


def test_a_uuid_is_a_text_for_others() -> None:
    sent = Message(body=uuid.UUID(int=1))
    assert arrived(bytes(sent.encode()), 0).message.body == str(uuid.UUID(int=1)).encode()

"""Entries that are not what they should be are refused, whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.bus import wire
from heliograph.bus.bridge_words import Relayed
from heliograph.bus.commands import Command, Confirmed, Dispatched, Published
from heliograph.bus.interface import Incarnation, Origin, Place, Stamp
from heliograph.model import block
from heliograph.model.block import Span
from heliograph.model.destination import Address
from heliograph.model.errors import ProtocolFault
from heliograph.model.ids import ConsumerId, LaneId
from heliograph.model.limits import MAX_BUS_NESTING
from tests.golden.bus_specimens import COMMANDS, ENTRIES, entry
from tests.golden.specimens import BLOCKS


def test_the_bytes_of_a_block_are_passed_on_as_they_are() -> None:
    published = Published(Address("queue:orders"), block.parse(BLOCKS["plain"]))
    parts: list[wire.Bytes] = []
    wire.append(published, parts)
    assert parts[-1] is published.block.buffer


def test_a_dispatch_names_its_block_and_does_not_carry_it() -> None:
    buffer = block.pack([b"x" * 10_000] * 3, lane=block.parse(BLOCKS["plain"]).lane, first=5)
    raw = entry(Dispatched(ConsumerId(bytes(16)), 1, Span(block.parse(buffer), 1, 2), "ann"))
    assert len(raw) < 120
    [read] = wire.read(raw)
    assert isinstance(read, Dispatched)
    named = read.span.block
    assert (named.buffer, named.size, named.count, named.first) == (None, len(buffer), 3, 5)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_that_is_cut_off_anywhere_is_refused(name: str) -> None:
    raw = ENTRIES[name]
    for length in range(1, len(raw)):
        with pytest.raises(ProtocolFault, match="bus-frame-malformed"):
            wire.read(raw[:length])


def test_a_command_of_a_later_version_is_refused_by_name() -> None:
    raw = ENTRIES["confirmed"] + wire.ENTRY.pack(60_000, 0, 0, 0)
    with pytest.raises(ProtocolFault, match="command 60000, which this version does not know"):
        wire.read(raw)


@pytest.mark.parametrize("nested", [b"\x91" * 100_000 + b"\xc0", b"\x81\xa1k\x81\x80\xc0"])
def test_fields_that_no_reader_can_take_are_refused(nested: bytes) -> None:
    fields = b"\x92\x01\x81\xa4body" + nested
    with pytest.raises(ProtocolFault, match="bus-frame-malformed"):
        wire.read(wire.ENTRY.pack(74, 0, len(fields), 0) + fields)


def test_commands_within_commands_have_an_end() -> None:
    origin = Origin(Place(1, 1), Incarnation(bytes(16)), 1, Stamp(bytes(24)))
    command: Command = Confirmed(LaneId(bytes(16)), 1)
    for _ in range(MAX_BUS_NESTING):
        command = Relayed(b"", origin, [command])
    assert wire.read(entry(command)) == [command]
    raw, fields = entry(command), entry(Relayed(b"", origin, []))[wire.ENTRY_BYTES :]
    for _ in range(2_000):
        raw = wire.ENTRY.pack(wire.CODES[Relayed], 0, len(fields), len(raw)) + fields + raw
    with pytest.raises(ProtocolFault, match="more than 8 deep"):
        wire.read(raw)


def test_a_block_that_lies_about_its_length_is_refused() -> None:
    raw = bytearray(ENTRIES["published"])
    raw[-len(BLOCKS["plain"]) + 4] ^= 1
    with pytest.raises(ProtocolFault, match="a block says"):
        wire.read(raw)
    short = (
        wire.ENTRY.pack(2, 0, len(raw) - 12 - len(BLOCKS["plain"]), 4)
        + raw[12 : -len(BLOCKS["plain"])]
        + b"tiny"
    )
    with pytest.raises(ProtocolFault, match="shorter than its header"):
        wire.read(short)


@given(st.sampled_from(sorted(ENTRIES)), st.integers(0, 10_000), st.integers(1, 255))
def test_a_byte_that_was_changed_gives_another_command_or_a_refusal(name: str, at: int, change: int) -> None:
    """The checksum is for such bytes; here it is shown that reading never fails in any other way."""
    raw = bytearray(ENTRIES[name])
    raw[at % len(raw)] ^= change
    try:
        read = wire.read(raw)
    except ProtocolFault:
        return
    assert len(read) == 1


def test_commands_come_out_in_the_order_they_went_in() -> None:
    assert wire.read(b"".join(ENTRIES.values())) == list(COMMANDS.values())

"""What nodes say to each other stays what it was, byte for byte, and still means the same: nodes of two versions meet
on one bus during an upgrade."""

import re
import struct
from pathlib import Path

import msgspec
import pytest

from heliograph.bus import commands, wire
from heliograph.bus.assembling import Assembler
from heliograph.bus.commands import Command
from heliograph.bus.frames import read_piece
from heliograph.bus.interface import NO_VIEW, Place
from heliograph.bus.presence import Hello
from heliograph.cluster.view import formed
from tests.golden import specimens
from tests.golden.bus_specimens import BUS, COMMANDS, ENTRIES, FRAMES, INCARNATION, STAMP

VIEW_OF_THE_HELLO = "5aa263d55a6005252b8f037effc701d6"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "bus.md"


def test_every_specimen_has_its_golden_file_and_every_file_its_specimen() -> None:
    assert specimens.names_in("bus") == sorted(BUS)


def test_every_command_has_a_code_of_its_own_and_a_golden_entry() -> None:
    kinds = set(Command.__subclasses__())
    assert kinds == set(wire.CODES) == {type(command) for command in COMMANDS.values()}
    assert len(set(wire.CODES.values())) == len(kinds)


@pytest.mark.parametrize("name", BUS)
def test_it_is_written_as_the_golden_bytes(name: str) -> None:
    assert specimens.dump(BUS[name]) == specimens.dump(specimens.golden("bus", name))


@pytest.mark.parametrize("name", ENTRIES)
def test_a_golden_entry_is_read_as_the_command_it_was(name: str) -> None:
    assert wire.read(specimens.golden("bus", name)) == [COMMANDS[name]]


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_of_a_later_version_with_a_field_more_is_read(name: str) -> None:
    """Fields are appended, and who does not know one passes over it."""
    raw = specimens.golden("bus", name)
    code, zero, length, attached = wire.ENTRY.unpack_from(raw)
    fields = msgspec.msgpack.decode(raw[wire.ENTRY_BYTES : wire.ENTRY_BYTES + length])
    longer = msgspec.msgpack.encode([*fields, "news"])
    attachment = raw[wire.ENTRY_BYTES + length :]
    assert wire.read(wire.ENTRY.pack(code, zero, len(longer), attached) + longer + attachment) == [
        COMMANDS[name]
    ]


def test_an_entry_of_an_earlier_version_lacks_what_has_a_default() -> None:
    fields = msgspec.msgpack.encode(["queue:orders", b"c" * 16])
    raw = wire.ENTRY.pack(wire.CODES[commands.ConsumerDetached], 0, len(fields), 0) + fields
    [read] = wire.read(raw)
    assert read == commands.ConsumerDetached("queue:orders", b"c" * 16, 0, -1)  # type: ignore[arg-type]


def test_a_hello_of_an_earlier_version_says_less_and_makes_the_same_view() -> None:
    """Its sender sees less of the others' hellos too: the id of the view must not hang on what it does not see."""
    raw = specimens.golden("bus", "hello")
    fields = msgspec.msgpack.decode(raw[wire.ENTRY_BYTES :])
    fields[8] = [node[:28] for node in fields[8]]
    shorter = msgspec.msgpack.encode(fields[:9])
    [earlier] = wire.read(wire.ENTRY.pack(wire.CODES[Hello], 0, len(shorter), 0) + shorter)
    now = COMMANDS["hello"]
    assert isinstance(earlier, Hello)
    assert isinstance(now, Hello)
    assert (earlier.level, earlier.nodes[0].log_level) == (1, 1)
    later = msgspec.structs.replace(
        now, level=7, nodes=tuple(msgspec.structs.replace(node, log_level=7) for node in now.nodes)
    )
    ids = {formed(now.company, [(INCARNATION, hello)]).id for hello in (earlier, now, later)}
    assert [each.hex() for each in ids] == ["0800000000000000" + VIEW_OF_THE_HELLO]


def test_golden_pieces_become_the_frames_they_were() -> None:
    assembler = Assembler()
    frames = [assembler.receive(Place(1, 2), specimens.golden("bus", name)) for name in FRAMES]
    assert frames[0] is not None
    origin, heard = frames[0]
    assert (origin.incarnation, origin.sequence, origin.stamp) == (INCARNATION, 1, NO_VIEW)
    assert heard == [COMMANDS["confirmed"], COMMANDS["session-closed"]]
    assert frames[1:3] == [None, None]
    assert frames[3] is not None
    origin, heard = frames[3]
    assert (origin.sequence, origin.stamp, heard) == (4, STAMP, [COMMANDS["published"]])


def test_the_example_in_the_reference_is_a_frame() -> None:
    lines = re.findall(
        r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE
    )
    raw = b"".join(bytes.fromhex(line) for _, line in lines)
    assert raw == specimens.golden("bus", "frame")
    positions = [int(position, 16) for position, _ in lines]
    sizes = [len(bytes.fromhex(line)) for _, line in lines]
    assert positions == [sum(sizes[:index]) for index in range(len(sizes))]


def test_the_reference_lists_every_command_with_its_code_and_fields() -> None:
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \| (.*?) \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = {name: (int(code), re.findall(r"`(\w+)`", fields)) for code, name, fields in rows}
    expected = {
        kind.__name__: (code, list((wire._BULKY.get(code) or kind).__struct_fields__))
        for kind, code in wire.CODES.items()
    }
    assert listed == expected


def test_a_piece_is_refused_when_any_byte_of_it_is_wrong() -> None:
    raw = bytearray(specimens.golden("bus", "frame"))
    for at in range(len(raw)):
        raw[at] ^= 0x10
        with pytest.raises(Exception, match="bus-") as refused:
            read_piece(raw)
        assert not isinstance(refused.value, struct.error)
        raw[at] ^= 0x10
    assert read_piece(raw).sequence == 1

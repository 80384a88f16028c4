"""Bytes on disk and on the wire stay what they were, and still mean the same."""

import re
from pathlib import Path

import pytest

from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import CONTROL, FRAME_HEADER, PREAMBLE, Control
from heliograph.model import block
from heliograph.model.ids import IdIssuer, lane_number, lane_of, message_id, session_of, text_of
from tests.golden import specimens
from tests.golden.specimens import BLOCKS, CONTENTS, FRAMES, FROM_CLIENT, FROM_SERVER, HOT_FRAMES, IDS

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"


@pytest.mark.parametrize(("folder", "specimen"), [("blocks", BLOCKS), ("frames", FRAMES), ("ids", IDS)])
def test_every_specimen_has_its_golden_file_and_every_file_its_specimen(
    folder: str, specimen: dict[str, bytes]
) -> None:
    assert specimens.names_in(folder) == sorted(specimen)


# ---- blocks


@pytest.mark.req("J2")
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_packed_into_the_golden_bytes(name: str) -> None:
    assert specimens.dump(BLOCKS[name]) == specimens.dump(specimens.golden("blocks", name))


@pytest.mark.req("J2")
@pytest.mark.parametrize("name", BLOCKS)
def test_a_golden_block_holds_what_was_packed(name: str) -> None:
    raw = specimens.golden("blocks", name)
    assert block.unpack(raw) == CONTENTS[name]
    if name not in ("fragment", "gathered"):  # those only ever go to clients
        parsed = block.parse(raw)
        assert (parsed.count, parsed.first, parsed.lane) == (
            CONTENTS[name].count,
            CONTENTS[name].first,
            specimens.LANE,
        )


def test_there_is_a_golden_block_for_every_flag_and_body_kind() -> None:
    flags = 0
    for contents in CONTENTS.values():
        flags |= contents.flags
    assert flags == sum(block.Flag)
    assert {contents.kind for contents in CONTENTS.values()} == set(block.BodyKind)


def test_the_example_in_the_reference_is_a_block() -> None:
    text = (REFERENCE / "block-format.md").read_text(encoding="utf-8")
    lines = re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", text, re.MULTILINE)
    raw = b"".join(bytes.fromhex(line) for _, line in lines)
    assert raw == specimens.golden("blocks", "plain")
    positions = [int(position, 16) for position, _ in lines]
    sizes = [len(bytes.fromhex(line)) for _, line in lines]
    assert positions == [sum(sizes[:index]) for index in range(len(sizes))]


# ---- frames


@pytest.mark.req("J2")
@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_written_as_the_golden_bytes(name: str) -> None:
    assert specimens.dump(FRAMES[name]) == specimens.dump(specimens.golden("frames", name))


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_the_server_reads_a_golden_control_frame(name: str) -> None:
    assert frames.decode_from_client(_control_payload(name)) == FROM_CLIENT[name]


@pytest.mark.parametrize("name", FROM_SERVER)
def test_the_client_reads_a_golden_control_frame(name: str) -> None:
    assert frames.decode_from_server(_control_payload(name)) == FROM_SERVER[name]


def _control_payload(name: str) -> bytes:
    raw = specimens.golden("frames", name)
    length, kind, flags, number = FRAME_HEADER.unpack_from(raw)
    assert (length, kind, flags, number) == (len(raw) - 8, CONTROL, 0, 0)
    return raw[8:]


def test_every_control_message_and_every_kind_has_a_golden_frame() -> None:
    shown = {type(message) for message in (*FROM_CLIENT.values(), *FROM_SERVER.values())}
    assert shown == set(Control.__subclasses__())
    assert {raw[4] for raw in HOT_FRAMES.values()} == set(range(CONTROL + 1, frames.DELIVER_FROM + 1))


def test_the_preamble_stays() -> None:
    assert PREAMBLE.hex(" ") == "48 45 4c 49 4f 01 0d 0a"


# ---- ids


@pytest.mark.req("M5")
@pytest.mark.parametrize("name", IDS)
def test_an_id_is_issued_as_the_golden_bytes(name: str) -> None:
    assert IDS[name].hex(" ") == specimens.golden("ids", name).hex(" ")


@pytest.mark.req("M5")
def test_a_golden_id_says_who_issued_it_and_when() -> None:
    lane = specimens.LANE
    assert text_of(specimens.golden("ids", "session")) == "1.2.18bcfe56800.1"
    assert text_of(specimens.golden("ids", "lane")) == "1.2.18bcfe56800.1/3"
    assert message_id(lane, 258) == "1.2.18bcfe56800.1/3-258"
    assert (session_of(lane), lane_number(lane)) == (specimens.SESSION, 3)


@pytest.mark.req("M5")
def test_ids_of_the_reference_are_what_a_node_issues() -> None:
    issuer = IdIssuer(site=0x1111, node=0x2222, started_ms=0x3333_4444_5555)
    assert lane_of(issuer.session(), 0x7777).hex(" ") == "11 11 22 22 33 33 44 44 55 55 00 00 00 01 77 77"

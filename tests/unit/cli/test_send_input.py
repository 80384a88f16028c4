"""What `helio send` makes of its arguments and of standard input."""

import asyncio
import os
from pathlib import Path

import pytest
import uvloop

from heliograph.cli.send import Receipt, chosen_body, parse_properties, read_lines, text_or_bytes

pytestmark = pytest.mark.req("X4")


def test_properties_are_texts_unless_written_as_json() -> None:
    assert parse_properties(
        ["colour=red", "n:=3", "rate:=0.5", "ok:=true", "none:=null", "eq=a=b", "empty="]
    ) == {
        "colour": "red",
        "n": 3,
        "rate": 0.5,
        "ok": True,
        "none": None,
        "eq": "a=b",
        "empty": "",
    }


def test_a_body_is_given_made_up_or_read() -> None:
    assert chosen_body("hello", None, 5) == "hello"
    assert chosen_body("", None, 1) == ""
    assert chosen_body(None, 3, 1) == b"xxx"
    assert chosen_body("-", None, 1) is None


def test_a_line_that_is_no_text_stays_bytes() -> None:
    assert text_or_bytes("grün".encode()) == "grün"
    assert text_or_bytes(b"\xff") == b"\xff"


async def gather(descriptor: int) -> list[bytes]:
    return [line async for lines in read_lines(descriptor) for line in lines]


def test_lines_of_a_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\nthree\r\n" + b"x" * 200_000 + b"\nlast")
    with path.open("rb") as stream:
        assert uvloop.run(gather(stream.fileno())) == [b"one", b"", b"three\r", b"x" * 200_000, b"last"]


def test_lines_of_a_pipe_come_as_they_are_written_and_the_pipe_is_left_as_it_was() -> None:
    reading, writing = os.pipe()

    async def story() -> list[bytes]:
        seen: list[bytes] = []
        os.write(writing, b"one\ntw")
        async for lines in read_lines(reading):
            seen += lines
            if seen == [b"one"]:
                os.write(writing, b"o\n")
            else:
                os.close(writing)
        return seen

    assert uvloop.run(asyncio.wait_for(story(), 60)) == [b"one", b"two"]
    assert os.get_blocking(reading)
    os.close(reading)


def test_a_receipt_reads_well() -> None:
    one = Receipt(destination="queue:a", confirmed=1, bytes=5, seconds=0.001, id="1.1.x.1/1-1")
    assert one.sentence() == "1 message confirmed, sent to queue:a (1.1.x.1/1-1)"
    many = Receipt(destination="queue:a", confirmed=50_000, bytes=5, seconds=0.5)
    assert many.sentence() == "50,000 messages confirmed, sent to queue:a in 0.50 s (100,000/s)"
    assert many.record()["messages_per_second"] == 100_000

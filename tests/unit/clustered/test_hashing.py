"""The value of a message is the same on every machine, in every version, one at a time or a block at once (H1)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.clustered.adapter import Delivery
from heliograph.clustered.hashing import (
    KIND_TEXT,
    MASK,
    MIX,
    VALUES,
    Field,
    _sum_of,
    in_range,
    value_of,
    value_of_text,
)
from heliograph.clustered.hashing_blocks import (
    chosen,
    sums_of_integers,
    sums_of_texts,
    values_of,
    values_of_texts,
)
from heliograph.clustered.ranges import Ranges
from heliograph.clustered.verifier import FIELDS, MessageVerifier, slot

# Never change these: members of another version, archives and checkpoints rely on them.
GOLDEN: list[tuple[tuple[Field, ...], int]] = [
    (("",), 504389435),
    (("a",), 1933486280),
    (("customer-5",), 3833224859),
    (("1.2.19a5b3c4d5e.7/1-42",), 1389048057),
    (("Zürich",), 541196743),
    (("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",), 3740655481),
    ((b"a",), 3816013303),
    ((0,), 540910421),
    ((1,), 747863319),
    ((-1,), 1037937157),
    ((1180591620717411303424,), 170968809),
    ((True,), 2097461715),
    ((False,), 10845710),
    ((None,), 4191940119),
    ((1.5,), 3191221837),
    (("orders", 4), 1598771494),
    ((4, "orders"), 4253301959),
    (("a", "b"), 33485559),
    (("ab", ""), 3605597175),
    (("x" * 600,), 1357187559),
    (("0f8fad5b-d9cb-469f-a165-70867728950e",), 2894861717),
    ((2**63 + 5,), 2962067829),
]


@pytest.mark.req("H1")
@pytest.mark.parametrize(("fields", "value"), GOLDEN)
def test_values_never_change(fields: tuple[Field, ...], value: int) -> None:
    assert value_of(fields) == value


@pytest.mark.req("H1")
def test_another_process_with_another_seed_finds_the_same() -> None:
    question = "from heliograph.clustered.hashing import value_of; print(value_of(['customer-5', 4]))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", question],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{value_of(['customer-5', 4])}\n"}


def _packed(texts: list[str]) -> tuple[bytes, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    raw = [text.encode() for text in texts]
    return b"".join(raw), np.cumsum([0, *map(len, raw)], dtype=np.int64)


@given(st.lists(st.text(max_size=70), min_size=1, max_size=20))
def test_a_block_at_once_is_the_same_as_one_by_one(texts: list[str]) -> None:
    buffer, offsets = _packed(texts)
    assert values_of_texts(buffer, offsets).tolist() == [value_of([text]) for text in texts]
    assert [value_of_text(text) for text in texts] == [value_of([text]) for text in texts]


@pytest.mark.req("H1")
@pytest.mark.parametrize("length", [0, 7, 8, 31, 32, 33, 36, 63, 64, 65, 512, 513])
def test_the_quick_ways_find_the_same_as_the_plain_one(length: int) -> None:
    text = ("Zürich 0123456789abcdefghijklmnopqrstuvwxyz" * 20).encode()[:length].decode(errors="ignore")
    text += "." * (length - len(text.encode()))
    number = _sum_of(text.encode(), KIND_TEXT) & MASK
    value = ((number ^ number >> 32) * MIX & MASK) >> 32
    assert value_of([text]) == value_of_text(text) == value
    assert in_range(lambda message: message, value, value + 1)(text)
    assert not in_range(lambda message: message, value + 1, VALUES)(text)


@pytest.mark.req("H1")
def test_what_is_remembered_of_the_first_fields_is_that_of_the_very_same_fields() -> None:
    kinds: list[Any] = [1, True, 1.0, 0.0, -0.0, None, "1", b"1", 1, 2**63, -1]
    for fields in (
        ["priority", "id"],
        ["destination", "priority", "id", "type"],
        ["destination", "priority", "mode", "id"],
        ["priority", "mode"],
        ["id", "priority", "priority", "destination"],
        ["property:kind", "property:kind", "id"],
    ):
        halves = [
            MessageVerifier(fields, Ranges([bounds])) for bounds in ((0, VALUES // 2), (VALUES // 2, VALUES))
        ]
        apart = MessageVerifier(fields, Ranges([(0, VALUES // 4), (VALUES // 2, VALUES // 4 * 3)]))
        for kind in [*kinds, *reversed(kinds)]:
            properties = {"kind": kind}
            message = Delivery(
                id="x" * 36, body=b"", destination="orders", priority=kind, type="t", properties=properties
            )
            value = value_of(
                [properties.get("kind") if ":" in f else getattr(message, FIELDS[f]) for f in fields]
            )
            assert apart.value(message) == value
            assert [half.is_mine(message) for half in halves] == [value < VALUES // 2, value >= VALUES // 2]
            assert apart.is_mine(message) == (value in apart.ranges)


@pytest.mark.req("H1")
def test_numbers_without_a_sign_are_the_same_in_a_block() -> None:
    numbers = [0, 5, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1]
    values = values_of([sums_of_integers(np.array(numbers, dtype=np.uint64))])
    assert values.tolist() == [value_of([number]) for number in numbers]


@pytest.mark.req("H1")
@pytest.mark.parametrize("kind", ["uint8", "int32", "uint32", "int64", "uint64"])
def test_offsets_of_any_type_find_the_same(kind: str) -> None:
    texts = ["a", "", "a text of several words of eight bytes", "b" * 9, "Zürich"]
    buffer, offsets = _packed(texts)
    assert values_of_texts(buffer, offsets.astype(kind)).tolist() == [value_of([text]) for text in texts]


def test_very_long_texts_in_a_block_are_the_same_too() -> None:
    texts = ["short", "x" * 512, "y" * 513, "z" * 5000]
    buffer, offsets = _packed(texts)
    assert values_of_texts(buffer, offsets).tolist() == [value_of([text]) for text in texts]


@given(st.lists(st.tuples(st.text(max_size=40), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=20))
def test_several_columns_are_the_same_as_several_fields(rows: list[tuple[str, int]]) -> None:
    buffer, offsets = _packed([text for text, _ in rows])
    numbers = np.array([number for _, number in rows], dtype=np.int64)
    values = values_of([sums_of_texts(buffer, offsets), sums_of_integers(numbers)])
    assert values.tolist() == [value_of(row) for row in rows]


@given(
    st.lists(st.integers(0, VALUES - 1), min_size=1, max_size=50),
    st.lists(st.integers(0, VALUES), unique=True, min_size=2, max_size=6).filter(
        lambda cuts: len(cuts) % 2 == 0
    ),
)
def test_what_a_block_chooses_is_what_the_ranges_contain(values: list[int], cuts: list[int]) -> None:
    ranges = Ranges(list(zip(sorted(cuts)[::2], sorted(cuts)[1::2], strict=True)))
    picked = chosen(np.array(values, dtype=np.uint32), ranges.bounds)
    assert picked.tolist() == [value in ranges for value in values]


@pytest.mark.parametrize(
    "form", ["customer-{}", "1.2.19a5b3c4d5e.7/1-{}", "{}", "{:08d}", "order.{}.created"]
)
def test_values_are_spread_evenly_whatever_ids_look_like(form: str) -> None:
    """By chance, a slot of 64 with 1,000 expected has between 850 and 1,150 all but once in a million times."""
    counts = [0] * 64
    for number in range(64_000):
        counts[slot(value_of_text(form.format(number)), 64)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150

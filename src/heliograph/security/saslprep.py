"""One spelling for names and passwords that look the same (SASLprep, RFC 4013), so that both ends compute with
the same bytes."""

from __future__ import annotations

import stringprep
import unicodedata
from typing import Final

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def prepared(text: str) -> str:
    """Raises ValueError for what cannot be spelt."""
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter
        for letter in text
        if not stringprep.in_table_b1(letter)
    )
    normal = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for letter in normal:
        if any(prohibited(letter) for prohibited in _PROHIBITED):
            raise ValueError("it has a character that cannot be used")
    _check_directions(normal)
    return normal


def _check_directions(text: str) -> None:
    """Text that runs from right to left begins and ends so, and has nothing else in it."""
    if not any(map(stringprep.in_table_d1, text)):
        return
    if any(map(stringprep.in_table_d2, text)) or not (
        stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    ):
        raise ValueError("it mixes directions of writing")

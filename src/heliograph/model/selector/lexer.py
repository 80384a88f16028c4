"""A selector's text as tokens: JMS 2.0, 3.8.1.1 for the forms of literals and identifiers.

Numbers are decimal only. The clause also points at Java's forms (`0x1F`, `017`, `57L`), which peers read in
three different ways; a suffix or a prefix is refused here and leading zeros mean nothing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

import msgspec

from heliograph.model.limits import MAX_SELECTOR_BYTES
from heliograph.model.selector.faults import TOO_COMPLEX, SelectorFault

# The largest whole number that a property can hold.
MAX_EXACT: Final = 2**64 - 1

KEYWORDS: Final = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
)
IDENTIFIER: Final = "identifier"
STRING: Final = "string"
NUMBER: Final = "number"
END: Final = "end"
_SPELLED: Final = (IDENTIFIER, STRING)

_NUMBER = re.compile(r"(?:[0-9]+(?P<point>\.[0-9]*)?|(?P<bare>\.[0-9]+))(?P<exponent>[eE][+-]?[0-9]+)?")
_OPERATORS: Final = ("<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ",")
_HINTS: Final = {
    '"': "a string stands in single quotes, 'like this'",
    "!": "not equal is written <>",
    "&": "write AND",
    "|": "write OR",
    "%": "there is no remainder operator",
}
# What Character.isJavaIdentifierStart accepts, and what isJavaIdentifierPart adds to it.
_START: Final = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PART: Final = _START | {"Nd", "Mn", "Mc"}


class Token(msgspec.Struct, frozen=True):
    """`kind` is the operator or keyword itself, or one of the four above."""

    kind: str
    value: str | int | float
    column: int
    text: str


def tokenize(text: str) -> list[Token]:
    """All tokens and one END behind them. Raises SelectorFault."""
    _check_size(text)
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        token = _token(text, position)
        tokens.append(token)
        position += len(token.text)
    tokens.append(Token(END, "", len(text) + 1, ""))
    return tokens


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as fault:
        raise SelectorFault("half of a surrogate pair is no character", column=fault.start + 1) from None
    if size > MAX_SELECTOR_BYTES:
        raise SelectorFault(
            f"it has {size} bytes and may have {MAX_SELECTOR_BYTES}",
            column=MAX_SELECTOR_BYTES,
            code=TOO_COMPLEX,
        )


def _token(text: str, position: int) -> Token:
    first = text[position]
    if first == "'":
        return _string(text, position)
    if found := _NUMBER.match(text, position):
        return _number(text, found)
    if unicodedata.category(first) in _START:
        return _word(text, position)
    for operator in _OPERATORS:
        if text.startswith(operator, position):
            return Token(operator, operator, position + 1, operator)
    hint = _HINTS.get(first)
    raise SelectorFault(
        f"{first!r} means nothing here{f'; {hint}' if hint else ''}",
        column=position + 1,
    )


def _string(text: str, start: int) -> Token:
    """A quote inside is doubled."""
    end = start + 1
    while (end := text.find("'", end)) >= 0:
        if not text.startswith("''", end):
            raw = text[start : end + 1]
            return Token(STRING, raw[1:-1].replace("''", "'"), start + 1, raw)
        end += 2
    raise SelectorFault("the string that begins here does not end", column=start + 1)


def _number(text: str, found: re.Match[str]) -> Token:
    raw = found.group()
    column = found.start() + 1
    after = text[found.end() : found.end() + 1]
    if after and (after in "'." or unicodedata.category(after) in _PART):
        raise SelectorFault(
            f"a number is written 57, 5.7 or 5.7E3, without prefix or suffix; {after!r} cannot follow it",
            column=found.end() + 1,
        )
    value: int | float
    if found["point"] is None and found["bare"] is None and found["exponent"] is None:
        digits = raw.lstrip("0") or "0"
        # The length first: converting thousands of digits is slow, and refused by Python.
        if len(digits) > 20 or (value := int(digits)) > MAX_EXACT:
            raise SelectorFault("the number does not fit into 64 bits", column=column)
    elif math.isinf(value := float(raw)):
        raise SelectorFault("the number is beyond the range of a double", column=column)
    return Token(NUMBER, value, column, raw)


def _word(text: str, start: int) -> Token:
    end = start + 1
    while end < len(text) and unicodedata.category(text[end]) in _PART:
        end += 1
    word = text[start:end]
    # Only ASCII letters make a keyword: "ıs".upper() is "IS" as well.
    keyword = word.upper() if word.isascii() else ""
    return Token(keyword if keyword in KEYWORDS else IDENTIFIER, word, start + 1, word)


def canonical(tokens: list[Token]) -> str:
    """The same for selectors that differ only in blanks, the case of keywords and the form of numbers."""
    return " ".join(
        repr(token.value) if token.kind == NUMBER else token.text if token.kind in _SPELLED else token.kind
        for token in tokens[:-1]
    )

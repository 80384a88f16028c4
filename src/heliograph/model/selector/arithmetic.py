"""Arithmetic over what properties hold, as JMS has it: numbers only, and NULL (None) for everything else.

Whole numbers are exact and do not overflow; a quotient of two of them is cut towards zero, as in Java and
SQL. TRUE is no number here, though Python thinks so: hence exact types throughout.
"""

from __future__ import annotations

from typing import Any

Number = int | float | None


def plus(left: Any, right: Any) -> Number:
    try:
        return left + right if are_numbers(left, right) else None
    except OverflowError:  # a whole number beyond the range of a double, and a double
        return None


def minus(left: Any, right: Any) -> Number:
    try:
        return left - right if are_numbers(left, right) else None
    except OverflowError:
        return None


def times(left: Any, right: Any) -> Number:
    try:
        return left * right if are_numbers(left, right) else None
    except OverflowError:
        return None


def over(left: Any, right: Any) -> Number:
    if not are_numbers(left, right) or right == 0:
        return None
    try:
        if type(left) is float or type(right) is float:
            return float(left / right)
    except OverflowError:
        return None
    quotient: int = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def are_numbers(left: Any, right: Any) -> bool:
    """Whether two values can be added and ordered."""
    return (type(left) is int or type(left) is float) and (type(right) is int or type(right) is float)


def are_alike(left: Any, right: Any) -> bool:
    """Whether two values can be equal or unequal: both numbers, both strings or both booleans."""
    kind = type(left)
    if kind is str or kind is bool:
        return type(right) is kind
    return are_numbers(left, right)

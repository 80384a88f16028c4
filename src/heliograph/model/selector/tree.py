"""What a selector says, without its spelling.

`x BETWEEN a AND b` is here already `x >= a AND x <= b`, and `NOT IN`, `NOT LIKE`, `IS NOT NULL` are a Not
around the plain form: three-valued logic makes them the same.

Python holds `1 == True`, so literals must not be compared with `==` to tell selectors apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from heliograph.model.selector.like import Segment

Constant = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Literal:
    value: Constant


@dataclass(frozen=True, slots=True)
class Identifier:
    """A header or a property. Where a condition is expected, the question whether it is TRUE."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: str
    left: Value
    right: Value
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        depth = 1 + max(getattr(self.left, "depth", 0), getattr(self.right, "depth", 0))
        object.__setattr__(self, "depth", depth)


Value = Literal | Identifier | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Membership:
    """IN: all strings, or all numbers."""

    identifier: Identifier
    values: tuple[str, ...] | tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class Likeness:
    """LIKE: the pattern cut at its `%`."""

    identifier: Identifier
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Absence:
    """IS NULL."""

    identifier: Identifier


@dataclass(frozen=True, slots=True)
class Not:
    term: Condition


@dataclass(frozen=True, slots=True)
class All:
    """AND over two terms or more."""

    terms: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """OR over two terms or more."""

    terms: tuple[Condition, ...]


Condition = Comparison | Membership | Likeness | Absence | Not | All | Either | Identifier | Literal
Node = Condition | Arithmetic


def identifiers(node: Node) -> Iterator[str]:
    """The names that a tree asks for, from left to right, repeated ones included."""
    match node:
        case Identifier(name):
            yield name
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            yield from identifiers(left)
            yield from identifiers(right)
        case Membership(identifier, _) | Likeness(identifier, _) | Absence(identifier):
            yield identifier.name
        case Not(term):
            yield from identifiers(term)
        case All(terms) | Either(terms):
            for term in terms:
                yield from identifiers(term)
        case Literal():
            pass


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Conditions of which every one must be true."""
    return condition.terms if isinstance(condition, All) else (condition,)

"""A tree becomes a Python function that picks rows out of columns.

Three values without a third one: a condition is true, false or unknown, and a message is selected only where
it is true. So the source asks just two questions, "is it true?" and "is it false?". NOT swaps them, AND asks
"is it true?" of every term and "is it false?" of any; what is unknown answers no to both. Every node is
written once, whatever the nesting.

The source is made from the tree alone, and nothing of a client's text gets into it: identifiers are columns
`c0`, `c1`, … and constants are data, `k0`, `k1`, …. So selectors of one shape share one function, and any
number of them are tried in one call. For `type = 'N' AND size > 3` it reads

    def pick(rows, constants, c0, c1):
        matched = []
        for who, (k0, k1,) in constants.items():
            found = []
            for i in rows:
                if (c0[i] == k0 and ((type(v := c1[i]) is int or type(v) is float) and v > k1)):
                    found.append(i)
            if found:
                matched.append((who, found))
        return matched
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, assert_never

from heliograph.model.limits import MAX_SHARED_SELECTOR_SOURCE
from heliograph.model.selector import arithmetic
from heliograph.model.selector.like import compile_like
from heliograph.model.selector.tree import (
    Absence,
    All,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Either,
    Identifier,
    Likeness,
    Literal,
    Membership,
    Not,
    Value,
)

Pick = Callable[..., list[tuple[Any, list[int]]]]
"""pick(rows, constants, *columns): for each who in `constants`, which of `rows` the condition holds for."""


class Compiled(NamedTuple):
    """What a condition is made of: its shape, and what differs among conditions of that shape."""

    pick: Pick
    constants: tuple[Any, ...]

    def rows(self, rows: Sequence[int], columns: Sequence[list[Any]]) -> list[int]:
        """The rows that this one condition holds for."""
        matched = self.pick(rows, {None: self.constants}, *columns)
        return matched[0][1] if matched else []


_NAMES: Final = {
    "__builtins__": {},
    "type": type,
    "int": int,
    "float": float,
    "str": str,
    "plus": arithmetic.plus,
    "minus": arithmetic.minus,
    "times": arithmetic.times,
    "over": arithmetic.over,
    "are_numbers": arithmetic.are_numbers,
    "are_alike": arithmetic.are_alike,
}
_ARITHMETIC: Final = {"+": "plus", "-": "minus", "*": "times", "/": "over"}
_PYTHON: Final = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITE: Final = {"=": "<>", "<>": "="}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_IS_NUMBER: Final = "(type(v := {}) is int or type(v) is float)"
_NEVER: Final = "False"


def compile_condition(condition: Condition, names: Sequence[str], *, wanted: bool = True) -> Compiled:
    """Picks the rows where the condition is true, or with `wanted=False` false. It takes one column for each
    of `names`."""
    writer = _Writer(names)
    question = writer.condition(condition, wanted)
    columns = "".join(f", c{n}" for n in range(len(names)))
    constants = "".join(f"k{n}, " for n in range(len(writer.constants)))
    source = (
        f"def pick(rows, constants{columns}):\n"
        " matched = []\n"
        f" for who, ({constants}) in constants.items():\n"
        "  found = []\n"
        "  for i in rows:\n"
        f"   if {question}:\n"
        "    found.append(i)\n"
        "  if found:\n"
        "   matched.append((who, found))\n"
        " return matched\n"
    )
    pick = _compile_once(source) if len(source) <= MAX_SHARED_SELECTOR_SOURCE else _compile(source)
    return Compiled(pick, tuple(writer.constants))


def _compile(source: str) -> Pick:
    namespace: dict[str, Any] = dict(_NAMES)
    exec(compile(source, "<selector>", "exec"), namespace)
    pick: Pick = namespace["pick"]
    return pick


_compile_once = lru_cache(maxsize=256)(_compile)


class _Writer:
    """Writes conditions and values as Python expressions."""

    def __init__(self, names: Sequence[str]) -> None:
        self._columns = {name: f"c{n}[i]" for n, name in enumerate(names)}
        self.constants: list[Any] = []

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def condition(self, node: Condition, wanted: bool) -> str:
        """True exactly where `node` is true (`wanted`), or exactly where it is false (not `wanted`)."""
        match node:
            case All(terms) | Either(terms):
                joint = " and " if isinstance(node, All) == wanted else " or "
                return "(" + joint.join(self.condition(term, wanted) for term in terms) + ")"
            case Not(term):
                return self.condition(term, not wanted)
            case Comparison():
                return self._comparison(node, wanted)
            case Membership(identifier, values):
                is_known = "type(v := {}) is str" if isinstance(values[0], str) else _IS_NUMBER
                known = is_known.format(self.value(identifier))
                return f"({known} and v {'in' if wanted else 'not in'} {self._constant(frozenset(values))})"
            case Likeness(identifier, segments):
                matches = self._constant(compile_like(segments))
                known = f"type(v := {self.value(identifier)}) is str"
                return f"({known} and {'' if wanted else 'not '}{matches}(v))"
            case Absence(identifier):
                return f"{self.value(identifier)} {'is' if wanted else 'is not'} None"
            case Identifier():
                return f"{self.value(node)} is {wanted}"
            case Literal(value):
                return str(value is wanted)
            case _:
                assert_never(node)

    def value(self, node: Value) -> str:
        match node:
            case Identifier(name):
                return self._columns[name]
            case Literal(value):
                return self._constant(value)
            case Arithmetic(operator, left, right):
                return f"{_ARITHMETIC[operator]}({self.value(left)}, {self.value(right)})"
            case _:
                assert_never(node)

    def _comparison(self, node: Comparison, wanted: bool) -> str:
        """Values that are not alike, NULL among them, compare as unknown: no to both questions.

        An order is denied with `not v < 3` instead of `v >= 3`: of a NaN neither holds.
        """
        operator, left, right = node.operator, node.left, node.right
        if isinstance(left, Literal):
            operator, left, right = _TURNED[operator], right, left
        denied = ""
        if not wanted:
            operator, denied = (_OPPOSITE[operator], "") if operator in _OPPOSITE else (operator, "not ")
        if isinstance(right, Literal):
            return self._with_constant(operator, denied, self.value(left), right.value)
        guard = "are_alike" if operator in _OPPOSITE else "are_numbers"
        known = f"{guard}(v := {self.value(left)}, w := {self.value(right)})"
        return f"({known} and {denied}v {_PYTHON[operator]} w)"

    def _with_constant(self, operator: str, denied: str, value: str, constant: Constant) -> str:
        """Most comparisons: the kind of the constant says what the value must be."""
        match constant, operator:
            case bool(), "=" | "<>":
                return f"{value} is {constant == (operator == '=')}"
            case str(), "=":
                return f"{value} == {self._constant(constant)}"
            case str(), "<>":
                return f"(type(v := {value}) is str and v != {self._constant(constant)})"
            case bool() | str(), _:
                return _NEVER  # strings and booleans have no order (JMS 2.0, 3.8.1.1)
            case _, "=" if constant not in (0, 1):  # nothing but a number equals it; True equals 1
                return f"{value} == {self._constant(constant)}"
            case _:
                known = _IS_NUMBER.format(value)
                return f"({known} and {denied}v {_PYTHON[operator]} {self._constant(constant)})"

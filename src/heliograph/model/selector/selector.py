"""A selector, ready to use: parsed, compiled, and tried on blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from weakref import WeakValueDictionary

from heliograph.model.message import Property
from heliograph.model.selector.columns import HEADER_NAMES, Columns
from heliograph.model.selector.compiler import Compiled, compile_condition
from heliograph.model.selector.lexer import canonical, tokenize
from heliograph.model.selector.parser import parse_tokens
from heliograph.model.selector.tree import All, Condition, conjuncts, identifiers

_ONE_ROW = (0,)


class Selector:
    """Which messages a consumer wants. Selectors that differ only in their spelling are equal in
    `canonical`."""

    def __init__(self, text: str) -> None:
        """Raises SelectorFault. Applications with a text that may be empty call `parse_selector`."""
        tokens = tokenize(text)
        self.text = text
        self.canonical = canonical(tokens)
        self.tree: Condition = parse_tokens(tokens)
        self.names = tuple(dict.fromkeys(identifiers(self.tree)))
        self.compiled = compile_condition(self.tree, self.names)
        self._gate_names, self._gate = _compile_gate(self.tree, self.names)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def select(self, columns: Columns, within: Sequence[int] | None = None) -> list[int]:
        """The messages that match, by their place in the block; all are tried, or those `within`."""
        rows = range(columns.count) if within is None else within
        shared = columns.shared(self.names)
        if shared is not None:
            return list(rows) if self.compiled.rows(_ONE_ROW, shared) else []
        if self._gate is not None:
            shared = columns.shared(self._gate_names)
            if shared is not None and not self._gate.rows(_ONE_ROW, shared):
                return []
        return self.compiled.rows(rows, columns.columns(self.names))

    def evaluate(self, values: Mapping[str, Property]) -> bool | None:
        """True, False, or None for unknown, for one message whose values are at hand; what is missing is
        NULL."""
        row = [[values.get(name)] for name in self.names]
        if self.compiled.rows(_ONE_ROW, row):
            return True
        return False if self._opposite.rows(_ONE_ROW, row) else None

    @cached_property
    def _opposite(self) -> Compiled:
        return compile_condition(self.tree, self.names, wanted=False)


def _compile_gate(tree: Condition, names: tuple[str, ...]) -> tuple[tuple[str, ...], Compiled | None]:
    """The terms of a conjunction that a block usually answers for all its messages, without any decoding.

    Where they are not true, nothing in the block can match.
    """
    terms = [term for term in conjuncts(tree) if all(name in HEADER_NAMES for name in identifiers(term))]
    if not terms or len(terms) == len(conjuncts(tree)):
        return (), None
    gate_names = tuple(name for name in names if name in HEADER_NAMES)
    return gate_names, compile_condition(All(tuple(terms)), gate_names)


# Weak: clients choose the texts, and a selector that nobody uses any more must not stay.
_in_use: WeakValueDictionary[str, Selector] = WeakValueDictionary()


def parse_selector(text: str) -> Selector | None:
    """None for an empty or blank text, which selects everything (JMS 2.0, 3.8.1.1). Raises SelectorFault.

    Selectors do not change, so subscriptions with the same text share one.
    """
    if not text or text.isspace():
        return None
    selector = _in_use.get(text)
    if selector is None:
        selector = _in_use[text] = Selector(text)
    return selector

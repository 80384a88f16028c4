"""Selectors (J7): which messages a consumer wants, in the SQL-92 subset of JMS 2.0, section 3.8.

    text ──lexer──▶ tokens ──parser──▶ tree ──compiler──▶ a Python function over columns
    block ──columns──▶ lists of values, decoded once and only where somebody asks
    index: thousands of selectors over one block, of which only those that can match are tried

The language is described in docs/reference/selectors.md.
"""

from heliograph.model.selector.columns import Columns
from heliograph.model.selector.faults import SelectorFault
from heliograph.model.selector.index import SelectorIndex
from heliograph.model.selector.selector import Selector, parse_selector

__all__ = ["Columns", "Selector", "SelectorFault", "SelectorIndex", "parse_selector"]

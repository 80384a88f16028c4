"""Random selectors against two judges that share no code with ours (J7).

SQLite knows SQL's three-valued logic and precedence: it gets expressions in which every value is of the kind
its place wants, or NULL. What JMS says of values of the wrong kind, a naive interpreter of a tree knows.
"""

from __future__ import annotations

import json
import sqlite3
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heliograph.model.block import Block, pack, parse
from heliograph.model.ids import IdIssuer, lane_of
from heliograph.model.message import Head, Property, encode_head
from heliograph.model.selector import Columns, Selector, SelectorFault, SelectorIndex
from heliograph.model.selector.like import compile_like, parse_like

pytestmark = pytest.mark.req("J7")

LANE = lane_of(IdIssuer(site=1, node=1, started_ms=1).session(), 1)

# ------------------------------------------------------------------ expressions that SQLite understands

NUMBERS = ("n1", "n2", "f1")
STRINGS = ("s1", "s2")
BOOLEANS = ("b1", "b2")
small = st.integers(-20, 20)
eighths = st.integers(-80, 80).map(lambda n: n / 8)
words = st.text("ab%_'é\n", max_size=5)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Signed literals in parentheses: two minus signs in a row begin a comment in SQL.
number_terms = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(NUMBERS),
    st.integers(0, 20).map(str),
    eighths.map(lambda value: f"({value!r})"),
    st.sampled_from(["7.", ".5", "1E1", "2.5e0"]),
)
# Without parentheses more often than not: the judge has its own idea of precedence.
numbers = st.recursive(
    number_terms,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("- ({})".format, inner),
        st.builds("+ {}".format, number_terms),
    ),
    max_leaves=5,
)
ORDERS = ("=", "<>", "<", "<=", ">", ">=")
orders = st.sampled_from(ORDERS)
equalities = st.sampled_from(["=", "<>"])
negation = st.sampled_from(["", "NOT "])
strings = st.one_of(st.sampled_from(STRINGS), words.map(quoted))


@st.composite
def likes(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(STRINGS))
    negated = draw(negation)
    if draw(st.booleans()):
        return f"{name} {negated}LIKE {quoted(draw(words))}"
    parts = draw(st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!", "é"]), max_size=6))
    return f"{name} {negated}LIKE {quoted(''.join(parts))} ESCAPE '!'"


comparisons = st.one_of(
    st.builds("{} {} {}".format, numbers, orders, numbers),
    st.builds("{} {} {}".format, strings, equalities, strings),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(BOOLEANS),
        equalities,
        st.sampled_from([*BOOLEANS, "TRUE", "false"]),
    ),
    st.sampled_from(BOOLEANS),
    st.builds("{} {}BETWEEN {} AND {}".format, numbers, negation, numbers, numbers),
    st.builds(
        "{} {}IN ({})".format,
        st.sampled_from(STRINGS),
        negation,
        st.lists(words.map(quoted), min_size=1, max_size=3).map(", ".join),
    ),
    st.builds(
        "{} {}IN ({})".format,
        st.sampled_from(NUMBERS),
        negation,
        st.lists(st.one_of(small, eighths).map(repr), min_size=1, max_size=3).map(", ".join),
    ),
    likes(),
    st.builds("{} IS {}NULL".format, st.sampled_from([*NUMBERS, *STRINGS, *BOOLEANS]), negation),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR", "and", "Or"]), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("NOT {}".format, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=8,
)
messages = st.fixed_dictionaries(
    {
        "n1": st.none() | small,
        "n2": st.none() | small,
        "f1": st.none() | eighths,
        "s1": st.none() | words,
        "s2": st.none() | words,
        "b1": st.none() | st.booleans(),
        "b2": st.none() | st.booleans(),
    }
)
sqlite = sqlite3.connect(":memory:")
sqlite.execute("PRAGMA case_sensitive_like = ON")


def by_sqlite(text: str, message: dict[str, Property]) -> bool | None:
    columns = ", ".join(f"? AS {name}" for name in message)
    row = sqlite.execute(f"SELECT ({text}) FROM (SELECT {columns})", list(message.values())).fetchone()
    return None if row[0] is None else bool(row[0])


@given(conditions, messages)
@settings(max_examples=400, deadline=None)
@example("NOT n1 = 1 AND b1", {"n1": 2, "b1": True})
@example("n1 / n2 = 1 OR NOT n1 / n2 = 1", {"n1": -7, "n2": 0})
def test_sqlite_agrees(text: str, message: dict[str, Property]) -> None:
    complete = {name: message.get(name) for name in (*NUMBERS, *STRINGS, *BOOLEANS)}
    assert Selector(text).evaluate(complete) is by_sqlite(text, complete)


def spelled(letters: str, longest: int) -> list[str]:
    return ["".join(each) for size in range(longest + 1) for each in product(letters, repeat=size)]


def test_sqlite_agrees_about_like_for_every_short_pattern_and_text() -> None:
    texts = spelled("ab", 5)
    sqlite.execute("CREATE TEMPORARY TABLE texts AS SELECT value FROM json_each(?)", [json.dumps(texts)])
    for pattern in spelled("ab%_", 5):
        matches = compile_like(parse_like(pattern, None))
        answers = sqlite.execute("SELECT value LIKE ? FROM texts ORDER BY rowid", [pattern]).fetchall()
        assert [matches(text) for text in texts] == [bool(answer) for (answer,) in answers], pattern


# ---------------------------------------------------------------- expressions of all kinds, as trees

Tree = tuple[Any, ...]
NAMES = ("a", "b", "c")
# Few values, so that they meet often: above all those that Python holds to be equal and JMS does not.
CONSTANTS = (0, 1, True, False, 1.0, 0.5, -2, "a", "1", "")
constants = st.sampled_from(CONSTANTS)
VALUES = (*CONSTANTS, None, b"a", 2**53 + 1, 2**63, 1e308, float("nan"), float("inf"))
values = st.sampled_from([*VALUES, *CONSTANTS])
name_leaves = st.tuples(st.just("name"), st.sampled_from(NAMES))
constant_leaves = st.tuples(st.just("constant"), constants)
leaves = st.one_of(name_leaves, name_leaves, constant_leaves)
value_trees: st.SearchStrategy[Tree] = st.recursive(
    leaves, lambda inner: st.tuples(st.just("sum"), st.sampled_from("+-*/"), inner, inner), max_leaves=4
)
names = st.sampled_from(NAMES)
condition_trees: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(
        st.tuples(st.just("compare"), orders, value_trees, value_trees),
        st.tuples(st.just("compare"), equalities, leaves, leaves),
        st.tuples(st.just("compare"), orders, name_leaves, constant_leaves),
        st.tuples(st.just("between"), value_trees, value_trees, value_trees),
        st.tuples(st.just("in"), names, st.sampled_from([["a", "1"], [""], ["a", ""]])),
        st.tuples(st.just("in"), names, st.sampled_from([[0, 0.5], [1], [-2, 1.0]])),
        st.tuples(st.just("prefix"), names, st.sampled_from(["", "a"])),
        st.tuples(st.just("null"), names),
        st.tuples(st.just("name"), names),
        st.tuples(st.just("constant"), st.booleans()),
    ),
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=6,
)


def written(tree: Tree) -> str:
    match tree:
        case ("name", name):
            return str(name)
        case ("constant", str() as text):
            return quoted(text)
        case ("constant", value):
            return str(value)
        case ("sum" | "compare", operator, left, right):
            return f"({written(left)} {operator} {written(right)})"
        case ("between", middle, low, high):
            return f"({written(middle)} BETWEEN {written(low)} AND {written(high)})"
        case ("in", name, members):
            return f"({name} IN ({', '.join(written(('constant', each)) for each in members)}))"
        case ("prefix", name, start):
            return f"({name} LIKE '{start}%')"
        case ("null", name):
            return f"({name} IS NULL)"
        case ("not", term):
            return f"(NOT {written(term)})"
        case (joint, left, right):
            return f"({written(left)} {joint} {written(right)})"
    raise AssertionError(tree)


def kind(value: Any) -> str:
    """Numbers, strings and booleans can be compared with their like; nothing else can be compared."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "other"


def value_of(tree: Tree, message: dict[str, Any]) -> Any:
    match tree:
        case ("name", name):
            return message.get(name)
        case ("constant", value):
            return value
    _, operator, left_tree, right_tree = tree
    left, right = value_of(left_tree, message), value_of(right_tree, message)
    if kind(left) != "number" or kind(right) != "number":
        return None
    try:
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
        if isinstance(left, float) or isinstance(right, float):
            return left / right
        rest = abs(left) % abs(right)
        return (left - rest if left > 0 else left + rest) // right
    except (ZeroDivisionError, OverflowError):
        return None


def compared(operator: str, left: Any, right: Any) -> bool | None:
    if kind(left) != kind(right) or kind(left) == "other":
        return None
    if operator == "=":
        return bool(left == right)
    if operator == "<>":
        return bool(left != right)
    if kind(left) != "number":
        return None
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator])


def both(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else True if left and right else None


def denied(term: bool | None) -> bool | None:
    return None if term is None else not term


def judged(tree: Tree, message: dict[str, Any]) -> bool | None:
    match tree:
        case ("compare", operator, left, right):
            return compared(operator, value_of(left, message), value_of(right, message))
        case ("between", middle, low, high):
            value = value_of(middle, message)
            return both(
                compared(">=", value, value_of(low, message)), compared("<=", value, value_of(high, message))
            )
        case ("in", name, members):
            answers = [compared("=", message.get(name), each) for each in members]
            return None if None in answers else any(answers)
        case ("prefix", name, start):
            text = message.get(name)
            return text.startswith(start) if isinstance(text, str) else None
        case ("null", name):
            return message.get(name) is None
        case ("not", term):
            return denied(judged(term, message))
        case ("and", left, right):
            return both(judged(left, message), judged(right, message))
        case ("or", left, right):
            return denied(both(denied(judged(left, message)), denied(judged(right, message))))
    value = value_of(tree, message)
    return value if isinstance(value, bool) else None


odd_messages = st.one_of(st.fixed_dictionaries(dict.fromkeys(NAMES, values)), st.dictionaries(names, values))


def block(messages: list[dict[str, Any]]) -> Block:
    heads = [encode_head(Head(properties=message)) if message else b"" for message in messages]
    return parse(pack([b""] * len(heads), lane=LANE, first=1, heads=heads))


def simple_conditions() -> list[Tree]:
    """All that a single condition can be, over the values above."""
    operands: list[Tree] = [("name", "b"), *(("constant", value) for value in CONSTANTS)]
    listed = [["a", "1"], [""], [0, 0.5], [1], [-2, 1.0]]
    plain: list[Tree] = [
        *(("compare", operator, ("name", "a"), right) for operator in ORDERS for right in operands),
        *(("compare", operator, left, ("name", "a")) for operator in ORDERS for left in operands),
        *(("between", ("name", "a"), ("constant", 0), right) for right in operands),
        *(("in", "a", members) for members in listed),
        *(("prefix", "a", start) for start in ("", "a")),
        ("null", "a"),
        ("name", "a"),
        ("or", ("compare", "=", ("name", "a"), ("constant", 1)), ("name", "a")),
        ("or", ("compare", "=", ("name", "a"), ("constant", "a")), ("in", "a", ["1"])),
    ]
    return [*plain, *(("not", tree) for tree in plain)]


def test_every_simple_condition_on_every_pair_of_values() -> None:
    """Chance seldom lets `a = 1` meet TRUE, or an order meet a NaN."""
    messages = [{"a": left, "b": right} for left in VALUES for right in VALUES]
    made = Columns(block(messages))
    index: SelectorIndex[str] = SelectorIndex()
    expected: dict[str, list[int]] = {}
    for tree in simple_conditions():
        selector = Selector(written(tree))
        verdicts = [judged(tree, message) for message in messages]
        assert [selector.evaluate(message) for message in messages] == verdicts, selector
        rows = [row for row, verdict in enumerate(verdicts) if verdict]
        assert selector.select(made) == rows, selector
        if rows:
            expected[selector.text] = rows
        index.add(selector.text, selector)
    assert dict(index.match(made)) == expected


@given(condition_trees, st.lists(odd_messages, min_size=1, max_size=6))
@settings(max_examples=400, deadline=None)
def test_a_naive_judge_agrees_whatever_kinds_values_have(tree: Tree, messages: list[dict[str, Any]]) -> None:
    selector = Selector(written(tree))
    verdicts = [judged(tree, message) for message in messages]
    assert [selector.evaluate(message) for message in messages] == verdicts
    rows = [row for row, verdict in enumerate(verdicts) if verdict is True]
    assert selector.select(Columns(block(messages))) == rows


# ------------------------------------------------------------------------------------ the index


@given(
    st.lists(condition_trees, min_size=1, max_size=12),
    st.lists(st.lists(odd_messages, min_size=1, max_size=6), min_size=1, max_size=2),
    st.lists(st.integers(0, 11), max_size=6),
    st.integers(0, 30),
)
@settings(max_examples=120, deadline=None)
def test_the_index_answers_like_trying_every_selector(
    trees: list[Tree], blocks: list[list[dict[str, Any]]], leaving: list[int], strangers: int
) -> None:
    """`strangers`: selectors that nobody's messages meet, so that many properties are wanted at once."""
    index: SelectorIndex[int] = SelectorIndex()
    staying = {key: Selector(written(tree)) for key, tree in enumerate(trees)}
    staying |= {100 + n: Selector(f"stranger{n} = 1") for n in range(strangers)}
    for key, selector in staying.items():
        index.add(key, selector)
    for key in leaving:
        index.remove(key)
        staying.pop(key, None)
    for messages in blocks:
        made = block(messages)
        tried = {key: rows for key, each in staying.items() if (rows := each.select(Columns(made)))}
        matched = index.match(Columns(made))
        assert len(matched) == len(tried)
        assert dict(matched) == tried


# ------------------------------------------------------------------------------- hostile input

fragments = st.sampled_from(
    [
        *"()=<>+-*/,.'%_ ab1é\x00\ud800",
        *("AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "ESCAPE", "TRUE"),
        *("2.5", "'x'", "''", "1E9", "<>", "<=", "JMSPriority"),
    ]
)


def made_from(text: str) -> tuple[Selector | None, SelectorFault | None]:
    try:
        return Selector(text), None
    except SelectorFault as fault:
        return None, fault


@given(
    st.one_of(
        st.text(max_size=60), st.lists(fragments, max_size=25).map(" ".join), st.lists(fragments).map("".join)
    )
)
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_selector_or_a_selector_fault(text: str) -> None:
    selector, fault = made_from(text)
    if selector is None:
        assert fault is not None
        assert 1 <= fault.column <= len(text) + 1
        return
    assert Selector(selector.canonical).canonical == selector.canonical
    for value in (None, 1, 0.0, "x", True, b""):
        message = dict.fromkeys(selector.names, value)
        assert Selector(selector.canonical).evaluate(message) is selector.evaluate(message)


@given(
    st.lists(
        st.one_of(st.binary(max_size=12), odd_messages.map(lambda m: encode_head(Head(properties=m)))),
        min_size=1,
    ),
    st.sampled_from(["a = 1", "a IS NULL OR JMSType = 'x'", "a <> b AND JMSXGroupSeq > 0"]),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_bytes_may_stand_where_a_head_should(heads: list[bytes], text: str, many: bool) -> None:
    made = parse(pack([b""] * len(heads), lane=LANE, first=1, heads=heads))
    if many:
        text += "".join(f" OR unknown{n} = 1" for n in range(20))
    selector = Selector(text)
    rows = selector.select(Columns(made))
    assert set(rows) <= set(range(len(heads)))
    index: SelectorIndex[str] = SelectorIndex()
    index.add("key", selector)
    assert index.match(Columns(made)) == ([("key", rows)] if rows else [])

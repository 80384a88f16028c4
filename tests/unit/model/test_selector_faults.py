"""A selector that cannot be is refused when it is made, with the column of the fault (J7)."""

import sys
import time

import pytest

from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_SELECTOR_BYTES, MAX_SELECTOR_DEPTH, MAX_SELECTOR_TERMS
from heliograph.model.selector import Selector, SelectorFault

pytestmark = pytest.mark.req("J7")


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("colour = ", 10, "expected a value, found the end"),
        ("colour == 'blue'", 9, "expected a value, found ="),
        ("a = 1 b = 2", 7, "expected AND, OR or the end, found b"),
        ("(a = 1", 7, "expected an operator or ), found the end"),
        ("a = 1)", 6, "expected AND, OR or the end, found )"),
        ("a = (b AND c)", 8, "expected an operator or ), found AND"),
        ("a = 1 AND", 10, "expected a value, found the end"),
        ("a = 'blue", 5, "does not end"),
        ('a = "blue"', 5, "single quotes"),
        ("a != 1", 3, "<>"),
        ("a = 1 && b", 7, "AND"),
        ("a = 57L", 7, "without prefix or suffix"),
        ("a = 0x1F", 6, "without prefix or suffix"),
        ("a = 1.2.3", 8, "without prefix or suffix"),
        ("a = 1E", 6, "without prefix or suffix"),
        ("a = 18446744073709551616", 5, "64 bits"),
        ("a = " + "9" * 5000, 5, "64 bits"),
        ("a = 1E999", 5, "range of a double"),
        ("a = NULL", 5, "IS NULL"),
        ("a IS 1", 6, "expected NULL or NOT NULL, found 1"),
        ("a BETWEEN 1 OR 2", 13, "expected AND, found OR"),
        ("a NOT = 1", 7, "expected BETWEEN, IN or LIKE"),
        ("a IN ()", 7, "expected a string or a number"),
        ("a IN ('x' 'y')", 11, "a comma or )"),
        ("a IN ('x', 3)", 12, "only strings or only numbers"),
        ("a IN (b)", 7, "expected a string or a number, found b"),
        ("a IN (- 'x')", 9, "expected a number"),
        ("3 IN (3)", 1, "by its name"),
        ("b AND a + 1 IS NULL", 7, "by its name"),
        ("a LIKE b", 8, "a pattern in single quotes"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "exactly one character"),
        ("a LIKE 'x!y' ESCAPE '!'", 8, "escapes only"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "escapes only"),
        ("'blue'", 1, "a condition is needed"),
        ("a AND 5", 7, "a condition is needed"),
        ("a OR b + 1", 6, "a condition is needed"),
        ("NOT 5", 5, "a condition is needed"),
        ("(a > 1) + 1 = 2", 1, "a value is needed"),
        ("a = b = c", 1, "a value is needed"),
        ("a = NOT b", 5, "a value is needed"),
        ("a = -NOT b", 6, "a value is needed"),
        ("JMSRedelivered = TRUE", 1, "cannot be selected by JMSRedelivered"),
        ("a = \ud800", 5, "surrogate"),
        ("a # b", 3, "means nothing"),
        ("雪 = ?", 5, "means nothing"),
    ],
)
def test_the_sentence_says_where_and_what(text: str, column: int, words: str) -> None:
    with pytest.raises(SelectorFault) as caught:
        Selector(text)
    fault = caught.value
    assert isinstance(fault, ClientFault)
    assert fault.code == "selector-invalid"
    assert fault.column == column
    assert f"column {column}:" in fault.sentence
    assert words in fault.sentence


BOMBS = {
    "too long": "a = 1 OR " * 1000 + "a = 1",
    "parentheses": "(" * 4000 + "a" + ")" * 4000,
    "open parentheses": "(" * 8000,
    "values": "a OR b AND x = " + "1 + 2 * (" * 300,
    "conditions": "a OR b AND NOT (" * 400,
    "NOT": "NOT " * 2000 + "a",
    "signs": "a = " + "-" * 8000 + "1",
    "sum": "a = 1" + "+1" * 500,
    "product in parentheses": "a = " + "(b*" * 100 + "b" + ")" * 100,
    "terms": "a OR " * 600 + "a",
    "list": "a IN (" + "1," * 1000 + "1)",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_as_too_complex(name: str) -> None:
    begin = time.process_time()
    with pytest.raises(SelectorFault) as caught:
        Selector(BOMBS[name])
    assert caught.value.code == "selector-too-complex"
    assert time.process_time() - begin < 1


def test_what_is_just_within_the_limits_works_on_a_crowded_stack() -> None:
    deep = MAX_SELECTOR_DEPTH
    largest = [
        "(" * deep + "a = 1" + ")" * deep,
        "NOT " * deep + "a = 1",
        "x OR y AND NOT (" * (deep // 2) + "a = 1" + ")" * (deep // 2),
        "a = " + "1 + 1 * (" * (deep // 2) + "a" + ")" * (deep // 2),
        "a = 1" + " + 0" * deep,
        " OR ".join(["a"] * (MAX_SELECTOR_TERMS - 2)) + " OR a = 1",
        "a IN (" + ",".join(map(str, range(MAX_SELECTOR_TERMS - 1))) + ")",
        "a = '" + "x" * (MAX_SELECTOR_BYTES - 6) + "' OR a = 1"[: -len(" OR a = 1")],
    ]

    def crowded(frames: int) -> None:
        if frames:
            return crowded(frames - 1)
        for text in largest:
            Selector(text).evaluate({"a": 1})
        return None

    crowded(sys.getrecursionlimit() // 4)


def test_the_worst_pattern_and_text_take_no_time_to_speak_of() -> None:
    selector = Selector("a LIKE '%" + "a_" * 500 + "b%" + "_a" * 500 + "%'")
    begin = time.process_time()
    assert selector.evaluate({"a": "a" * 65_000}) is False
    assert time.process_time() - begin < 1


def test_nothing_of_a_selector_becomes_python() -> None:
    hostile = "'+__import__(\"os\").abort()+'"
    literal = hostile.replace("'", "''")
    assert Selector(f"a = '{literal}'").evaluate({"a": hostile}) is True
    assert Selector(f"a IN ('{literal}') AND a LIKE '{literal.replace('_', '!_')}' ESCAPE '!'").evaluate(
        {"a": hostile}
    )
    # Names that mean something in Python, or in the code that is made.
    names = ["type", "v", "i", "rows", "found", "c0", "k0", "lambda", "plus", "__builtins__", "None"]
    assert Selector(" AND ".join(f"{name} = 1" for name in names)).evaluate(dict.fromkeys(names, 1)) is True

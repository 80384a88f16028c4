"""What a selector means, statement by statement of JMS 2.0, section 3.8 (J7)."""

from collections.abc import Callable

import pytest

from heliograph.model.message import Property
from heliograph.model.selector import Selector, SelectorFault, parse_selector

pytestmark = pytest.mark.req("J7")

Values = dict[str, Property]
UNKNOWN = None


def truth(text: str, **values: Property) -> bool | None:
    return Selector(text).evaluate(values)


@pytest.mark.parametrize("blank", ["", " ", "\t\r\n "])
def test_an_empty_selector_is_none(blank: str) -> None:
    assert parse_selector(blank) is None


def test_equal_texts_share_one_selector_while_it_is_in_use() -> None:
    first = parse_selector("colour = 'blue'")
    assert first is parse_selector("colour = 'blue'")
    assert first is not parse_selector("colour = 'red'")


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57),
        ("-957", -957),
        ("+62", 62),
        ("- - 5", 5),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551615", 2**64 - 1),
        ("7.", 7.0),
        (".5", 0.5),
        ("-95.7", -95.7),
        ("+6.2", 6.2),
        ("7E3", 7000.0),
        ("1e3", 1000.0),
        ("-57.9E2", -5790.0),
        (".5E-1", 0.05),
        ("7.E1", 70.0),
        ("'literal'", "literal"),
        ("'literal''s'", "literal's"),
        ("''''", "'"),
        ("''", ""),
        ("'Zürich 雪'", "Zürich 雪"),
        ("'\\ \n \"'", '\\ \n "'),
        ("'' ", ""),
        ("TRUE", True),
        ("false", False),
    ],
)
def test_literals(literal: str, value: Property) -> None:
    assert truth(f"x = {literal}", x=value) is True
    assert truth(f"{literal} = x", x=value) is True
    assert truth(f"x <> {literal}", x=value) is False
    assert truth(f"x = {literal}") is UNKNOWN


@pytest.mark.parametrize(
    "name", ["a", "_a", "$a", "a1", "a_$9", "Größe", "size€", "雪", "nullable", "Inner", "ıs"]
)
def test_identifiers_are_what_java_says(name: str) -> None:
    assert truth(f"{name} = 1", **{name: 1}) is True


def test_identifiers_are_case_sensitive_and_keywords_are_not() -> None:
    assert truth("Colour = 1", colour=1) is UNKNOWN
    assert truth("a Is nOt Null aNd a bEtween 1 anD 3 Or fAlse", a=2) is True


@pytest.mark.parametrize(
    "word", ["NULL", "true", "Not", "AND", "or", "BETWEEN", "like", "IN", "is", "Escape"]
)
def test_reserved_words_are_no_identifiers(word: str) -> None:
    with pytest.raises(SelectorFault):
        Selector(f"{word} IS NULL")


@pytest.mark.parametrize(
    ("operator", "results"),
    [  # for 2, 3 and 4 compared with 3
        ("=", (False, True, False)),
        ("<>", (True, False, True)),
        ("<", (True, False, False)),
        ("<=", (True, True, False)),
        (">", (False, False, True)),
        (">=", (False, True, True)),
    ],
)
@pytest.mark.parametrize("convert", [int, float])
def test_comparison_of_exact_and_approximate_numbers(
    operator: str, results: tuple[bool, ...], convert: Callable[[int], Property]
) -> None:
    for number, result in zip((2, 3, 4), results, strict=True):
        assert truth(f"x {operator} 3", x=convert(number)) is result
        assert truth(f"x {operator} 3.0", x=convert(number)) is result
        assert truth(f"x {operator} y", x=convert(number), y=3.0) is result
        assert truth(f"{number} {operator} y", y=convert(3)) is result
        assert truth(f"NOT x {operator} 3", x=convert(number)) is not result


def test_large_whole_numbers_are_compared_exactly() -> None:
    assert truth("x = 9007199254740993", x=2**53) is False
    assert truth("x > 9007199254740992", x=2**53 + 1) is True


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_strings_and_booleans_have_no_order(operator: str) -> None:
    assert truth(f"x {operator} 'm'", x="a") is UNKNOWN
    assert truth(f"x {operator} TRUE", x=False) is UNKNOWN
    assert truth(f"x {operator} y", x="a", y="b") is UNKNOWN


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("'a' < 3", {}),
        ("x = 3", {"x": "3"}),
        ("x <> 3", {"x": "3"}),
        ("x = '3'", {"x": 3}),
        ("x <> '3'", {"x": 3}),
        ("x = TRUE", {"x": 1}),
        ("x = 1", {"x": True}),
        ("x = 0", {"x": False}),
        ("x > 0", {"x": True}),
        ("x = y", {"x": True, "y": 1}),
        ("x = y", {"x": b"a", "y": b"a"}),
        ("x = y", {"x": None, "y": None}),
        ("x", {"x": "TRUE"}),
        ("x", {"x": 1}),
        ("x + 1 = 2", {"x": "1"}),
        ("x + 1 = 2", {"x": True}),
        ("-x = 1", {"x": "1"}),
        ("x / 0 = 1", {"x": 1}),
        ("x / 0.0 > 1", {"x": 1}),
        ("1 / x = 1 / x", {"x": 0}),
        ("x BETWEEN 1 AND 'z'", {"x": 2}),
        ("x BETWEEN 1 AND 3", {"x": "2"}),
        ("x IN ('1')", {"x": 1}),
        ("x IN (1)", {"x": True}),
        ("x LIKE '%'", {"x": 1}),
        ("x LIKE '%'", {"x": b"a"}),
    ],
)
def test_values_that_are_not_alike_compare_as_unknown_and_not_makes_no_difference(
    text: str, values: Values
) -> None:
    assert Selector(text).evaluate(values) is UNKNOWN
    assert Selector(f"NOT ({text})").evaluate(values) is UNKNOWN


TRUTH_TABLES = {
    ("T", "T"): (True, True),
    ("T", "F"): (False, True),
    ("T", "U"): (UNKNOWN, True),
    ("F", "T"): (False, True),
    ("F", "F"): (False, False),
    ("F", "U"): (False, UNKNOWN),
    ("U", "T"): (UNKNOWN, True),
    ("U", "F"): (False, UNKNOWN),
    ("U", "U"): (UNKNOWN, UNKNOWN),
}


@pytest.mark.parametrize(("left", "right"), TRUTH_TABLES)
def test_the_truth_tables(left: str, right: str) -> None:
    both, either = TRUTH_TABLES[left, right]
    values: Values = {"T": True, "F": False}
    opposite = {True: False, False: True, UNKNOWN: UNKNOWN}
    assert Selector(f"{left} AND {right}").evaluate(values) is both
    assert Selector(f"{left} OR {right}").evaluate(values) is either
    assert Selector(f"NOT ({left} AND {right})").evaluate(values) is opposite[both]
    assert Selector(f"NOT ({left} OR {right})").evaluate(values) is opposite[either]


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a OR b AND c", "a OR (b AND c)"),
        ("NOT a AND b", "(NOT a) AND b"),
        ("NOT a OR b", "(NOT a) OR b"),
        ("NOT x = 1 AND b", "(NOT (x = 1)) AND b"),
        ("a AND NOT b OR c", "(a AND (NOT b)) OR c"),
    ],
)
def test_not_binds_before_and_and_and_before_or(text: str, grouped: str) -> None:
    for bits in range(16):
        values: Values = {name: bool(bits >> n & 1) for n, name in enumerate("abc")} | {"x": bits >> 3}
        assert Selector(text).evaluate(values) is Selector(grouped).evaluate(values), values


@pytest.mark.parametrize(
    ("sum_", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("10 - (3 - 2)", 9),
        ("100 / 10 / 2", 5),
        ("2 * -3", -6),
        ("-x * 2", -8),
        ("-(x - 5)", 1),
        ("+x", 4),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("7 / 2.0", 3.5),
        ("7. / x", 1.75),
        ("1 + .5", 1.5),
        ("2 + 3 = 5 AND 1", None),
    ],
)
def test_arithmetic(sum_: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(SelectorFault):
            Selector(f"y = {sum_}")
        return
    assert truth(f"y = {sum_}", x=4, y=value) is True
    assert truth(f"{sum_} = {value}", x=4) is True


def test_numbers_that_outgrow_a_double_are_null() -> None:
    power = "*".join(["x"] * 20)
    assert truth(f"{power} > 0", x=2**63) is True
    for operator in "+-*/":
        assert truth(f"{power} {operator} 1.5 > 0", x=2**63) is UNKNOWN


def test_not_a_number_is_equal_to_nothing_and_in_no_order() -> None:
    nan = float("nan")
    assert truth("x = x", x=nan) is False
    assert truth("x <> 1", x=nan) is True
    assert truth("x < 1", x=nan) is False
    assert truth("NOT x < 1", x=nan) is True


def test_between_is_a_pair_of_comparisons() -> None:
    assert [truth("age BETWEEN 15 AND 19", age=age) for age in (14, 15, 19, 20)] == [False, True, True, False]
    assert [truth("age NOT BETWEEN 15 AND 19", age=age) for age in (14, 15, 20)] == [True, False, True]
    assert truth("age BETWEEN 15 AND 19") is UNKNOWN
    assert truth("age BETWEEN 15 AND limit", age=14) is False
    assert truth("age NOT BETWEEN 15 AND limit", age=14) is True
    assert truth("age BETWEEN low + 1 AND low * 2 AND sure", age=5, low=4, sure=True) is True


def test_in_a_list() -> None:
    text = "country IN ('UK', 'US', 'France')"
    assert truth(text, country="UK") is True
    assert truth(text, country="Peru") is False
    assert truth(text) is UNKNOWN
    assert truth("country NOT IN ('UK', 'US')", country="Peru") is True
    assert truth("country NOT IN ('UK', 'US')", country="US") is False
    assert truth("country NOT IN ('UK', 'US')") is UNKNOWN


def test_in_takes_numbers_too() -> None:
    assert truth("n IN (1, -2, 3.5)", n=-2.0) is True
    assert truth("n NOT IN (1, +2)", n=3) is True


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("'12%3'", ["123", "12993"], ["1234", "12", "0123"]),
        ("'l_se'", ["lose", "l雪se", "l\nse"], ["loose", "lse"]),
        ("'\\_%' ESCAPE '\\'", ["_foo", "_"], ["bar", ""]),
        ("'a%b%c'", ["abc", "aXbYc", "abbcc"], ["acb", "ab", "bc"]),
        ("'%ab_ab%'", ["xabyabz", "abaab", "aabxab"], ["abab", "aabb"]),
        ("'%_a_%'", ["xay", "aaa"], ["a", "ax", "xa"]),
        ("'__%'", ["ab", "abc"], ["a", ""]),
        ("'%'", ["", "x"], []),
        ("'%%'", ["", "x"], []),
        ("''", [""], ["x"]),
        ("'a!%b!!c!_' ESCAPE '!'", ["a%b!c_"], ["axb!c_"]),
        ("'ab%a%'", ["aba", "abxa"], ["abb"]),
        ("'%a%ba'", ["aba"], ["bba", "ba"]),
        ("'ab%ab'", ["abab", "abxab"], ["ab", "aba"]),
        ("'a.c'", ["a.c"], ["abc"]),
        ("'ab%%%_c'", ["abxc"], ["abc"]),
    ],
)
def test_like(pattern: str, matching: list[str], others: list[str]) -> None:
    for text, result in [*((text, True) for text in matching), *((text, False) for text in others)]:
        assert truth(f"x LIKE {pattern}", x=text) is result, text
        assert truth(f"x NOT LIKE {pattern}", x=text) is not result, text
    assert truth(f"x LIKE {pattern}") is UNKNOWN
    assert truth(f"x NOT LIKE {pattern}") is UNKNOWN


def test_is_null_is_never_unknown() -> None:
    assert truth("x IS NULL") is True
    assert truth("x IS NULL", x=None) is True
    assert truth("x IS NULL", x=0) is False
    assert truth("x IS NOT NULL", x=b"bytes") is True
    assert truth("x IS NOT NULL") is False


def test_a_property_alone_asks_whether_it_is_true() -> None:
    assert [truth("urgent", urgent=value) for value in (True, False, None)] == [True, False, UNKNOWN]
    assert truth("(urgent) = TRUE AND NOT late", urgent=True, late=False) is True


def test_spelling_does_not_make_a_different_selector() -> None:
    assert Selector("a  =1 aNd b LIKE 'X'").canonical == Selector("a = 01 AND b like 'X'").canonical
    assert Selector("a = 1").canonical != Selector("a = 1.0").canonical
    assert Selector("a = 'b'").canonical != Selector("a = b").canonical
    assert Selector("a = 'and'").canonical != Selector("a = 'AND'").canonical

"""Patterns over topic names (M12)."""

import time

import pytest

from heliograph.model.address_pattern import AddressPattern
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_GLOB_BYTES, MAX_REGEX_BYTES
from heliograph.model.patterns import (
    Form,
    Pattern,
    PatternFault,
    parse_pattern,
)

pytestmark = pytest.mark.req("M12")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        (
            "topic:glob:prices.*",
            ["topic:prices.eu", "topic:prices.", "topic:prices.eu.gas"],
            ["topic:prices"],
        ),
        (
            "topic:glob:prices.??",
            ["topic:prices.eu", "topic:prices.雪a"],
            ["topic:prices.e", "topic:prices.eur"],
        ),
        ("topic:glob:*", ["topic:a", "topic:a:b"], ["queue:a"]),
        ("topic:glob:a+(b)[c]", ["topic:a+(b)[c]"], ["topic:aab", "topic:abc"]),
        ("topic:glob:*.eu", ["topic:prices.eu"], ["topic:prices.eu.old"]),
        (r"topic:regex:^prices\.(eu|us)$", ["topic:prices.eu"], ["topic:prices.eux", "topic:xprices.eu"]),
        ("topic:regex:prices", ["topic:old.prices.eu"], ["topic:price"]),
        ("topic:regex:(?i)^A:B", ["topic:a:bc"], ["topic:x:a:b"]),
    ],
)
def test_which_topics_are_meant(pattern: str, matching: list[str], others: list[str]) -> None:
    parsed = parse_pattern(pattern)
    assert parsed is not None
    assert str(parsed) == pattern
    assert [address for address in matching if not parsed.matches(address)] == []
    assert [address for address in [*others, "queue:prices.eu"] if parsed.matches(address)] == []


def test_an_address_that_says_no_form_is_no_pattern() -> None:
    for address in ("topic:prices.*", "topic:prices", "queue:a", "topic:globe:x", "glob:x", "", "x:glob:y"):
        assert parse_pattern(address) is None


def test_patterns_are_for_topics() -> None:
    with pytest.raises(PatternFault, match="write topic:glob:PATTERN"):
        parse_pattern("queue:glob:orders.*")


def test_names_of_the_server_are_reached_only_by_name() -> None:
    assert not Pattern.glob("*").matches("topic:_LOG")
    assert not Pattern.regex(".*").matches("topic:_LOG")
    assert not Pattern.glob("?LOG").matches("topic:_LOG")
    assert Pattern.glob("_L*").matches("topic:_LOG")
    assert Pattern.regex("^_LOG$").matches("topic:_LOG")


def test_patterns_written_alike_are_equal() -> None:
    assert Pattern.glob("a*") == Pattern(Form.GLOB, "a*")
    assert len({Pattern.glob("a*"), Pattern.glob("a*"), Pattern.regex("a*")}) == 2


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "empty"),
        ("a\nb", 2, "printable"),
        ("a\ud800", 2, "printable"),
        ("(abc", 1, "missing )"),
        ("ab[z-a]", 4, "range"),
        ("*a", 1, "repetition"),
        ("a(?=b)", 2, "(?="),
        (r"(a)\1", 4, "escape"),
        ("a{5000}", 2, "repetition size"),
        (".{1000}" * 50, 0, "too large"),
        ("a" * (MAX_REGEX_BYTES + 1), 0, "at most"),
        ("é" * (MAX_REGEX_BYTES // 2 + 1), 0, "at most"),
    ],
)
def test_what_is_no_regular_expression_is_refused_with_its_place(
    text: str, position: int, words: str
) -> None:
    with pytest.raises(PatternFault) as caught:
        parse_pattern(f"topic:regex:{text}")
    assert isinstance(caught.value, ClientFault)
    assert caught.value.code == "pattern-invalid"
    assert caught.value.position == position
    assert words in caught.value.sentence
    if position:
        assert f"position {position}" in caught.value.sentence


def test_the_largest_globs_work_and_larger_ones_are_refused() -> None:
    longest = "topic:" + "雪" * (MAX_GLOB_BYTES // 3)
    for text in ("?" * (MAX_GLOB_BYTES // 3), "*" * MAX_GLOB_BYTES, "*雪" * (MAX_GLOB_BYTES // 4)):
        assert Pattern.glob(text).matches(longest)
    with pytest.raises(PatternFault):
        Pattern.glob("*" * (MAX_GLOB_BYTES + 1))


@pytest.mark.parametrize(
    "pattern", [Pattern.regex("^(a+)+$"), Pattern.regex("(a|aa)*c"), Pattern.glob("*a" * 100)]
)
def test_no_pattern_takes_long(pattern: Pattern) -> None:
    begin = time.process_time()
    assert not pattern.matches("topic:" + "a" * 254 + "b")
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    ("rule", "pattern", "meets", "covers"),
    [
        ("topic:a*", "topic:glob:a*", True, True),
        ("topic:a*", "topic:glob:ab?", True, True),
        ("topic:a?", "topic:glob:a*", True, False),
        ("topic:a?", "topic:glob:a?", True, True),
        ("*", "topic:glob:*", True, True),
        ("*:ab*", "topic:glob:a*", True, False),
        ("queue:*", "topic:glob:a", False, False),
        ("topic:b*", "topic:glob:a*", False, False),
        ("topic:ax", "topic:glob:a?", True, False),
        ("topic:axy", "topic:glob:a?", False, False),
        ("topic:*", "topic:glob:_a*", False, False),
        ("topic:_a*", "topic:glob:_a*", True, False),
        ("topic:a/*", "topic:regex:^a/[^/]*$", True, True),
        ("topic:a.b*", "topic:regex:^a\\.b", True, True),
        ("topic:ab*", "topic:regex:^ab?", True, False),
        ("topic:ab*", "topic:regex:^ab|c", True, False),
        ("topic:ab*", "topic:regex:ab", True, False),
        ("topic:b*", "topic:regex:^a/", False, False),
    ],
)
def test_a_rule_meets_and_covers_what_a_pattern_can_mean(
    rule: str, pattern: str, meets: bool, covers: bool
) -> None:
    parsed = parse_pattern(pattern)
    assert parsed is not None
    assert (AddressPattern(rule).meets(parsed), AddressPattern(rule).covers(parsed)) == (meets, covers)

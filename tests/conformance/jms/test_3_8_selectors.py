"""JMS 2.0, section 3.8: message selectors.

`assert_selects` tries each selector on a queue and on a topic.
"""

from __future__ import annotations

import time

import pytest

from tests.conformance.jms.adapter import InvalidSelector, Mode, Property
from tests.conformance.jms.stage import Stage, bodies_of, next_of, take

pytestmark = pytest.mark.req("J7")

T: dict[str, Property] = {"p": True}
F: dict[str, Property] = {"p": False}
U: dict[str, Property] = {}


# ---- 3.8.1 what a selector does


def test_3_8_1_only_matching_messages_are_delivered(stage: Stage) -> None:
    """3.8.1: a consumer gets the messages for which its selector is true."""
    stage.assert_selects(
        "color = 'blue'", wanted=[{"color": "blue"}], unwanted=[{"color": "red"}, {"shape": "round"}]
    )


def test_3_8_1_the_example_of_the_specification(stage: Stage) -> None:
    """3.8.1.1: a header, a text and a number in one selector."""
    stage.assert_selects_sent(
        "JMSType = 'car' AND color = 'blue' AND weight > 2500",
        wanted=[{"type": "car", "properties": {"color": "blue", "weight": 2501}}],
        unwanted=[
            {"type": "van", "properties": {"color": "blue", "weight": 2501}},
            {"type": "car", "properties": {"color": "red", "weight": 2501}},
            {"type": "car", "properties": {"color": "blue", "weight": 2500}},
            {"properties": {"color": "blue", "weight": 2501}},
        ],
    )


def test_3_8_1_a_selector_does_not_see_the_body(stage: Stage) -> None:
    """3.8.1: selectors cannot refer to what is in the body."""
    queue = stage.queue()
    stage.send(queue, {"color": "blue"})
    with stage.session().consumer(queue, selector="color = 'blue'") as consumer:
        assert consumer.receive_no_wait() is None
    (left,) = stage.left_in(queue)
    assert not left.redelivered


def test_3_8_1_what_one_consumer_does_not_want_another_gets(stage: Stage) -> None:
    """3.8.1 and 4.1.2: messages that are not selected stay for other consumers of the queue."""
    queue = stage.queue()
    session = stage.session()
    blue = session.consumer(queue, selector="color = 'blue'")
    other = session.consumer(queue, selector="color <> 'blue'")
    for color in ("red", "blue", "green", "blue"):
        stage.send(queue, color, properties={"color": color})
    assert bodies_of(take(blue, 2)) == ["blue", "blue"]
    assert bodies_of(take(other, 2)) == ["red", "green"]


def test_3_8_1_what_nobody_wants_stays_in_order(stage: Stage) -> None:
    """4.1.2: unselected messages remain on the queue, in their place."""
    queue = stage.queue()
    for n in range(10):
        stage.send(queue, f"message {n}", properties={"even": n % 2 == 0})
    with stage.session().consumer(queue, selector="even") as consumer:
        assert bodies_of(take(consumer, 5)) == [f"message {n}" for n in range(0, 10, 2)]
    assert bodies_of(stage.left_in(queue)) == [f"message {n}" for n in range(1, 10, 2)]


def test_3_8_1_a_selected_message_is_found_behind_many_others(stage: Stage) -> None:
    """4.1.2: however many unselected messages stand before it, a consumer gets what it selects."""
    queue = stage.queue()
    with stage.helper.producer(queue, persistent=False) as producer:
        for n in range(2000):
            producer.send_async(b"hay", lambda _error: None, properties={"n": n})
        producer.send(b"needle", properties={"n": -1})
    assert next_of(stage.session().consumer(queue, selector="n = -1")).body == b"needle"


def test_3_8_1_a_selector_on_a_subscription_decides_what_is_kept(stage: Stage) -> None:
    """3.8.1 and 4.2.2: only messages that match are ever added to the subscription."""
    topic = stage.topic()
    session = stage.session()
    some, everything = session.consumer(topic, selector="n > 1"), session.consumer(topic)
    for n in range(4):
        stage.send(topic, f"message {n}", properties={"n": n})
    assert bodies_of(take(some, 2)) == ["message 2", "message 3"]
    assert len(take(everything, 4)) == 4
    assert some.receive_no_wait() is None


def test_3_8_1_a_returned_message_goes_only_to_those_who_select_it(stage: Stage) -> None:
    """3.8.1: a message that comes back is selected anew, and not given to whoever is there."""
    queue = stage.queue()
    session = stage.session(Mode.CLIENT)
    blue, red = (session.consumer(queue, selector=f"color = '{color}'") for color in ("blue", "red"))
    stage.send(queue, "blue", properties={"color": "blue"})
    next_of(blue)
    session.recover()
    again = next_of(blue)
    assert (again.body, again.redelivered) == ("blue", True)
    assert red.receive_no_wait() is None


# ---- 3.8.1.1 syntax: literals


@pytest.mark.parametrize("selector", ["", "  \t\n"])
def test_3_8_1_1_an_empty_selector_selects_everything(stage: Stage, selector: str) -> None:
    """3.8.1.1: an empty text is no selector at all."""
    stage.assert_selects(selector, wanted=[{}, {"a": 1}])


def test_3_8_1_1_a_quote_in_a_string_is_doubled(stage: Stage) -> None:
    """3.8.1.1: 'literal''s' is the text literal's."""
    stage.assert_selects(
        "word = 'literal''s'", wanted=[{"word": "literal's"}], unwanted=[{"word": "literals"}]
    )


def test_3_8_1_1_strings_are_unicode(stage: Stage) -> None:
    """3.8.1.1: string literals use Unicode."""
    stage.assert_selects(
        "city = 'Zürich 東京'", wanted=[{"city": "Zürich 東京"}], unwanted=[{"city": "Zurich"}]
    )


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("57", 57),
        ("-957", -957),
        ("+62", 62),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_3_8_1_1_exact_numbers(stage: Stage, literal: str, value: int) -> None:
    """3.8.1.1: whole numbers in the range of 64 bits, with or without a sign, compared exactly."""
    other = value - 1 if value > 0 else value + 1
    stage.assert_selects(f"n = {literal}", wanted=[{"n": value}], unwanted=[{"n": other}])


@pytest.mark.parametrize(
    ("literal", "value"),
    [("7E3", 7000.0), ("-57.9E2", -5790.0), ("7.", 7.0), ("-95.7", -95.7), ("+6.2", 6.2), (".5", 0.5)],
)
def test_3_8_1_1_approximate_numbers(stage: Stage, literal: str, value: float) -> None:
    """3.8.1.1: numbers with a point or an exponent, in the range of a double."""
    stage.assert_selects(f"n = {literal}", wanted=[{"n": value}], unwanted=[{"n": value + 0.5}])


def test_3_8_1_1_boolean_literals(stage: Stage) -> None:
    """3.8.1.1: TRUE and FALSE."""
    stage.assert_selects("p = TRUE", wanted=[T], unwanted=[F, U])
    stage.assert_selects("p = FALSE", wanted=[F], unwanted=[T, U])


# ---- 3.8.1.1 syntax: identifiers


@pytest.mark.parametrize("name", ["_x", "$y", "größe", "名前", "a1_$", "Nothing", "andes", "x" * 200])
def test_3_8_1_1_identifiers_follow_the_rules_of_java(stage: Stage, name: str) -> None:
    """3.8.1.1: an identifier begins with a letter, _ or $, has any length, and may begin like a keyword."""
    stage.assert_selects(f"{name} = 1", wanted=[{name: 1}], unwanted=[{name: 2}])


def test_3_8_1_1_identifiers_are_case_sensitive(stage: Stage) -> None:
    """3.8.1.1: names that differ in case are different properties."""
    stage.assert_selects("color = 1", wanted=[{"color": 1}], unwanted=[{"Color": 1}])


def test_3_8_1_1_keywords_are_case_insensitive(stage: Stage) -> None:
    """3.8.1.1: operator names and predefined literals are written in any case."""
    stage.assert_selects(
        "a bEtWeEn 1 aNd 3 AND nOt b iN ('x') or c Like 'y%' and d Is nOt nUlL and e = tRue",
        wanted=[{"a": 2, "b": "z"}, {"c": "yes", "d": 1, "e": True}],
        unwanted=[{"a": 4, "b": "z"}, {"c": "yes", "e": True}],
    )


@pytest.mark.parametrize(
    "word", ["NULL", "true", "False", "NOT", "and", "OR", "between", "LIKE", "in", "IS", "escape"]
)
def test_3_8_1_1_reserved_words_are_no_identifiers(stage: Stage, word: str) -> None:
    """3.8.1.1: the eleven reserved words, in any case, name no property."""
    session = stage.session()
    with pytest.raises(InvalidSelector):
        session.consumer(stage.queue(), selector=f"{word} IS NULL")


def test_3_8_1_1_a_property_is_not_converted(stage: Stage) -> None:
    """3.8.1.1: a property has the type with which it was set: the text '2' is no number."""
    stage.assert_selects("orders > 1", wanted=[{"orders": 2}], unwanted=[{"orders": "2"}])
    stage.assert_selects("orders = '2'", wanted=[{"orders": "2"}], unwanted=[{"orders": 2}])


@pytest.mark.parametrize("blank", [" ", "\t", "\f", "\n", "\r\n", "   "])
def test_3_8_1_1_whitespace_separates_and_means_nothing_else(stage: Stage, blank: str) -> None:
    """3.8.1.1: blanks, tabs, form feeds and line ends."""
    selector = blank.join(["", "a", "=", "1", "AND", "b", "=", "2", ""])
    stage.assert_selects(selector, wanted=[{"a": 1, "b": 2}], unwanted=[{"a": 1}])


def test_3_8_1_1_no_whitespace_is_needed_around_operators(stage: Stage) -> None:
    """3.8.1.1: operators separate by themselves."""
    stage.assert_selects("(a=1)OR(b<>2)", wanted=[{"a": 1}, {"b": 3}], unwanted=[{"a": 2, "b": 2}])


# ---- 3.8.1.1 syntax: headers


def test_3_8_1_1_selecting_by_delivery_mode(stage: Stage) -> None:
    """3.8.1.3: JMSDeliveryMode has the values 'PERSISTENT' and 'NON_PERSISTENT'."""
    stage.assert_selects_sent("JMSDeliveryMode = 'PERSISTENT'", wanted=[{}], unwanted=[{"persistent": False}])
    stage.assert_selects_sent(
        "JMSDeliveryMode = 'NON_PERSISTENT'", wanted=[{"persistent": False}], unwanted=[{}]
    )


def test_3_8_1_1_selecting_by_priority(stage: Stage) -> None:
    """3.8.1.1: JMSPriority may be used in a selector."""
    stage.assert_selects_sent("JMSPriority >= 5", wanted=[{"priority": 5}], unwanted=[{}])


@pytest.mark.needs("sent-ids")
def test_3_8_1_1_selecting_by_message_id(stage: Stage) -> None:
    """3.8.1.1: JMSMessageID may be used in a selector, with the id that the send returned."""
    queue = stage.queue()
    ids = stage.send(queue, "a", "b", "c")
    with stage.session().consumer(queue, selector=f"JMSMessageID = '{ids[1]}'") as consumer:
        message = next_of(consumer)
    assert (message.body, message.id) == ("b", ids[1])
    assert bodies_of(stage.left_in(queue)) == ["a", "c"]


def test_3_8_1_1_selecting_by_timestamp(stage: Stage) -> None:
    """3.8.1.1 and 3.8.1.3: JMSTimestamp may be used in a selector, in milliseconds."""
    milliseconds = int(time.time() * 1000)
    stage.assert_selects_sent(
        f"JMSTimestamp BETWEEN {milliseconds - 1000} AND {milliseconds + 600_000}", wanted=[{}, {}]
    )
    stage.assert_selects_sent(f"JMSTimestamp < {milliseconds - 1000}", unwanted=[{}, {}])


def test_3_8_1_1_selecting_by_correlation_id(stage: Stage) -> None:
    """3.8.1.1: JMSCorrelationID may be used in a selector; without one it is NULL."""
    stage.assert_selects_sent(
        "JMSCorrelationID = 'c'", wanted=[{"correlation_id": "c"}], unwanted=[{"correlation_id": "d"}, {}]
    )
    stage.assert_selects_sent("JMSCorrelationID IS NULL", wanted=[{}], unwanted=[{"correlation_id": "c"}])


def test_3_8_1_1_selecting_by_type(stage: Stage) -> None:
    """3.8.1.1: JMSType may be used in a selector; without one it is NULL."""
    stage.assert_selects_sent("JMSType LIKE 'c%'", wanted=[{"type": "car"}], unwanted=[{"type": "van"}, {}])
    stage.assert_selects_sent("JMSType IS NULL", wanted=[{}], unwanted=[{"type": "car"}])


@pytest.mark.parametrize("header", ["JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered"])
def test_3_8_1_1_other_headers_cannot_be_used(stage: Stage, header: str) -> None:
    """3.8.1.1: references to headers are restricted to six; a selector with another one matches nothing."""
    session = stage.session()
    queue = stage.queue()
    stage.send(queue, b"", reply_to=queue, time_to_live=60)
    try:
        consumer = session.consumer(queue, selector=f"{header} IS NOT NULL")
    except InvalidSelector:
        return  # which tells the client more
    assert consumer.receive_no_wait() is None


@pytest.mark.needs("plain-groups")
def test_3_8_1_1_selecting_by_group(stage: Stage) -> None:
    """3.8.1.1: a name with the prefix JMSX is a JMS defined property."""
    stage.assert_selects_sent(
        "JMSXGroupID = 'g' AND JMSXGroupSeq = 2",
        wanted=[{"group_id": "g", "group_sequence": 2}],
        unwanted=[{"group_id": "g", "group_sequence": 1}, {"group_id": "h", "group_sequence": 2}, {}],
    )


def test_3_5_9_a_jmsx_property_that_nobody_set_is_null(stage: Stage) -> None:
    """3.5.9: JMSX properties may be referenced whether or not they are there."""
    stage.assert_selects("JMSXAppID IS NULL", wanted=[{}])
    stage.assert_selects("JMSXGroupID IS NULL AND JMSXGroupSeq IS NULL", wanted=[{}])


# ---- 3.8.1.1 syntax: expressions


def test_3_8_1_1_a_boolean_property_is_a_condition(stage: Stage) -> None:
    """3.8.1.1: conditional expressions contain identifiers with boolean values, and literals."""
    stage.assert_selects("p", wanted=[T], unwanted=[F, U])
    stage.assert_selects("NOT p", wanted=[F], unwanted=[T, U])


def test_3_8_1_1_a_literal_is_a_condition(stage: Stage) -> None:
    """3.8.1.1: TRUE selects everything and FALSE nothing."""
    stage.assert_selects("TRUE", wanted=[{}, {"a": 1}])
    stage.assert_selects("FALSE", unwanted=[{}, {"a": 1}])


def test_3_8_1_1_not_binds_before_and_and_before_or(stage: Stage) -> None:
    """3.8.1.1: logical operators in the order NOT, AND, OR."""
    stage.assert_selects(
        "a = 1 OR b = 1 AND NOT c = 1",
        wanted=[{"a": 1, "b": 0, "c": 1}, {"a": 0, "b": 1, "c": 0}],
        unwanted=[{"a": 0, "b": 1, "c": 1}, {"a": 0, "b": 0, "c": 0}],
    )


def test_3_8_1_1_parentheses_change_the_order(stage: Stage) -> None:
    """3.8.1.1: brackets order the evaluation."""
    stage.assert_selects(
        "NOT ((a = 1 OR b = 1) AND c = 1)",
        wanted=[{"a": 1, "b": 0, "c": 0}, {"a": 0, "b": 0, "c": 1}],
        unwanted=[{"a": 1, "b": 0, "c": 1}, {"a": 0, "b": 1, "c": 1}],
    )


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [("=", [2]), ("<>", [1, 3]), ("<", [1]), ("<=", [1, 2]), (">", [3]), (">=", [2, 3])],
)
def test_3_8_1_1_comparisons_of_numbers(stage: Stage, operator: str, wanted: list[int]) -> None:
    """3.8.1.1: the six comparison operators."""
    stage.assert_selects(
        f"n {operator} 2",
        wanted=[{"n": n} for n in wanted],
        unwanted=[{"n": n} for n in (1, 2, 3) if n not in wanted],
    )


def test_3_8_1_1_exact_and_approximate_numbers_can_be_compared(stage: Stage) -> None:
    """3.8.1.1: whole numbers and doubles are alike."""
    stage.assert_selects("n = 2.0", wanted=[{"n": 2}, {"n": 2.0}], unwanted=[{"n": 2.5}])
    stage.assert_selects("n > 1.5", wanted=[{"n": 2}], unwanted=[{"n": 1}])


def test_3_8_1_1_comparing_values_of_different_types_is_false(stage: Stage) -> None:
    """3.8.1.1: only like types can be compared; otherwise the comparison does not select."""
    stage.assert_selects("n = 1", wanted=[{"n": 1}], unwanted=[{"n": "1"}, {"n": True}])
    stage.assert_selects("n <> 1", wanted=[{"n": 2}], unwanted=[{"n": "x"}, {"n": True}])
    stage.assert_selects("n = TRUE", wanted=[{"n": True}], unwanted=[{"n": 1}, {"n": "TRUE"}])


def test_3_8_1_1_strings_and_booleans_have_no_order(stage: Stage) -> None:
    """3.8.1.1: strings and booleans are compared with = and <> only."""
    session = stage.session()
    queue = stage.queue()
    stage.send(queue, b"", properties={"s": "b", "p": True})
    for selector in ("s > 'a'", "p > FALSE"):
        try:
            consumer = session.consumer(queue, selector=selector)
        except InvalidSelector:
            continue  # a semantic check when the selector is presented is allowed
        assert consumer.receive_no_wait() is None


def test_3_8_1_1_strings_are_equal_character_by_character(stage: Stage) -> None:
    """3.8.1.1: two strings are equal if they have the same characters, case and blanks included."""
    stage.assert_selects("s = 'Ab'", wanted=[{"s": "Ab"}], unwanted=[{"s": "ab"}, {"s": "Ab "}, {"s": ""}])
    stage.assert_selects("s <> 'Ab'", wanted=[{"s": "ab"}, {"s": "Ab "}, {"s": ""}], unwanted=[{"s": "Ab"}])


def test_3_8_1_1_arithmetic(stage: Stage) -> None:
    """3.8.1.1: the four operations on numbers."""
    stage.assert_selects(
        "a + b = 7 AND a - b = 3 AND a * b = 10 AND a / b = 2.5", wanted=[{"a": 5.0, "b": 2}], unwanted=[{}]
    )


def test_3_8_1_1_division_of_whole_numbers_is_whole(stage: Stage) -> None:
    """3.8.1.1: arithmetic follows Java: 7 / 2 is 3, and -7 / 2 is -3."""
    stage.assert_selects("a / 2 = 3", wanted=[{"a": 7}, {"a": 6}], unwanted=[{"a": 7.0}, {"a": 8}])
    stage.assert_selects("a / 2 = -3", wanted=[{"a": -7}], unwanted=[{"a": -8}])


def test_3_8_1_1_products_bind_before_sums_and_signs_before_products(stage: Stage) -> None:
    """3.8.1.1: unary sign, then * and /, then + and -; from left to right within one level."""
    stage.assert_selects("a + b * 2 = 7", wanted=[{"a": 1, "b": 3}], unwanted=[{"a": 2, "b": 1.5}])
    stage.assert_selects("a - b - 1 = 0", wanted=[{"a": 3, "b": 2}], unwanted=[{"a": 3, "b": 4}])
    stage.assert_selects("-a + 5 = 3", wanted=[{"a": 2}], unwanted=[{"a": -8}])
    stage.assert_selects("a * -b = -6", wanted=[{"a": 2, "b": 3}], unwanted=[{"a": 2, "b": -3}])
    stage.assert_selects("(a + b) * 2 = 8", wanted=[{"a": 1, "b": 3}], unwanted=[{"a": 2, "b": 3}])


def test_3_8_1_1_arithmetic_with_what_is_no_number_is_unknown(stage: Stage) -> None:
    """3.8.1.1: arithmetic expressions are made of numbers; with anything else they select nothing."""
    stage.assert_selects("a + 1 > 0", wanted=[{"a": 0}], unwanted=[{"a": "1"}, {"a": True}, {}])


def test_3_8_1_1_arithmetic_is_compared_on_both_sides(stage: Stage) -> None:
    """3.8.1.1: either side of a comparison may be an expression."""
    stage.assert_selects(
        "a * 2 < b + c", wanted=[{"a": 1, "b": 2, "c": 1}], unwanted=[{"a": 2, "b": 2, "c": 1}]
    )


def test_3_8_1_1_between(stage: Stage) -> None:
    """3.8.1.1: age BETWEEN 15 AND 19 is age >= 15 AND age <= 19."""
    stage.assert_selects(
        "age BETWEEN 15 AND 19",
        wanted=[{"age": 15}, {"age": 17.5}, {"age": 19}],
        unwanted=[{"age": 14}, {"age": 20}, {"age": "17"}, {}],
    )


def test_3_8_1_1_not_between(stage: Stage) -> None:
    """3.8.1.1: age NOT BETWEEN 15 AND 19 is age < 15 OR age > 19."""
    stage.assert_selects(
        "age NOT BETWEEN 15 AND 19",
        wanted=[{"age": 14}, {"age": 20}],
        unwanted=[{"age": 15}, {"age": 19}, {}],
    )


def test_3_8_1_1_between_takes_expressions(stage: Stage) -> None:
    """3.8.1.1: the operands of BETWEEN are arithmetic expressions."""
    stage.assert_selects(
        "a + 1 BETWEEN b AND b * 2", wanted=[{"a": 2, "b": 2}], unwanted=[{"a": 4, "b": 2}, {"a": 2}]
    )


def test_3_8_1_1_in(stage: Stage) -> None:
    """3.8.1.1: Country IN ('UK', 'US', 'France') is true for 'UK' and false for 'Peru'."""
    stage.assert_selects(
        "Country IN ('UK', 'US', 'France')",
        wanted=[{"Country": "UK"}, {"Country": "France"}],
        unwanted=[{"Country": "Peru"}, {"Country": 1}, {}],
    )


def test_3_8_1_1_not_in(stage: Stage) -> None:
    """3.8.1.1: NOT IN is false for 'UK', true for 'Peru', and unknown where there is no value."""
    stage.assert_selects(
        "Country NOT IN ('UK', 'US', 'France')",
        wanted=[{"Country": "Peru"}],
        unwanted=[{"Country": "UK"}, {}],
    )


def test_3_8_1_1_like_any_sequence(stage: Stage) -> None:
    """3.8.1.1: phone LIKE '12%3' is true for '123' and '12993' and false for '1234'."""
    stage.assert_selects(
        "phone LIKE '12%3'",
        wanted=[{"phone": "123"}, {"phone": "12993"}],
        unwanted=[{"phone": "1234"}, {"phone": "0123"}, {"phone": 123}, {}],
    )


def test_3_8_1_1_like_any_character(stage: Stage) -> None:
    """3.8.1.1: word LIKE 'l_se' is true for 'lose' and false for 'loose'."""
    stage.assert_selects(
        "word LIKE 'l_se'", wanted=[{"word": "lose"}], unwanted=[{"word": "loose"}, {"word": "lse"}]
    )


def test_3_8_1_1_like_escape(stage: Stage) -> None:
    r"""3.8.1.1: underscored LIKE '\_%' ESCAPE '\' is true for '_foo' and false for 'bar'."""
    stage.assert_selects(
        r"underscored LIKE '\_%' ESCAPE '\'",
        wanted=[{"underscored": "_foo"}],
        unwanted=[{"underscored": "bar"}],
    )
    stage.assert_selects("rate LIKE '1$%' ESCAPE '$'", wanted=[{"rate": "1%"}], unwanted=[{"rate": "12"}])


def test_3_8_1_1_not_like(stage: Stage) -> None:
    """3.8.1.1: phone NOT LIKE '12%3' is false for '123', true for '1234', unknown without a value."""
    stage.assert_selects("phone NOT LIKE '12%3'", wanted=[{"phone": "1234"}], unwanted=[{"phone": "123"}, {}])


def test_3_8_1_1_other_characters_of_a_pattern_stand_for_themselves(stage: Stage) -> None:
    """3.8.1.1: a pattern is not a regular expression, and line ends are characters."""
    stage.assert_selects("s LIKE 'a.c*'", wanted=[{"s": "a.c*"}], unwanted=[{"s": "abc"}, {"s": "abccc"}])
    stage.assert_selects("s LIKE 'a%z'", wanted=[{"s": "a\n\nz"}, {"s": "az"}])
    stage.assert_selects("s LIKE ''", wanted=[{"s": ""}], unwanted=[{"s": " "}])


def test_3_8_1_1_is_null(stage: Stage) -> None:
    """3.8.1.1: IS NULL is true for a missing property and for one set to null."""
    stage.assert_selects("a IS NULL", wanted=[{}, {"b": 1}, {"a": None}], unwanted=[{"a": 0}, {"a": ""}])


def test_3_8_1_1_is_not_null(stage: Stage) -> None:
    """3.8.1.1: IS NOT NULL is true where there is a value, whatever it is."""
    stage.assert_selects(
        "a IS NOT NULL", wanted=[{"a": 0}, {"a": ""}, {"a": False}], unwanted=[{}, {"a": None}]
    )


# ---- 3.8.1.1 what is refused


@pytest.mark.parametrize(
    "selector",
    [
        "a =",
        "= 1",
        "a = 1 AND",
        "a = 1 b = 2",
        "(a = 1",
        "a = 1)",
        "a == 1",
        "a != 1",
        "a = 'open",
        'a = "double"',
        "a BETWEEN 1",
        "a BETWEEN 1 OR 2",
        "a IN 'x'",
        "a IN ()",
        "a IN ('x' 'y')",
        "a LIKE 5",
        "a LIKE 'x' ESCAPE 'yy'",
        "a IS 5",
        "1a = 2",
        "a.b = 1",
        "a = NULL",
        "5",
        "'text'",
        "a + 1",
        "NOT",
        "a # 1",
        "-- comment",
        "a = 1 -- a comment",
        "a = 1 /* a comment */",
    ],
)
def test_3_8_1_1_a_faulty_selector_is_refused_when_it_is_presented(stage: Stage, selector: str) -> None:
    """3.8.1.1: wrong syntax is found when the consumer is made, and SQL comments are wrong syntax."""
    session = stage.session()
    for destination in (stage.queue(), stage.topic()):
        with pytest.raises(InvalidSelector):
            session.consumer(destination, selector=selector)


@pytest.mark.needs("browse")
def test_3_8_1_1_a_faulty_selector_of_a_browser_is_refused(stage: Stage) -> None:
    """3.8.1.1: every method that takes a selector verifies it."""
    session = stage.session()
    with pytest.raises(InvalidSelector):
        list(session.browser(stage.queue(), selector="a ="))


def test_3_8_1_1_a_refused_selector_leaves_the_session_usable(stage: Stage) -> None:
    """10.3: a refusal is an exception of one call; the session goes on."""
    session = stage.session()
    queue = stage.queue()
    with pytest.raises(InvalidSelector):
        session.consumer(queue, selector="a =")
    stage.send(queue, "after all")
    assert next_of(session.consumer(queue)).body == "after all"


# ---- 3.8.1.2 three-valued logic

_AND = {"TT": "T", "TF": "F", "TU": "U", "FT": "F", "FF": "F", "FU": "F", "UT": "U", "UF": "F", "UU": "U"}
_OR = {"TT": "T", "TF": "T", "TU": "T", "FT": "T", "FF": "F", "FU": "U", "UT": "T", "UF": "U", "UU": "U"}
_VALUES: dict[str, dict[str, Property]] = {"T": {"x": 1}, "F": {"x": 2}, "U": {}}


def _pair(letters: str) -> dict[str, Property]:
    """Properties that make `a = 1` and `b = 1` true, false or unknown."""
    number: dict[str, int] = {"T": 1, "F": 2}
    return {name: number[letter] for name, letter in zip("ab", letters, strict=True) if letter in number}


@pytest.mark.parametrize(("operator", "table"), [("AND", _AND), ("OR", _OR)])
def test_3_8_1_2_the_tables_of_and_and_or(stage: Stage, operator: str, table: dict[str, str]) -> None:
    """3.8.1.2, tables 3-4 and 3-5: a condition and its negation show each of the three values."""
    selector = f"a = 1 {operator} b = 1"
    for text, selected in ((selector, "T"), (f"NOT ({selector})", "F")):
        stage.assert_selects(
            text,
            wanted=[_pair(letters) for letters, value in table.items() if value == selected],
            unwanted=[_pair(letters) for letters, value in table.items() if value != selected],
        )


def test_3_8_1_2_the_table_of_not(stage: Stage) -> None:
    """3.8.1.2, table 3-6: NOT of unknown is unknown."""
    stage.assert_selects("NOT x = 1", wanted=[_VALUES["F"]], unwanted=[_VALUES["T"], _VALUES["U"]])
    stage.assert_selects("NOT NOT x = 1", wanted=[_VALUES["T"]], unwanted=[_VALUES["F"], _VALUES["U"]])


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_3_8_1_2_a_comparison_with_null_is_unknown(stage: Stage, operator: str) -> None:
    """3.8.1.2: neither the comparison nor its negation selects a message without the property."""
    stage.assert_selects(f"a {operator} 1 OR NOT a {operator} 1", wanted=[{"a": 1}], unwanted=[{}, {"b": 1}])


@pytest.mark.parametrize("expression", ["a + 1", "1 - a", "a * 0", "0 / a", "-a"])
def test_3_8_1_2_arithmetic_with_null_is_unknown(stage: Stage, expression: str) -> None:
    """3.8.1.2: NULL in an expression makes the whole unknown, even where zero is a factor."""
    condition = f"{expression} = 0"
    stage.assert_selects(f"{condition} OR NOT {condition}", wanted=[{"a": 1}], unwanted=[{}])


def test_3_8_1_2_two_nulls_are_not_equal(stage: Stage) -> None:
    """3.8.1.2: comparing two unknown values is unknown."""
    stage.assert_selects("a = b", wanted=[{"a": 1, "b": 1}], unwanted=[{}, {"a": 1}])
    stage.assert_selects("a <> b", wanted=[{"a": 1, "b": 2}], unwanted=[{}, {"a": 1}])

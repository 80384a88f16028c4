"""Patterns of topics: found without trying each, in time that is linear in the text (A2)."""

from __future__ import annotations

import time

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.destinations.alerts import pattern_index
from heliograph.destinations.alerts.live import LiveAlerts, alert_of
from heliograph.destinations.alerts.pattern_index import PatternIndex
from heliograph.destinations.alerts.subscribers import Subscriber
from heliograph.destinations.alerts.sweeping import Budget, Sweeping
from heliograph.model.alert import AlertHeader, AlertId, AlertType
from heliograph.model.alert_topics import Prefix, Topic, TopicFault, parse_destination, parse_topics, written
from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId
from heliograph.model.patterns import PatternFault, compile_regex

pytestmark = pytest.mark.req("A2")

PIECES = [
    "a",
    "b",
    "c",
    ".",
    ".*",
    "[ab]",
    "[^a]",
    "(a|b)",
    "a+",
    "b?",
    "\\.",
    "\\d",
    "^",
    "$",
    "\\bab",
    "\\Aa",
    "x{2}",
]
PATTERNS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join)
TEXTS = st.text("abcx.1", min_size=1, max_size=8)


def compiles(pattern: str) -> bool:
    try:
        compile_regex(pattern)
    except PatternFault:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(
    st.lists(PATTERNS.filter(compiles), unique=True, max_size=80),
    st.lists(TEXTS, min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_the_index_finds_what_trying_each_would_find(
    patterns: list[str], texts: list[str], dice: object
) -> None:
    index = PatternIndex()
    for pattern in patterns:
        index.add(pattern)
    gone = patterns[:: dice.choice((2, 3))]  # type: ignore[attr-defined]
    for pattern in gone:
        index.remove(pattern)
    left = [pattern for pattern in patterns if pattern not in gone]
    for text in texts:
        expected = [pattern for pattern in left if compile_regex(pattern).search(text) is not None]
        assert sorted(index.match(text)) == sorted(expected)


@settings(max_examples=200, deadline=None)
@given(PATTERNS.filter(compiles), st.lists(TEXTS, min_size=1, max_size=12))
def test_a_sweep_finds_in_a_chunk_what_trying_each_would_find(pattern: str, texts: list[str]) -> None:
    live = LiveAlerts()
    for index, text in enumerate(texts, 1):
        header = AlertHeader(f"TAG:{text}")
        identity, lane = AlertId(b"%012d" % index), LaneId(b"lane")
        live.add(alert_of(index, identity, lane, index, header=header, user="", arrived=0, body=b""))
    sweeping = Sweeping(live)
    subscriber = Subscriber(1, ("ann", "", b"", 0), 0, {})
    sweeping.begin(subscriber, [(AlertType.ALERT, Topic(Prefix.TAG, pattern))], len(texts))
    while subscriber.sweeps:
        sweeping._step(subscriber, subscriber.sweeps[0], Budget())
    compiled = compile_regex(pattern)
    expected = [index for index, text in enumerate(texts, 1) if compiled.search(text.strip()) is not None]
    assert sorted(subscriber.waiting) == expected


def test_a_set_that_has_no_room_says_so_by_its_silence_and_patterns_are_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pattern_index, "MAX_SET_BYTES", 100_000)
    index = PatternIndex()
    patterns = [f"[a-z]{{{20 + number}}}.*w{number}!" for number in range(32)]
    for pattern in patterns:
        index.add(pattern)
    assert list(index.match("x" * 40 + "w7!")) == [patterns[7]]
    assert any(each._singly for each in index._sets), "otherwise this shows nothing"


CATASTROPHIC = ["(a+)+$", "(a|aa)+$", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y", "(.*a){20}b"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_the_classic_catastrophes_take_time_that_is_linear_in_the_text(pattern: str) -> None:
    index = PatternIndex()
    index.add(pattern)

    def seconds(size: int) -> float:
        text = "a" * size + "!"
        best = []
        for _ in range(3):
            began = time.process_time()
            list(index.match(text))
            best.append(time.process_time() - began)
        return min(best)

    seconds(1000)  # what is made once
    tenth, whole = seconds(100_000), seconds(1_000_000)
    assert whole < 2.0
    assert whole < 40 * tenth + 0.05  # ten times the text; a busy machine gets some room


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("TAG:a(b", 6),
        ("TAG:ok,x**", 9),
        ("TAG:[a-", 5),
        (r"TAG:a\y", 6),
        ("TAG:a;b", 7),
        ("TAG:", 5),
        ("USER:a,,b", 8),
        ("nonsense", 1),
        ("TAG:a\nb", 6),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(ClientFault) as refused:
        parse_topics(text)
    assert isinstance(refused.value, TopicFault | PatternFault)
    assert refused.value.position == position


def test_topics_are_read_as_they_are_written() -> None:
    topics = parse_topics(r" TAG: a , b\,c\;d , \d+\\ ;USER:x,y; PROFILE: night shift ")
    assert [str(topic) for topic in topics] == [
        "TAG:a",
        "TAG:b,c;d",
        "TAG:\\d+\\\\",
        "USER:x",
        "USER:y",
        "PROFILE:night shift",
    ]
    assert parse_topics(written(topics)) == topics
    assert parse_topics("TAG:a,a;TAG:a") == (Topic(Prefix.TAG, "a"),)


@pytest.mark.parametrize("text", ["", "TAG:", "TAG: ", "tag:a", "abc", "TAG:a\x00", "TAG:" + "x" * 5000])
def test_an_alert_goes_to_one_tag_profile_or_user(text: str) -> None:
    with pytest.raises(TopicFault):
        parse_destination(text)


def test_the_engine_is_the_linear_one() -> None:
    assert isinstance(compile_regex("a"), re2._Regexp)

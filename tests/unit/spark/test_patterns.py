"""Patterns of composite events, held against an evaluation that is plain and slow (A9, D5)."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

from heliograph.model.errors import ClientFault
from heliograph.spark.pipelines.patterns import Event, find, parse
from heliograph.spark.pipelines.rules import explained, parse_rules
from tests.unit.spark.plain_patterns import evaluate

pytestmark = pytest.mark.req("D5", "A9")
BITS = {"a": 1, "b": 2, "c": 4}
PATTERNS = [
    "a",
    "seq(a, b)",
    "seq(a, b, c)",
    "seq(a, not(b), c)",
    "seq(a, not(b))",
    "seq(times(2, a), not(c), b)",
    "and(a, b)",
    "and(seq(a, b), c)",
    "or(seq(a, a), seq(b, c))",
    "times(3, a)",
    "times(2, seq(a, b))",
    "seq(or(a, b), c)",
    "seq(and(a, b), not(c))",
    "and(or(a, b), times(2, c))",
]


def history(seed: int, length: int) -> list[Event]:
    chance = random.Random(seed)
    order = count()
    time, events = 0, list[Event]()
    for _ in range(length):
        time += chance.choice([0, 1, 1, 2, 5, 9])
        events.append(Event(time, next(order), chance.choice([1, 1, 2, 4, 3, 0]), f"e{len(events)}"))
    return events


@pytest.mark.parametrize("text", PATTERNS)
def test_what_is_found_is_what_a_plain_evaluation_finds(text: str) -> None:
    for seed in range(60):
        events = history(seed, 30)
        expected = evaluate(text, events, 12)
        found, _ = find(parse(text, BITS), events, 12, 10**9)
        assert [tuple(event.id for event in match.taken) for match in found] == expected, (seed, text)


@pytest.mark.parametrize("text", PATTERNS)
def test_it_does_not_matter_in_what_portions_events_become_known(text: str) -> None:
    pattern = parse(text, BITS)
    for seed in range(30):
        events = history(seed, 30)
        chance = random.Random(seed)
        whole, _ = find(pattern, events, 12, 10**9)
        found, kept, at = [], list[Event](), 0
        while at < len(events):
            more = chance.randrange(1, 6)
            kept += events[at : at + more]
            at += more
            # What comes later is later: everything before the next event is known.
            watermark = events[at].time - 1 if at < len(events) else 10**9
            matches, kept = find(pattern, kept, 12, watermark)
            found += matches
        assert found == whole, (seed, text)


def test_a_match_is_told_as_soon_as_it_is_certain() -> None:
    events = [Event(0, 0, 1, "x"), Event(3, 1, 2, "y")]
    assert find(parse("seq(a, b)", BITS), events, 10, 3)[0][0].completed == 3
    assert find(parse("seq(a, b)", BITS), events, 10, 2)[0] == []
    waiting = parse("seq(a, not(b))", BITS)
    assert find(waiting, events[:1], 10, 9) == ([], events[:1])
    assert find(waiting, events[:1], 10, 10)[0][0].completed == 10
    assert find(waiting, events, 10, 10)[0] == []


RULE = """
[[rules]]
name = "one"
by = "card"
pattern = "seq(times(3, failed), ok)"
within = "10m"
[rules.events]
failed = "result = 'failed'"
ok = "result = 'ok'"
[rules.action]
alert = "fraud"
"""


def test_a_rule_is_told_in_words() -> None:
    (rule,) = parse_rules(RULE, "rules.toml")
    assert (rule.destination, rule.tag, rule.priority, rule.duration) == (
        "alerts:fraud",
        "{rule}.{key}",
        5,
        86400,
    )
    told = rule.explain()
    assert "raises an alert in alerts:fraud to TAG:{rule}.{key}, for 1 day" in told
    assert "For each value of card" in told
    assert "3 times an event failed, then an event ok, within 10 minutes" in told


def test_the_longest_time_to_be_late_counts_for_all_rules_and_is_told() -> None:
    quick = RULE.replace("within", 'late = "30s"\nwithin')
    patient = RULE.replace('"one"', '"two"').replace("within", 'late = "2m"\nwithin')
    first, second = explained(parse_rules(quick + patient, "rules.toml"))
    assert "up to 2 minutes late, the longest of these rules (this one wants 30 seconds);" in first
    assert "up to 2 minutes late; what comes later" in second


@pytest.mark.parametrize(
    ("before", "after", "line", "reason"),
    [
        ("seq(times(3, failed), ok)", "seq(times(3, failed), no)", 5, "no event is called 'no'"),
        ("seq(times(3, failed), ok)", "seq(not(ok), failed)", 5, "cannot begin with not"),
        ("seq(times(3, failed), ok)", "perhaps(failed, ok)", 5, "no operator"),
        ("seq(times(3, failed), ok)", "seq(failed, ok", 5, "a comma or ) is missing"),
        ("seq(times(3, failed), ok)", "times(3, failed)", 9, "'ok' is not in the pattern"),
        ('"10m"', '"soon"', 6, 'a time such as "10m"'),
        ("result = 'ok'", "result = = 'ok'", 9, ""),
        (
            "result = 'ok'",
            "result = 'ok' AND JMSXDeliveryCount > 1",
            9,
            "no rule can ask for JMSXDeliveryCount",
        ),
        ('alert = "fraud"', 'shout = "fraud"', 10, "send = DESTINATION or alert = NAME"),
        ('by = "card"', 'why = "card"', 4, "a rule has no 'why'"),
        ('alert = "fraud"', 'send = "alerts:fraud"', 11, 'alert = "fraud" raises an alert'),
        ('alert = "fraud"', 'send = "queue:a"\ntag = "b"', 12, "tag is of alerts"),
        ('alert = "fraud"', 'alert = "fraud"\ntag = "{card}"', 12, "a tag may have {rule}, {key}"),
        ('alert = "fraud"', 'alert = "fraud"\ntext = "{"', 12, "a text may have {rule}, {key}"),
        ('alert = "fraud"', 'alert = "fraud"\nduration = "long"', 12, 'a time such as "10m"'),
        ('alert = "fraud"', 'alert = "fraud"\npriority = 0', 12, "the priority of an alert is 1 to 10"),
        ('alert = "fraud"', 'send = "queue:a"\npriority = 10', 12, "the priority of a message is 0 to 9"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_file_line_and_reason(
    before: str, after: str, line: int, reason: str
) -> None:
    assert before in RULE
    with pytest.raises(ClientFault) as refused:
        parse_rules(RULE.replace(before, after), "rules.toml")
    assert refused.value.sentence.startswith(f"rules.toml, line {line}: ")
    assert reason in refused.value.sentence


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (RULE.replace("[[rules]]", "[[rules]]  # the first") + RULE.replace('"card"', "7"), 15),
        (RULE + RULE.replace("[[rules]]", "[[ 'rules' ]] # [[rules]]").replace('"card"', "7"), 15),
        (RULE.replace('by = "card"', '"by" = 7'), 4),
        (RULE.replace('by = "card"', "'wh\\y' = 7"), 4),
        (RULE.replace('name = "one"', 'name = """one\n[[rules]]\nby = 1"""').replace('"card"', "7"), 6),
        (RULE.replace("failed = \"result = 'failed'\"", 'failed = "result = ="'), 8),
        (
            """
rules = [
  { name = "one", pattern = "a", within = "1s", events = { a = "x = 1" }, action = { send = "queue:a" } },
  # the second
  { name = "two # [[rules]]", pattern = "a", within = "1s", events = {a = '''x
= 1'''}, action = { send = "queue:a", "priority" = 11 } },
]""",
            6,
        ),
        (
            """[[rules]]
name = "one"
pattern = "name"
within = "1s"
events.name = "= ="
action.send = "queue:a"
""",
            5,
        ),
        (
            """[[rules]]
name = "one"
pattern = "text"
within = "1s"
events = { text = "x = 1" }
[rules.action]
send = "queue:a"
text = "{"
""",
            8,
        ),
    ],
)
def test_a_line_is_found_however_the_file_is_written(text: str, line: int) -> None:
    with pytest.raises(ClientFault) as refused:
        parse_rules(text, "rules.toml")
    assert refused.value.sentence.startswith(f"rules.toml, line {line}: "), refused.value.sentence


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    from heliograph.spark.pipelines.rules import read_rules

    with pytest.raises(ClientFault, match="cannot be read"):
        read_rules(tmp_path / "none.toml")


def test_messages_of_one_block_are_in_the_order_of_their_sequences() -> None:
    from heliograph.spark.pipelines.events import in_order

    block = [Event(5, 7, kinds, f"1.1.a.4/1-{n}") for n, kinds in ((9, 2), (10, 1), (11, 2))]
    assert sorted([block[2], block[0], block[1]], key=in_order) == block

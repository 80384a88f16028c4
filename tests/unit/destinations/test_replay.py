"""What recovery makes of the records: who waits, who was handed out, and how often (J4)."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.destinations.pages import Entry, Page, pages_of
from heliograph.destinations.replay import EntryRuns, LevelReplay
from heliograph.destinations.topic_replay import TopicReplay

pytestmark = pytest.mark.req("J4")


def entry(number: int, messages: int = 1, deliveries: int = 0) -> Entry:
    return Entry(number, number * 8, 0, messages, deliveries)


def numbers(entries: list[Entry]) -> list[int]:
    return [each.number + index for each in entries for index in range(each.messages)]


def numbers_on(pages: list[Page]) -> list[int]:
    return [number for page in pages for number in numbers(page.entries())]


def deliveries(pages: list[Page]) -> dict[int, int]:
    return {number: page.deliveries for page in pages for number in numbers(page.entries())}


def test_ranges_are_cut_out_of_entries() -> None:
    runs = EntryRuns()
    runs.add([entry(1), entry(2, 5), entry(7), entry(10, 3)])
    assert runs.cut(4, 5) == [Entry(4, 16, 2, 2, 0)]
    assert runs.all() == [entry(1), Entry(2, 16, 0, 2, 0), Entry(6, 16, 4, 1, 0), entry(7), entry(10, 3)]
    assert runs.cut(4, 5) == []
    assert numbers(runs.cut(6, 11)) == [6, 7, 10, 11]
    assert numbers(runs.all()) == [1, 2, 3, 12]
    assert runs.cut(100, 200) == []
    assert runs.cut(0, 0) == []
    assert numbers(runs.cut(0, 10**9)) == [1, 2, 3, 12]
    assert len(runs) == 0
    assert runs.cut(1, 5) == []


def test_entries_that_return_find_their_place() -> None:
    runs = EntryRuns()
    runs.add([entry(5, 2), entry(9)])
    runs.add([entry(1), entry(7, 2)])
    runs.add([])
    assert numbers(runs.all()) == [1, 5, 6, 7, 8, 9]
    assert numbers(runs.cut(6, 7)) == [6, 7]


def test_any_cuts_agree_with_a_set_of_numbers() -> None:
    dice = random.Random(5)
    for _ in range(300):
        runs, left = EntryRuns(), set[int]()
        number = 1
        while number < 40:
            count = dice.randint(1, 6)
            runs.add([entry(number, count)])
            left |= set(range(number, number + count))
            number += count + dice.choice([0, 0, 3])
        for _ in range(8):
            first = dice.randint(0, 45)
            last = first + dice.randint(0, 12)
            wanted = left & set(range(first, last + 1))
            cut = runs.cut(first, last)
            assert numbers(cut) == sorted(wanted)
            left -= wanted
            if dice.random() < 0.3:
                runs.add(cut)
                left |= wanted
            assert numbers(runs.all()) == sorted(left)


def published(*counts: int) -> LevelReplay:
    level = LevelReplay()
    number = 1
    for count in counts:
        level.published(number, number * 8, 0, count, 100)
        number += count
    return level


def test_what_was_published_waits() -> None:
    pages = published(1, 3, 2).finish()
    assert numbers_on(pages) == [1, 2, 3, 4, 5, 6]
    assert set(deliveries(pages).values()) == {0}


def test_what_is_done_is_gone() -> None:
    level = published(1, 3, 2)
    level.was_dispatched(1, 6)
    level.was_done(1, 2)
    level.was_done(5, 5)
    level.restarted(everything_again=False)
    assert numbers_on(level.finish()) == [3, 4, 6]


def test_what_was_handed_out_without_an_outcome_is_marked() -> None:
    level = published(4)
    level.was_dispatched(1, 2)
    level.restarted(everything_again=False)
    assert deliveries(level.finish()) == {1: 1, 2: 1, 3: 0, 4: 0}


def test_what_returned_is_marked_and_waits_in_its_place() -> None:
    level = published(4)
    level.was_dispatched(1, 4)
    level.was_returned(3, 3)
    level.was_done(1, 2)
    level.was_dispatched(3, 3)
    level.was_returned(3, 3)
    level.restarted(everything_again=False)
    pages = level.finish()
    assert numbers_on(pages) == [3, 4]
    assert deliveries(pages) == {3: 2, 4: 1}


def test_every_restart_counts() -> None:
    level = published(2)
    for _ in range(3):
        level.was_dispatched(1, 1)
        level.restarted(everything_again=False)
    assert deliveries(level.finish()) == {1: 3, 2: 0}


def test_after_a_power_cut_everything_may_have_been_seen_and_what_comes_later_was_not() -> None:
    level = published(3)
    level.was_dispatched(1, 1)
    level.restarted(everything_again=True)
    level.published(4, 32, 0, 1, 100)
    level.restarted(everything_again=False)
    pages = level.finish()
    assert numbers_on(pages) == [1, 2, 3, 4]
    assert deliveries(pages) == {1: 1, 2: 1, 3: 1, 4: 0}


def test_a_snapshot_and_the_records_behind_it_tell_one_story() -> None:
    level = LevelReplay()
    level.restore(pages_of([entry(3, 2), entry(5)]), [entry(1), entry(2, deliveries=1)])
    level.published(6, 48, 0, 2, 100)
    level.was_done(1, 1)
    level.was_dispatched(3, 3)
    level.was_returned(3, 3)
    level.restarted(everything_again=False)
    pages = level.finish()
    assert numbers_on(pages) == [2, 3, 4, 5, 6, 7]
    assert deliveries(pages) == {2: 2, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0}


def test_pages_that_lie_among_one_another_are_laid_out_in_order() -> None:
    level = LevelReplay()
    alone = pages_of([entry(20, 3)])
    level.restore([*alone, *pages_of([entry(2), entry(6, 2)]), *pages_of([entry(3, 3, deliveries=1)])], [])
    pages = level.finish()
    assert [each.number for page in pages for each in page.entries()] == [2, 3, 6, 20]
    assert deliveries(pages)[4] == 1
    assert pages[-1] is alone[0], "what is by itself stays as it is"


def test_records_that_moved_are_followed_wherever_they_are_now() -> None:
    level = published(1, 1, 1, 1)
    level.was_dispatched(1, 1)
    level.was_dispatched(2, 2)
    level.was_returned(2, 2)
    level.relocate({8: 800, 16: 1600, 32: 3200, 99: 9900})
    level.restarted(everything_again=False)
    entries = sorted(each for page in level.finish() for each in page.entries())
    assert [each.position for each in entries] == [800, 1600, 24, 3200]


def test_a_subscription_with_the_number_of_one_that_ended_needs_nothing_of_what_that_needed() -> None:
    """Such as what parts keep for each other, whenever they part: the segments are gone since."""
    messages, group = SimpleNamespace(number=1), SimpleNamespace(key=("", b""))
    former: Any = SimpleNamespace(messages=messages, group=group)
    replay = TopicReplay(SimpleNamespace(subscriptions={1: former}))  # type: ignore[arg-type]
    replay.begins(former, 1)
    assert replay.cursor(former, 4).next_number == 1
    latter: Any = SimpleNamespace(messages=messages, group=group)
    replay.begins(latter, 234)
    assert replay.cursor(latter, 4).next_number == 234

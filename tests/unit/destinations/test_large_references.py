"""Which file is still needed: as long as any list holds any record that refers to it."""

from __future__ import annotations

import pytest

from heliograph.destinations.large_references import LargeReferences
from heliograph.destinations.pages import Page
from heliograph.model.large import FileId

pytestmark = pytest.mark.req("M6")

FILE = FileId(b"f" * 16)
OTHER = FileId(b"o" * 16)


def page_with(*positions: int) -> Page:
    page = Page()
    for number, position in enumerate(positions, 1):
        page.append(number, position, 0, 1, 100)
    return page


def test_a_file_goes_when_its_only_message_is_done() -> None:
    references = LargeReferences()
    references.persisted(100, FILE)
    assert references.take_unreferenced() == []
    references.release(100, 1)
    assert references.take_unreferenced() == [FILE]
    assert references.take_unreferenced() == [], "told once"
    assert not references.is_referenced(FILE)


def test_a_file_goes_when_the_last_of_several_lists_is_done() -> None:
    references = LargeReferences()
    references.persisted(100, FILE)
    references.retain(100, 2)
    references.release(100, 2)
    assert references.is_referenced(FILE)
    references.release(100, 1)
    assert references.take_unreferenced() == [FILE]


def test_a_dead_message_keeps_the_file_of_the_one_it_was() -> None:
    references = LargeReferences()
    references.persisted(100, FILE)
    references.persisted(200, FILE)
    references.release(100, 1)
    assert references.take_unreferenced() == []
    references.release(200, 1)
    assert references.take_unreferenced() == [FILE]


def test_other_records_are_none_of_its_business() -> None:
    references = LargeReferences()
    references.persisted(100, FILE)
    references.release(101, 1)
    references.retain(101, 1)
    references.release_page(page_with(101, 102))
    assert references.is_referenced(FILE)


def test_a_page_lets_go_of_each_of_its_records() -> None:
    references = LargeReferences()
    references.persisted(100, FILE)
    references.persisted(300, OTHER)
    references.release_page(page_with(100, 200, 300))
    assert references.take_unreferenced() == [FILE, OTHER]


def test_a_moved_record_is_followed() -> None:
    references = LargeReferences()
    references.persisted(100, FILE)
    references.relocate({100: 900, 101: 901})
    assert 900 in references
    references.release(100, 1)
    assert references.is_referenced(FILE)
    references.release(900, 1)
    assert references.take_unreferenced() == [FILE]


def test_recovery_keeps_what_is_held_and_nothing_else() -> None:
    former = LargeReferences()
    former.persisted(100, FILE)
    former.persisted(200, OTHER)
    references = LargeReferences()
    references.restore(former.pairs())
    references.persisted(300, OTHER)  # behind the snapshot
    references.recount([page_with(100, 150), page_with(100)])
    assert references.files() == [FILE]
    assert references.take_unreferenced() == [], "files without a reference are found in the folder"
    references.release(100, 1)
    assert references.is_referenced(FILE), "two lists hold it"
    references.release(100, 1)
    assert not references.is_referenced(FILE)

"""What is inside the engines, held against the model: which messages, in whose hands, and what holds them.

This looks where no client can: every message that is not done is in exactly one place of its list, a chunk is
kept exactly as long as somebody needs it, each segment is held exactly for what lies in it, and memory is
accounted for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.message_list import MessageList
from heliograph.destinations.pages import Entry, Page, records_of
from heliograph.destinations.queue import Queue
from heliograph.destinations.selective import SelectiveLevel
from heliograph.destinations.sequence import Chunk, SharedLevel
from heliograph.destinations.subscriptions import Group
from heliograph.destinations.topic import Topic
from heliograph.destinations.waiting import Level, Waiting
from heliograph.journal.records import segment_of
from heliograph.model.block import Block, Span
from tests.properties.destination_model import Model
from tests.properties.destination_parties import QUEUE_LIST, Letter
from tests.properties.memory_journal import MemoryJournal


def check_engine(model: Model, catalogue: Catalogue, journal: MemoryJournal, to_nowhere: list[Block]) -> None:
    """`to_nowhere`: blocks that are on their way to the disk for a destination that ended meanwhile."""
    for destination in catalogue.all_destinations():
        for of, messages in _lists(model, destination):
            _check_list(model, destination, of, messages)
        figures = destination.figures()
        assert figures.in_flight == model.in_flight(destination.address)
        depth = sum(
            1 for of in model.lists_of(destination.address) for _ in model.waiting(destination.address, of)
        )
        assert figures.depth + figures.kept_for_others == depth
        if isinstance(destination, Topic):
            _check_chunks(model, destination)
    held = _held(catalogue)
    for block in to_nowhere:
        if block.position:
            held[segment_of(block.position)] += block.count
    assert journal.live() == held, "held and needed differ"
    assert catalogue.residence.used == _resident(catalogue), "memory is not accounted for"


def note_expired(model: Model, catalogue: Catalogue) -> None:
    """Messages that are past their time may be dropped at any moment: tell the model which were."""
    overdue = [
        (letter, of)
        for letter in model.letters.values()
        if letter.is_expired(model.now) and letter.added
        for of, copy in letter.copies.items()
        if copy.waits and of in model.lists_of(letter.address)
    ]
    for letter, of in overdue:
        destination = catalogue.by_address[letter.address]
        number = QUEUE_LIST if of == QUEUE_LIST else model.subscribers[of].number
        messages = destination.list_by_number(number)
        assert messages is not None
        if letter.number not in _waiting(messages):
            model.expired(letter, of)


def _lists(model: Model, destination: Destination) -> Iterator[tuple[int, MessageList]]:
    if isinstance(destination, Queue):
        yield QUEUE_LIST, destination.messages
        return
    assert isinstance(destination, Topic)
    known = {model.subscribers[of].number: of for of in model.lists_of(destination.address)}
    assert set(known) == set(destination.subscriptions), "subscriptions came or went by themselves"
    for number, subscription in destination.subscriptions.items():
        yield known[number], subscription.messages


def _check_list(model: Model, destination: Destination, of: int, messages: MessageList) -> None:
    letters = {
        letter.number: letter
        for letter in model.letters.values()
        if letter.address == destination.address and of in letter.copies and not letter.copies[of].done
    }
    waiting = Counter(_waiting(messages))
    outstanding = Counter(
        number
        for consumer in messages.consumers.values()
        for span in consumer.outstanding.spans()
        for number in _numbers(span)
    )
    for number, times in (waiting + outstanding).items():
        assert times == 1, "a message is in two places"
        assert number in letters, "a message is there that is done, or was never accepted"
    for number, letter in letters.items():
        _check_letter(letter, of, number in waiting, number in outstanding)


def _check_letter(letter: Letter, of: int, waits: bool, is_out: bool) -> None:
    copy = letter.copies[of]
    assert not copy.dying, "it is neither here nor among the dead"
    if copy.holder is not None:
        assert is_out, "its consumer is not known to have it"
    elif not letter.added:
        assert not waits
    else:
        assert waits, "a message is gone that nobody had"


def _waiting(messages: MessageList) -> Iterator[int]:
    for priority in messages.priorities():
        level = messages.level(priority)
        for span in level.hot_spans():
            yield from _numbers(span)
        for page in level.cold_pages():
            for entry in page.entries():
                yield from range(entry.number, entry.number + entry.messages)
    for span in messages._spans_elsewhere():
        yield from _numbers(span)
    for page in _pages_elsewhere(messages):
        for entry in page.entries():
            yield from range(entry.number, entry.number + entry.messages)
    for _, _, what in messages.schedule.everything():
        if isinstance(what, Entry):
            yield from range(what.number, what.number + what.messages)
        else:
            yield from _numbers(what)


def _pages_elsewhere(messages: MessageList) -> Iterator[Page]:
    """Cold, waiting, and in no level."""
    for pages in (messages._survey, messages._gate):
        if pages is not None:
            yield from (page for _, page in pages.pages())


def _numbers(span: Span) -> range:
    return range(span.block.number + span.start, span.block.number + span.stop)


# ---- chunks


def _check_chunks(model: Model, topic: Topic) -> None:
    for group in topic.groups():
        needed = _needed_by(model, topic, group)
        for sequence in group.sequences().values():
            for number in sequence.chunk_numbers():
                chunk = sequence.chunk(number)
                assert chunk is not None
                assert any(each in needed for each in _numbers_in(chunk)), "kept, and nobody needs it"


def _needed_by(model: Model, topic: Topic, group: Group) -> set[int]:
    members = {
        identity
        for identity, subscriber in model.subscribers.items()
        if subscriber.is_there_for(topic.address) and subscriber.number in group.lists
    }
    return {
        letter.number
        for letter in model.letters.values()
        if letter.address == topic.address
        and any(of in members and not copy.done for of, copy in letter.copies.items())
    }


def _numbers_in(chunk: Chunk) -> list[int]:
    if chunk.spans is not None:
        return [number for span in chunk.spans for number in _numbers(span)]
    assert chunk.page is not None
    return [entry.number + index for entry in chunk.page.entries() for index in range(entry.messages)]


# ---- segments


def _held(catalogue: Catalogue) -> Counter[int]:
    held: Counter[int] = Counter()
    for destination in catalogue.all_destinations():
        for position, count in _holds_of(destination):
            if position:
                held[segment_of(position)] += count
    for transaction in catalogue.transactions._open.values():
        for _, block in transaction.staged:
            if block.position:
                held[segment_of(block.position)] += block.count
    return held


def _holds_of(destination: Destination) -> Iterator[tuple[int, int]]:
    for block in destination.intake.pending:
        yield block.position, block.count
    if isinstance(destination, Topic):
        for group in destination.groups():
            for sequence in group.sequences().values():
                for number in sequence.chunk_numbers():
                    yield from _holds_of_chunk(sequence.chunk(number))
        return
    for messages in destination.lists():
        for priority in messages.priorities():
            level = messages.level(priority)
            for span in level.hot_spans():
                yield from records_of(span)
            for page in level.cold_pages():
                yield from page.per_segment().items()
        for span in messages._spans_elsewhere():
            yield from records_of(span)
        for page in _pages_elsewhere(messages):
            yield from page.per_segment().items()
        for _, _, what in messages.schedule.everything():
            if isinstance(what, Entry):
                yield what.position, what.messages
            else:
                yield from records_of(what)
        for consumer in messages.consumers.values():
            for span in consumer.outstanding.spans():
                yield from records_of(span)


def _holds_of_chunk(chunk: Chunk | None) -> Iterator[tuple[int, int]]:
    assert chunk is not None
    if chunk.page is not None:
        yield from chunk.page.per_segment().items()
    else:
        for span in chunk.spans or []:
            yield from records_of(span)


# ---- memory


def _resident(catalogue: Catalogue) -> int:
    total = 0
    for destination in catalogue.all_destinations():
        for messages in destination.lists():
            for priority in messages.priorities():
                total += sum(waiting._resident for waiting in _parts_of(messages.level(priority)))
            if messages._gate is not None:
                total += sum(waiting._resident for waiting in messages._gate._waiting())
        if isinstance(destination, Topic):
            for group in destination.groups():
                for sequence in group.sequences().values():
                    chunks = [sequence.chunk(number) for number in sequence.chunk_numbers()]
                    total += sum(chunk.bytes for chunk in chunks if chunk and chunk.spans is not None)
    return total


def _parts_of(level: Level) -> list[Waiting]:
    if isinstance(level, SharedLevel):
        return [level._private]
    if isinstance(level, SelectiveLevel):
        return list(level._all())
    assert isinstance(level, Waiting)
    return [level]

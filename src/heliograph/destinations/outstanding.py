"""What one consumer has been given and not settled, by delivery tag.

Tags are given per consumer without a gap, so that settlements stay ranges whatever was picked for it
(HOTPATH rule 8). The usual settlement begins at the oldest tag and costs one look; any other is found by
bisection.
"""

from __future__ import annotations

from bisect import bisect_right

from heliograph.model.block import Span
from heliograph.model.errors import ClientFault

Ranges = list[tuple[int, int]]


class Outstanding:
    """Spans under consecutive tags."""

    __slots__ = ("_spans", "_tags", "messages")

    def __init__(self) -> None:
        self._tags: list[int] = []
        self._spans: list[Span] = []
        self.messages = 0

    def add(self, tag: int, span: Span) -> None:
        self._tags.append(tag)
        self._spans.append(span)
        self.messages += span.stop - span.start

    def take(self, first: int, last: int) -> list[Span]:
        """Remove tags first..last, in order. Raises ClientFault unless all of them are outstanding."""
        tags, spans = self._tags, self._spans
        index = bisect_right(tags, first) - 1
        if last < first or index < 0:
            raise _unknown(first, last)
        self._require(index, first, last)
        taken: list[Span] = []
        begin = index
        keep_tags: list[int] = []
        keep_spans: list[Span] = []
        while index < len(tags) and tags[index] <= last:
            tag, span = tags[index], spans[index]
            offset = max(first - tag, 0)
            stop = min(last - tag + 1, span.stop - span.start)
            if offset:
                keep_tags.append(tag)
                keep_spans.append(span.part(span.start, span.start + offset))
            if stop < span.stop - span.start:
                keep_tags.append(tag + stop)
                keep_spans.append(span.part(span.start + stop, span.stop))
            whole = not offset and stop == span.stop - span.start
            taken.append(span if whole else span.part(span.start + offset, span.start + stop))
            index += 1
        tags[begin:index] = keep_tags
        spans[begin:index] = keep_spans
        self.messages -= last - first + 1
        return taken

    def _require(self, index: int, first: int, last: int) -> None:
        """Every tag of the range is here: the range was not settled before, in part or in whole."""
        tags, spans = self._tags, self._spans
        expected = first
        while expected <= last:
            if index >= len(tags) or tags[index] > expected:
                raise _unknown(expected, last)
            end = tags[index] + spans[index].stop - spans[index].start
            if end <= expected:
                raise _unknown(expected, last)
            expected = end
            index += 1

    def require(self, ranges: list[tuple[int, int]]) -> None:
        """Raises ClientFault unless all of these tags are outstanding, each named once and in order."""
        before = 0
        for first, last in ranges:
            index = bisect_right(self._tags, first) - 1
            if last < first or index < 0 or first <= before:
                raise _unknown(first, last)
            self._require(index, first, last)
            before = last

    def among(self, ranges: Ranges) -> Ranges:
        """Which of these tags, given in order, are outstanding."""
        whole = self._ranges()
        return subtracted(whole, subtracted(whole, ranges))

    def but(self, ranges: Ranges) -> Ranges:
        """Which tags are outstanding that are not among these, given in order."""
        return subtracted(self._ranges(), ranges)

    def _ranges(self) -> Ranges:
        return [(tag, tag + span.stop - span.start - 1) for tag, span in self.tagged()]

    def split(self, seen: int) -> tuple[list[Span], list[Span]]:
        """Remove everything: what has a tag up to and including `seen`, and what comes after."""
        before: list[Span] = []
        after: list[Span] = []
        tags = self._tags
        for tag, span in zip(tags, self.take_all(), strict=True):
            cut = min(max(span.start + seen - tag + 1, span.start), span.stop)
            if cut > span.start:
                before.append(span.part(span.start, cut))
            if cut < span.stop:
                after.append(span.part(cut, span.stop))
        return before, after

    def drop_behind(self, seen: int) -> list[Span]:
        """Remove what has a tag beyond `seen`."""
        tags = self._tags
        keep, dropped = self.split(seen)
        for tag, span in zip(tags, keep, strict=False):
            self.add(tag, span)
        return dropped

    def take_all(self) -> list[Span]:
        taken = self._spans
        self._tags, self._spans, self.messages = [], [], 0
        return taken

    def spans(self) -> list[Span]:
        return self._spans

    def tagged(self) -> list[tuple[int, Span]]:
        """Each span with the tag of its first message."""
        return list(zip(self._tags, self._spans, strict=True))


def subtracted(ranges: Ranges, less: Ranges) -> Ranges:
    """What is left of ranges, given in order, without others, given in order."""
    left: Ranges = []
    at = 0
    for first, last in ranges:
        start = first
        while start <= last:
            while at < len(less) and less[at][1] < start:
                at += 1
            if at == len(less) or less[at][0] > last:
                left.append((start, last))
                break
            low, high = less[at]
            if start < low:
                left.append((start, low - 1))
            start = high + 1
    return left


def _unknown(first: int, last: int) -> ClientFault:
    return ClientFault(
        f"delivery tags {first} to {last} are not outstanding at this consumer", code="settlement-unknown"
    )

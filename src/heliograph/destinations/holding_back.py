"""What a list does in a cluster that is in parts: it keeps what may not be handed out behind a gate (P3, P7, P11).

`regate` is called when a view is installed, comes into force, or is whole. What was set aside returns to its place,
and what may not go now is set aside. In between, what arrives and what comes up is sifted. A list that was never
told of a view has no gate, and pays for one look at that a span.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.cluster.dispatch_rules import ENDS, Hold
from heliograph.destinations.effects import AnyEffect, Continue, Load
from heliograph.destinations.pages import Entry, Page, entries_of
from heliograph.destinations.partition_gate import PartitionGate
from heliograph.destinations.pledging import Pledging
from heliograph.destinations.selective import SelectiveLevel
from heliograph.destinations.sorted_level import SortedLevel
from heliograph.destinations.survey import Survey
from heliograph.destinations.waiting import Level, Waiting
from heliograph.model.block import Span

Unshared = Waiting | SelectiveLevel | SortedLevel
"""A level that belongs to one list alone."""


class HoldingBack(Pledging):
    """The part of a list that obeys a gate."""

    is_closed: bool  # nothing at all may be handed out: the view is not in force
    selective: bool
    _gate: PartitionGate | None
    _is_pulled_from: bool
    _order: list[tuple[int, Level]]
    _survey: Survey | None
    _sorted: SortedLevel | None

    @property
    def depth(self) -> int:
        raise NotImplementedError

    def level(self, priority: int) -> Level:
        raise NotImplementedError

    def survey(self) -> None:
        raise NotImplementedError

    def count_handed_out(self) -> None:
        raise NotImplementedError

    # ---- a new situation

    def regate(self, gate: PartitionGate | None, effects: list[AnyEffect], *, is_closed: bool) -> None:
        """`gate`: what may not go from now on, None: everything may."""
        if self._is_pulled_from or (gate is None and self._gate is None and is_closed == self.is_closed):
            self.is_closed = is_closed
            return  # whoever pulls calls again at the end
        self.open_gate()
        self.is_closed = is_closed
        if gate is not None and gate.is_needed:
            self._close_gate(gate)
        if self.has_units:
            self.survey()
        if self.depth:
            effects.append(Continue())

    def open_gate(self) -> None:
        """What was set aside returns to its place, and what units of order hold back too: all is looked at anew."""
        gate, self._gate = self._gate, None
        if gate is not None:
            self._give_back(gate.take_all())

    def _give_back(self, contents: list[tuple[int, list[Span], list[Page]]]) -> None:
        """Messages, by priority, that are to be looked at again."""
        by_priority: dict[int, tuple[list[Span], list[Page]]] = {}
        for priority, spans, pages in contents:
            found = by_priority.setdefault(priority, ([], []))
            found[0].extend(spans)
            found[1].extend(pages)
        if by_priority and self._sorted is not None and self._survey is None:
            self._survey = Survey([])  # keys, and perhaps units, have to be read first
        for priority, (spans, pages) in by_priority.items():
            if self._survey is not None:
                self._survey.include(priority, [*spans, *pages])
            else:
                self.level(priority).lay_out(spans, pages)

    def _close_gate(self, gate: PartitionGate) -> None:
        if self.has_units:
            self.units.let_all_go(keep_asides=True)
            self.let_units_go_on()
            self.count_handed_out()
            for _, level in self._order:
                # Units are forgotten, which knew that what they let go on disk comes before what is in memory; and
                # what was offered is to be looked at with all others.
                level.lay_out_anew()
        self._gate = gate
        if (ranges := gate.ranges) and all(isinstance(level, Unshared) for _, level in self._order):
            for priority, spans, pages in self._taken_out(ranges):
                gate.keep_spans(priority, spans)
                for page in pages:
                    gate.keep_page(priority, page)
        self._look_behind(gate)

    def _taken_out(self, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, list[Span], list[Page]]]:
        """What has these numbers leaves the levels."""
        for priority, level in self._order:
            assert isinstance(level, Unshared)
            yield priority, *level.extract(ranges)
        if self._survey is not None:
            loaded, cold = self._survey.extract(ranges)
            for _, span in loaded:
                yield self._place(span), [span], []
            for priority, page in cold:
                yield priority, [], [page]

    def _look_behind(self, gate: PartitionGate) -> None:
        """What comes up in another order than it came in is looked at in that order before anything goes."""
        if len(self._order) < 2 and not self.selective and self._sorted is None:
            return
        if not all(isinstance(level, Unshared) for _, level in self._order):
            return
        found = list(self._taken_out([(gate.lowest, FARTHEST)]))
        if any(spans or pages for _, spans, pages in found):
            self._survey = self._survey or Survey([])
            for priority, spans, pages in found:
                self._survey.include(priority, [*spans, *pages])

    # ---- what arrives, and what comes up

    def sifted(self, priority: int, span: Span) -> Span | None:
        """What of a span, which is in no level, may be there; the rest is set aside."""
        assert self._gate is not None
        return self._gate.sift(priority, span)[0]

    def sifted_from(self, priority: int, span: Span, effects: list[AnyEffect]) -> Span | None:
        """The same of a span that came up."""
        assert self._gate is not None
        free, held = self._gate.sift(priority, span)
        if held is not None:
            self._leave_level(held, effects)
        return free

    def _leave_level(self, span: Span, effects: list[AnyEffect]) -> None:
        raise NotImplementedError

    def _waits_again(self, span: Span) -> None:
        if self._gate is not None:
            self._gate.came_back(span)

    # ---- whose messages are on disk

    def read_behind_gate(self, effects: list[AnyEffect]) -> None:
        wanted = self._gate.page_to_read() if self._gate is not None else None
        if wanted is not None:
            effects.append(Load(self.number, *wanted))

    def was_read_behind_gate(self, page: Page, buffers: list[bytes]) -> bool:
        """Whether the page was asked for to see whose its messages are."""
        gate = self._gate
        if gate is None or not gate.read(page, buffers):
            return False
        self._give_back(gate.take_cleared())
        self._look_behind(gate)
        return True

    # ---- for those who look

    @property
    def held_back(self) -> dict[Hold, int]:
        """How many messages wait, and why, that could go if the cluster were whole."""
        if self.is_closed:
            return {Hold.NOT_IN_FORCE: self.depth} if self.depth else {}
        return (
            {why: count for why, count in self._gate.reasons.items() if count}
            if self._gate is not None
            else {}
        )

    def elsewhere_behind(self, number: int, priority: int) -> Iterator[Span | Page]:
        """What waits at a priority and is in no level, and lies not all before this number: it is held back by the
        gate or by its unit of order, or is being looked through."""
        for place in (self._gate, self._survey, self.units):
            for span in place.hot_spans() if place is not None else ():
                if self._place(span) == priority and number < span.block.number + span.stop - 1:
                    yield span
            for at, page in place.pages() if place is not None else ():
                if at == priority and number < page.next - 1:
                    yield page

    @property
    def is_gated(self) -> bool:
        """Whether anything may have to wait for the cluster."""
        return self.is_closed or self._gate is not None

    def held_entries(self) -> Iterator[tuple[int, Entry]]:
        """What is held back and outlives the process, by priority."""
        if self._gate is None:
            return
        for span in self._gate.hot_spans():
            if span.block.persistent:
                for entry in entries_of(span):
                    yield self._place(span), entry
        for priority, page in self._gate.pages():
            kept = page.persistent_part()
            if kept is not None:
                for entry in kept.entries():
                    yield priority, entry


FARTHEST = 2**63


def in_words(held_back: dict[Hold, int]) -> str:
    """For a person: what waits, and what ends it."""
    return "; ".join(f"{count} {_WORDS[why]} until {ENDS[why]}" for why, count in held_back.items())


_WORDS = {
    Hold.NOT_IN_FORCE: "wait",
    Hold.OLDER: "from before this view wait",
    Hold.FROM_RESTRICTED: "that a restricted part accepted wait",
    Hold.SENT_AGAIN: "that were sent again wait",
    Hold.UNIT: "with a unit of order wait",
    Hold.GAP: "behind a missing message wait",
    Hold.BEHIND: "behind others wait",
}

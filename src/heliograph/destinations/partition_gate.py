"""What a list may not hand out while its cluster is in parts, set aside (P3, P7, P11; `cluster/dispatch_rules.py`).

Two ways lead here. What may not go for the place it has in the log is set aside all at once, by ranges of numbers: of
five million messages on disk a thousand pages are moved and none is read. Everything else is looked at as it arrives
or comes up (`sift`): what follows something that waits, on its lane or in its unit of order, waits behind it.

Whose lanes and units the messages of a page are is not known before it is read. Whoever sent before the view began
may have something there, so its messages wait too, and only then are the pages read through, one at a time, once;
what waited without a cause comes up again. A session that began in this view need not wait for that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from heliograph.cluster.dispatch_rules import Hold, Message, Situation, Where, own_hold
from heliograph.cluster.partition_state import State
from heliograph.destinations.pages import Page, assemble
from heliograph.destinations.stamps import FAR, HeldLane, Stamps
from heliograph.destinations.standing import Standing
from heliograph.destinations.unit_of_order import segments
from heliograph.destinations.waiting import Residence, Waiting, number_of
from heliograph.model.block import Span, head_at
from heliograph.model.errors import ClientFault
from heliograph.model.ids import LaneId, SessionId, session_of
from heliograph.model.message import decode_head
from heliograph.model.units import GENERATED_UNIT, NO_UNIT

KeysOf = Callable[[Span], Sequence[int] | None]
_NO_LANE = LaneId(b"")
_ANY = Message(lane=_NO_LANE, where=Where.CURRENT)


class PartitionGate:
    """What one list holds back in one situation."""

    def __init__(
        self,
        situation: Situation,
        stamps: Stamps,
        standing: Standing,
        *,
        residence: Residence,
        keys_of: KeysOf,
        former_lanes: Mapping[LaneId, int],
        open_lanes: Mapping[LaneId, int],
    ) -> None:
        """`former_lanes`: those that may have sent something before the view began. Nobody remembers one whose
        session is over: what is not of `open_lanes` may be of any age."""
        self._situation = situation
        self._held_lanes = stamps.held
        self._residence = residence
        self._keys_of = keys_of
        self._former = former_lanes
        self._open = open_lanes
        self._former_sessions: dict[SessionId, None] = dict.fromkeys(map(session_of, former_lanes))
        places = stamps.places(standing)
        self._starts = [first for first, _ in places]
        self._wheres = [where for _, where in places]
        self._rules: dict[tuple[Where, Hold | None, bool, bool], Hold | None] = {}
        # In D everything with a unit waits by itself: a million units on disk need not be known.
        self._knows_units = situation.state is not State.D or situation.units_continue
        self._lanes: dict[LaneId, int] = {}  # the lowest number that waits
        self._units: dict[int, int] = {}
        self._kept: dict[int, Waiting] = {}
        self._pages: list[tuple[int, Page]] = []  # by priority, as they were found
        self._unread: deque[Page] = deque()
        self._reading: Page | None = None
        self._lowest_unread = FAR
        # What waits only because pages were not read, and what it makes wait.
        self._doubtful: dict[int, Waiting] = {}
        self._doubtful_lanes: dict[LaneId, int] = {}
        self._doubtful_units: dict[int, int] = {}
        self.reasons: dict[Hold, int] = {}
        self.messages = 0

    # ---- by place

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Numbers that may not go for the place they have."""
        ends = [*(start - 1 for start in self._starts[1:]), FAR]
        return [
            (first, last)
            for first, last, where in zip(self._starts, ends, self._wheres, strict=True)
            if self._rule(where, None, False, False) is not None
        ]

    @property
    def lowest(self) -> int:
        """No message with a lower number waits, and none that does makes one with a lower number wait."""
        by_lane = min((held.number for held in self._held_lanes.values()), default=FAR)
        return min(by_lane, *(first for first, _ in self.ranges)) if self.ranges else by_lane

    @property
    def is_needed(self) -> bool:
        """Whether anything may have to wait."""
        is_restricted = self._situation.state is State.D and not self._situation.gets_each
        return is_restricted or self.lowest < FAR

    def keep_spans(self, priority: int, spans: list[Span]) -> None:
        """Messages within `ranges`, which were taken out of a level."""
        for span in spans:
            self._count(span)
            self._block(span, number_of(span))
        if spans:
            self._place(self._kept, priority).put_back(spans)

    def keep_page(self, priority: int, page: Page) -> None:
        self._pages.append((priority, page))
        self._unread.append(page)
        self._lowest_unread = min(self._lowest_unread, page.oldest)
        self.messages += page.messages
        hold = self._rule(self._wheres[bisect_right(self._starts, page.oldest) - 1], None, False, False)
        assert hold is not None, "a page is cut where places are"
        self.reasons[hold] = self.reasons.get(hold, 0) + page.messages

    # ---- one by one

    def sift(self, priority: int, span: Span) -> tuple[Span | None, Span | None]:
        """What of a span may go, and what is set aside: behind the first that waits, all do, since a block is of one
        lane."""
        for start, _, key, hold in self._runs(span):
            number = span.block.number + start
            is_doubtful = hold is None and not self._is_behind(span, key, number)
            if is_doubtful and not self._is_in_doubt(span, key, number):
                continue
            held = span.part(start, span.stop)
            self._set_aside(priority, held, is_doubtful=is_doubtful)
            return (span.part(span.start, start) if start > span.start else None), held
        return span, None

    def came_back(self, span: Span) -> None:
        """Messages were handed out and wait again. When they come up they are sifted; what is behind them waits now,
        if they have to."""
        for start, _, key, hold in self._runs(span):
            if hold is not None or self._is_behind(span, key, span.block.number + start):
                self._block(span.part(start, span.stop), span.block.number + start)
                return

    def _set_aside(self, priority: int, span: Span, *, is_doubtful: bool) -> None:
        self._count(span, is_doubtful=is_doubtful)
        self._block(span, number_of(span), is_doubtful=is_doubtful)
        waiting = self._place(self._doubtful if is_doubtful else self._kept, priority)
        if waiting.messages and number_of(span) < waiting.last_number:
            waiting.put_back([span])
        else:
            waiting.append(span)

    def _place(self, places: dict[int, Waiting], priority: int) -> Waiting:
        found = places.get(priority)
        if found is None:
            found = places[priority] = Waiting(self._residence)
        return found

    def _runs(self, span: Span) -> Iterator[tuple[int, int, int, Hold | None]]:
        """Runs of messages of one unit for which the same holds: start, stop, unit, why they wait by themselves."""
        keys = self._keys_of(span)
        block = span.block
        held = self._held_of(block.lane)
        for begin, end, key in (
            segments(span, keys) if keys is not None else ((span.start, span.stop, NO_UNIT),)
        ):
            start = begin
            while start < end:
                index = bisect_right(self._starts, block.number + start) - 1
                stop = end
                if index + 1 < len(self._starts):
                    stop = min(stop, self._starts[index + 1] - block.number)
                why = None
                if held is not None:
                    sequence = block.first + start
                    if sequence < held.first:
                        stop = min(stop, held.first - block.first)
                    elif sequence <= held.last:
                        why = held.why
                        stop = min(stop, held.last - block.first + 1)
                is_new = key != NO_UNIT and self._is_unit_new(span, start)
                yield start, stop, key, self._rule(self._wheres[index], why, key != NO_UNIT, is_new)
                start = stop

    def _held_of(self, lane: LaneId) -> HeldLane | None:
        held = self._held_lanes.get(lane)
        if held is None or not self._situation.gets_each:
            return held
        if not held.behind_gap:
            return None
        return HeldLane(held.behind_gap, FAR, Hold.GAP, held.number)

    def _rule(self, where: Where, why: Hold | None, has_unit: bool, is_unit_new: bool) -> Hold | None:
        case = (where, why, has_unit, is_unit_new)
        if case not in self._rules:
            message = Message(
                lane=_NO_LANE,
                where=Where.RESTRICTED if why is Hold.FROM_RESTRICTED else where,
                is_sent_again=why is Hold.SENT_AGAIN,
                is_behind_gap=why is Hold.GAP,
                unit=1 if has_unit else NO_UNIT,
                is_unit_new=is_unit_new,
            )
            self._rules[case] = own_hold(self._situation, message)
        return self._rules[case]

    def _is_unit_new(self, span: Span, index: int) -> bool:
        """A generated unit is of one session: it is new if that is."""
        lane = span.block.lane
        if self._knows_units or lane not in self._open or session_of(lane) in self._former_sessions:
            return False
        return _is_generated(span, index)

    def _is_behind(self, span: Span, key: int, number: int) -> bool:
        return self._lanes.get(span.block.lane, FAR) < number or self._units.get(key, FAR) < number

    def _is_in_doubt(self, span: Span, key: int, number: int) -> bool:
        """Whether something on disk, which was not looked at, may be before it."""
        if not self._unread and self._reading is None:
            return False
        lane = span.block.lane
        if self._doubtful_lanes.get(lane, FAR) < number or self._doubtful_units.get(key, FAR) < number:
            return True
        if number < self._lowest_unread:
            return False
        return not self._began_here(lane) or (key != NO_UNIT and self._knows_units)

    def _began_here(self, lane: LaneId) -> bool:
        return lane in self._open and lane not in self._former

    def _block(self, span: Span, number: int, *, is_doubtful: bool = False) -> None:
        """What is behind this waits."""
        lanes = self._doubtful_lanes if is_doubtful else self._lanes
        units = self._doubtful_units if is_doubtful else self._units
        lane = span.block.lane
        lanes[lane] = min(lanes.get(lane, FAR), number)
        keys = self._keys_of(span)
        for start, _, key in segments(span, keys) if keys is not None else ():
            if key != NO_UNIT and (self._knows_units or self._is_unit_new(span, start)):
                units[key] = min(units.get(key, FAR), span.block.number + start)

    def _count(self, span: Span, *, is_doubtful: bool = False) -> None:
        self.messages += span.stop - span.start
        runs = [(span.start, span.stop, NO_UNIT, None)] if is_doubtful else self._runs(span)
        for start, stop, _, hold in runs:
            why = hold or Hold.BEHIND
            self.reasons[why] = self.reasons.get(why, 0) + stop - start

    # ---- reading what was set aside unread

    def page_to_read(self) -> tuple[int, Page] | None:
        """The page that has to be looked at now, if somebody waits for it."""
        if (
            self._reading is not None
            or not self._unread
            or not any(each.messages for each in self._doubtful.values())
        ):
            return None
        self._reading = self._unread.popleft()
        return next((priority, page) for priority, page in self._pages if page is self._reading)

    def read(self, page: Page, buffers: list[bytes]) -> bool:
        """Whether this was the page asked for."""
        if page is not self._reading:
            return False
        self._reading = None
        for span in assemble(page, buffers):
            self._block(span, number_of(span))
        return True

    def take_cleared(self) -> list[tuple[int, list[Span], list[Page]]]:
        """When everything was read: what waited for that, by priority, to be looked at again."""
        if self._unread or self._reading is not None or not self._doubtful:
            return []
        found = _contents(self._doubtful)
        for spans, pages in ((spans, pages) for _, spans, pages in found):
            less = sum(span.stop - span.start for span in spans) + sum(page.messages for page in pages)
            self.messages -= less
            self.reasons[Hold.BEHIND] = self.reasons.get(Hold.BEHIND, 0) - less
        self._doubtful, self._doubtful_lanes, self._doubtful_units = {}, {}, {}
        return found

    # ---- the end

    def take_all(self) -> list[tuple[int, list[Span], list[Page]]]:
        """Everything, by priority."""
        found = [*_contents(self._kept), *_contents(self._doubtful)]
        found += [(priority, [], [page]) for priority, page in self._pages]
        self._kept, self._doubtful, self._pages = {}, {}, []
        self._lanes, self._units, self._doubtful_lanes, self._doubtful_units = {}, {}, {}, {}
        self._lowest_unread = FAR
        self._unread.clear()
        self._reading = None
        self.messages = 0
        self.reasons.clear()
        return found

    # ---- for those who look

    @property
    def is_partly_cold(self) -> bool:
        return bool(self._pages) or any(each.is_partly_cold for each in self._waiting())

    def _waiting(self) -> Iterator[Waiting]:
        yield from self._kept.values()
        yield from self._doubtful.values()

    def hot_spans(self) -> Iterator[Span]:
        for waiting in self._waiting():
            yield from waiting.hot_spans()

    def pages(self) -> Iterator[tuple[int, Page]]:
        yield from self._pages
        for places in (self._kept, self._doubtful):
            for priority, waiting in places.items():
                for page in waiting.cold_pages():
                    yield priority, page


def _contents(places: dict[int, Waiting]) -> list[tuple[int, list[Span], list[Page]]]:
    found = []
    for priority, waiting in places.items():
        found.append((priority, list(waiting.hot_spans()), list(waiting.cold_pages())))
        waiting.clear()
    return found


def decides(situation: Situation) -> bool:
    """Whether anything at all may be handed out."""
    return own_hold(situation, _ANY) is not Hold.NOT_IN_FORCE


def _is_generated(span: Span, index: int) -> bool:
    """Whether the unit of a message, by its place in its block, was made up by a client's library."""
    try:
        raw = head_at(span.block, index)
        return bool(raw) and (decode_head(raw).unit or "").startswith(GENERATED_UNIT)
    except ClientFault:
        return False

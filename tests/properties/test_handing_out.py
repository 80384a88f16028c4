"""Client managers at different places in the order of deliveries: what reaches a client is known to most of them, and
when the view ends client managers and message managers agree on the rest without a word (P5, docs/decisions/0019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from heliograph.bus.commands import Command, Dispatched, DispatchSeen, Logged
from heliograph.bus.interface import Incarnation
from heliograph.cluster.handed_out import HandedOut
from heliograph.cluster.seen_marks import SeenMarks
from heliograph.model.block import Span, pack_lone, parse
from heliograph.model.ids import ConsumerId, LaneId
from heliograph.nodes.handing_out import HandingOut
from heliograph.nodes.seen import Seen

pytestmark = pytest.mark.req("P5")

PRIMARY = Incarnation(b"p" * 16)
STEPS = 40
Frame = tuple[Incarnation, Command]


class Manager:
    """A client manager with one consumer, as far as it has heard. It counts as a message manager would, too."""

    def __init__(self, number: int, say: Callable[[Incarnation, Command], None]) -> None:
        self.identity = Incarnation(bytes([number]) * 16)
        self.consumer = ConsumerId(bytes([number]) * 16)
        self.heard = 0
        self.told: dict[int, None] = {}  # tags
        self._soon: list[Callable[[], None]] = []
        self.seen = Seen(
            lambda word: say(self.identity, word),
            self._soon.append,
            lambda _seconds, call: self._soon.append(call),
            is_own=lambda consumer: consumer == self.consumer,
        )
        self.handing_out = HandingOut(self._tell, lambda *_: None)

    def _tell(self, command: Command) -> None:
        assert isinstance(command, Dispatched)
        assert not self.told or command.tag > max(self.told), "in order, and once"
        self.told[command.tag] = None

    def hear(self, frame: Frame) -> None:
        """As a station does."""
        self.heard += 1
        sender, command = frame
        is_news = self.seen.on_apply(sender, [command], self.heard)
        for decision in command.decisions if isinstance(command, Logged) else ():
            if isinstance(decision, Dispatched) and decision.consumer == self.consumer:
                place = 0 if self.seen.handed_out.is_waived else self.heard
                self.handing_out.hand_out(decision, place)
        if is_news:
            self.handing_out.seen(self.seen.handed_out.seen_by_most(self.identity))

    def speak(self) -> None:
        soon, self._soon[:] = list(self._soon), []
        for call in soon:
            call()


class View:
    """One view: frames in their order, and who has heard how many of them."""

    def __init__(self, count: int, draw: st.DataObject) -> None:
        self._draw = draw
        self.frames: list[Frame] = []
        self.managers = [Manager(number, self._say) for number in range(1, count + 1)]
        self.of_consumer = {each.consumer: each for each in self.managers}
        self.tags = 0
        self.dispatches: list[tuple[int, Manager, int]] = []  # place, target, tag
        for manager in self.managers:
            manager.seen.installed(tuple(each.identity for each in self.managers), manager.identity)

    def _say(self, who: Incarnation, command: Command) -> None:
        self.frames.append((who, command))

    def play(self) -> None:
        for _ in range(self._draw.draw(st.integers(1, STEPS), label="steps")):
            manager = self._draw.draw(st.sampled_from(self.managers), label="who")
            what = self._draw.draw(st.sampled_from(["hand out", "hear", "hear", "speak"]), label="what")
            if what == "hand out":
                self._hand_out(manager)
            elif what == "speak":
                manager.speak()
            elif manager.heard < len(self.frames):
                manager.hear(self.frames[manager.heard])
                self._check_known_to_most(manager)

    def _hand_out(self, target: Manager) -> None:
        self.tags += 1
        block = parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=self.tags))
        dispatched = Dispatched(target.consumer, self.tags, Span(block, 0, 1), "")
        self._say(PRIMARY, Logged(1, 0, [], [], decisions=[dispatched]))
        self.dispatches.append((len(self.frames), target, self.tags))

    def _check_known_to_most(self, manager: Manager) -> None:
        for place, target, tag in self.dispatches:
            if target is manager and tag in manager.told:
                know = [each for each in self.managers if each.heard >= place]
                assert 2 * len(know) > len(self.managers), "most know of what a client has"

    def end(self) -> None:
        """Those who have heard the same go on together, and each of them is asked as if it led."""
        for heard in sorted({each.heard for each in self.managers}):
            group = [each for each in self.managers if each.heard == heard]
            came = [each.identity for each in group]
            views = [self._dropped(each, came) for each in group]
            assert all(view == views[0] for view in views), "all agree"
            for manager in group:
                manager.handing_out.view_ended()
            for place, target, tag in self.dispatches:
                if place <= heard and target in group:
                    assert (tag in target.told) != (tag in views[0]), "with its client, or back: one of them"
                elif place <= heard:
                    assert tag not in views[0], "who is not here may have handed it out"

    def _dropped(self, member: Manager, came: list[Incarnation]) -> list[int]:
        def target_of(consumer: ConsumerId) -> Incarnation:
            return self.of_consumer[consumer].identity

        handed_out = member.seen.handed_out
        return [each.first for each in handed_out.dropped(came, target_of)]


def search(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate])
    @given(st.integers(1, 5), st.data())
    def tried(count: int, draw: st.DataObject) -> None:
        view = View(count, draw)
        view.play()
        view.end()

    tried()


def test_what_a_client_has_is_known_to_most_and_all_agree_on_the_rest() -> None:
    search(500)


def at_once(self: SeenMarks, _target: Incarnation) -> int:
    return self._delivered


def half(self: SeenMarks, target: Incarnation) -> int:
    seen = [self._delivered if who == target else self._marks.get(who, 0) for who in self._clients]
    return min(self._delivered, sorted(seen, reverse=True)[(len(seen) - 1) // 2])


def target_twice(self: SeenMarks, _target: Incarnation) -> int:
    seen = [self._delivered, *(self._marks.get(who, 0) for who in self._clients)]
    return min(self._delivered, sorted(seen, reverse=True)[len(self._clients) // 2])


def forgets_too_early(self: SeenMarks) -> int:
    return max(self._marks.values(), default=0)


def says_more_than_it_has(self: HandedOut) -> int | None:
    word = self._marks.take_word()
    return None if word is None else word + 5


def keeps(self: HandingOut) -> None:
    for consumer in list(self._waiting):
        self._waiting[consumer] = type(self._waiting[consumer])(
            (0, decision) for _, decision in self._waiting[consumer]
        )
        self._go_on(consumer)


@pytest.mark.parametrize(
    ("kind", "name", "planted"),
    [
        (SeenMarks, "seen_by_most", at_once),
        (SeenMarks, "seen_by_most", half),
        (SeenMarks, "seen_by_most", target_twice),
        (SeenMarks, "told_by_most", forgets_too_early),
        (HandedOut, "take_word", says_more_than_it_has),
        (HandingOut, "view_ended", keeps),
    ],
)
def test_who_breaks_the_rule_shows(kind: type, name: str, planted: Any) -> None:
    with patch.object(kind, name, planted), pytest.raises(AssertionError):
        search(3000)


def test_a_word_counts_in_its_own_view_alone() -> None:
    """`Views` drops what was said in another one; what was counted there is forgotten with it."""
    manager = Manager(1, lambda *_: None)
    clients = (manager.identity, Incarnation(b"o" * 16))
    manager.seen.installed(clients)
    manager.hear((clients[1], DispatchSeen(9)))
    manager.seen.installed(clients)
    manager.handing_out.view_ended()
    manager.heard = 0
    block = parse(pack_lone(b"body", lane=LaneId(b"l" * 16), sequence=1))
    decided: list[Command] = [Dispatched(manager.consumer, 1, Span(block, 0, 1), "")]
    manager.hear((PRIMARY, Logged(1, 0, [], [], decisions=decided)))
    manager.hear((PRIMARY, DispatchSeen(1)))
    assert manager.told == {}
    manager.hear((clients[1], DispatchSeen(1)))
    assert list(manager.told) == [1]

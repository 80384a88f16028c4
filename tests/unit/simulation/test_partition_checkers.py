"""The judges of runs with a network that is cut, each shown what it must see, and what it must let pass."""

from __future__ import annotations

from heliograph.bus.interface import STAMP_BYTES, Stamp
from heliograph.model.ids import ConsumerId
from simulation.partition_checkers import Judge, abridged
from simulation.partition_story import PartedHistory
from simulation.partition_watch import ALL_STEPS, Decision, Watch
from simulation.world import World


def stamp(number: int) -> Stamp:
    return Stamp(number.to_bytes(8, "little") + bytes(STAMP_BYTES - 8))


class Case:
    """One sub-cluster, whose nodes are in views and hand out messages at given moments."""

    def __init__(self) -> None:
        self.world = World(1)
        self.history = PartedHistory(self.world)
        self.watch = Watch(self.world, self.history.story)
        self._tags = 0

    def confirm(self, at: float, key: str) -> None:
        self.world.now = at
        self.history.send(key, "queue:q")
        self.history.sent[key].confirmed_at = at

    def enter(self, at: float, number: int, *nodes: str) -> None:
        self.world.now = at
        for node in nodes:
            self.watch.entered(node, "main", stamp(number))

    def hand_out(self, at: float, key: str, number: int) -> None:
        self._tags += 1
        made = Decision(at, stamp(number), "node", ConsumerId(b"c"), self._tags, key)
        self.watch.decisions.setdefault((key, self._tags), []).append(made)
        self.world.now = at + 0.1
        hand_out = super(PartedHistory, self.history).handed("queue:q", key, "reader#1", is_marked=False)
        hand_out.tag = self._tags

    @property
    def violations(self) -> list[str]:
        return Judge(self.history, self.watch, {"main": ["node4"]}).violations()


def two_views() -> Case:
    case = Case()
    for number in range(1, 6):
        case.confirm(0.5, f"w#1:{number}")
    case.enter(1.0, 1, "node1", "node4")
    case.enter(2.0, 2, "node2", "node5")
    return case


def test_two_parts_that_hand_out_old_messages_at_a_time_are_seen() -> None:
    case = two_views()
    case.hand_out(2.1, "w#1:1", 2)
    case.hand_out(2.2, "w#1:2", 1)
    case.hand_out(2.3, "w#1:3", 2)
    assert len(case.violations) == 1
    assert "hand out old messages at a time" in case.violations[0]


def test_one_after_the_other_is_right() -> None:
    case = two_views()
    case.hand_out(1.5, "w#1:1", 1)
    case.hand_out(1.9, "w#1:2", 1)
    case.hand_out(2.1, "w#1:3", 2)
    assert case.violations == []


def test_what_a_part_accepted_itself_it_may_hand_out_beside_another() -> None:
    case = two_views()
    case.confirm(2.05, "x#1:1")
    case.hand_out(2.1, "w#1:1", 1)
    case.hand_out(2.2, "x#1:1", 2)
    case.hand_out(2.3, "w#1:2", 1)
    assert case.violations == []


def test_what_was_decided_and_reached_nobody_does_not_count() -> None:
    case = two_views()
    case.hand_out(2.1, "w#1:1", 1)
    made = Decision(2.2, stamp(2), "node", ConsumerId(b"c"), 99, "w#1:2")
    case.watch.decisions["w#1:2", 99] = [made]
    case.hand_out(2.3, "w#1:3", 1)
    assert case.violations == []


def test_of_many_alike_a_few_are_told() -> None:
    many = [f"w#1:{number} was confirmed and is lost at queue:q" for number in range(50)]
    assert abridged([*many, "x#1:1 came 2 times unmarked"]) == [
        *many[:3],
        "... and 47 more like this",
        "x#1:1 came 2 times unmarked",
    ]


def test_the_story_tells_what_concerns_everybody_and_the_messages_in_question() -> None:
    case = Case()
    case.history.story.tell("--- the network is cut: node1 | node2")
    case.history.story.tell("is done", "w#1:1")
    case.history.story.tell("is lost", "w#1:2")
    told = case.history.story.about(["w#1:2 was confirmed and is lost at queue:q"])
    assert [line.split("  ")[-1] for line in told] == [
        "--- the network is cut: node1 | node2",
        "w#1:2 is lost",
    ]


def test_every_transition_of_the_table_has_a_name_of_its_own() -> None:
    assert len(set(ALL_STEPS)) == 30
    assert "A -4-> D" in ALL_STEPS

"""What must hold of a run with a network that is cut, beyond what `checkers.py` asks of any history. Judged by what
was said and done, across all parts; never by the state that a node takes itself to be in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from heliograph.bus.interface import Stamp
from simulation.checkers import named
from simulation.grip import Grip
from simulation.history import HandOut
from simulation.partition_story import PartedHistory
from simulation.partition_watch import Decision, Watch

# What differs between two sentences about the same thing: names of messages and clients, moments, destinations.
_VARIES: Final = re.compile(r"[\w/]*#\d+(:\d+)?|(queue|topic):[\w/]+|\d+(\.\d+)?")
_OF_A_KIND: Final = 3


class Judge:
    """Of one run. `managers`: the message managers of each sub-cluster, by name."""

    def __init__(self, history: PartedHistory, watch: Watch, managers: dict[str, list[str]]) -> None:
        self._history = history
        self._watch = watch
        self._managers = managers

    def violations(self) -> list[str]:
        return [
            *named("stray decision", self._watch.faults),
            *named("two in force", self._two_in_force()),
            *named("unit in two parts", self._units_in_two_parts()),
            *named("given while held", self._given_while_held()),
        ]

    # ---- at most one part hands out old messages

    def _two_in_force(self) -> Iterator[str]:
        """Of each sub-cluster, old messages that reached somebody were handed out in one view at a time."""
        reigns: dict[str, dict[Stamp, Reign]] = {}
        for hand_out in self._history.hand_outs:
            decision = self._decision_of(hand_out)
            if decision is not None and self._is_old(decision):
                channel = self._watch.views[decision.stamp].channel
                reign = reigns.setdefault(channel, {}).setdefault(decision.stamp, Reign())
                reign.add(decision)
        for channel, views in reigns.items():
            words = f"two parts of {channel} hand out old messages at a time"
            yield from self._overlaps(words, list(views.values()))

    def _units_in_two_parts(self) -> Iterator[str]:
        """What has a unit of order is handed out in one view at a time, old or not: a restricted part hands out none
        of it (P11)."""
        reigns: dict[tuple[str, str], dict[Stamp, Reign]] = {}
        for hand_out in self._history.hand_outs:
            sent = self._history.sent.get(hand_out.key)
            decision = self._decision_of(hand_out) if sent is not None and sent.unit else None
            if sent is not None and decision is not None and decision.stamp in self._watch.views:
                reigns.setdefault((hand_out.place, sent.unit), {}).setdefault(decision.stamp, Reign()).add(
                    decision
                )
        for (place, unit), views in reigns.items():
            yield from self._overlaps(
                f"unit {unit} of {place} is in two parts at a time", list(views.values())
            )

    def _decision_of(self, hand_out: HandOut) -> Decision | None:
        if not hand_out.place.startswith("queue:"):
            return None  # of a topic, every part may hand out what it has (P4)
        return self._watch.decision_of(hand_out.key, hand_out.tag, hand_out.at)

    def _is_old(self, decision: Decision) -> bool:
        """It was confirmed before anybody entered the view: it cannot have been accepted in it."""
        sent, view = self._history.sent.get(decision.key), self._watch.views.get(decision.stamp)
        return sent is not None and view is not None and 0 < sent.confirmed_at < view.since

    def _overlaps(self, words: str, reigns: list[Reign]) -> Iterator[str]:
        reigns.sort(key=lambda reign: reign.first.at)
        for at, reign in enumerate(reigns):
            for later in reigns[at + 1 :]:
                if later.first.at < reign.last.at:
                    yield f"{words}: {self._told(reign.last)}, and {self._told(later.first)}"
                    break

    def _told(self, decision: Decision) -> str:
        view = self._watch.views[decision.stamp]
        return f"{decision.node} in {view.name} at {decision.at:.4f} ({decision.key})"

    # ---- redelivery

    def _given_while_held(self) -> Iterator[str]:
        """What a client holds, over a connection that is in order, goes to nobody else; unless all message managers
        are together and its client manager is not with them: then after the lease (PROTOCOL 4)."""
        for hand_out, grip in self._history.again:
            decision = self._decision_of(hand_out)
            if decision is None or self._may_take_from(decision, grip):
                continue
            yield (
                f"{hand_out.key} went to {hand_out.consumer} ({hand_out.at:.4f}) while {grip.hand_out.consumer} at"
                f" {grip.node} held it since {grip.hand_out.at:.4f}"
            )

    def _may_take_from(self, decision: Decision, grip: Grip) -> bool:
        view = self._watch.views.get(decision.stamp)
        if view is None:
            return False
        is_whole = all(node in view.nodes for node in self._managers.get(view.channel, ()))
        return is_whole and grip.node not in view.nodes


def abridged(violations: list[str]) -> list[str]:
    """The first few of each kind, and how many more there are: a lost queue is a thousand sentences of one kind."""
    kinds: dict[str, list[str]] = {}
    for each in violations:
        kinds.setdefault(_VARIES.sub("*", each), []).append(each)
    found = []
    for alike in kinds.values():
        found += alike[:_OF_A_KIND]
        if len(alike) > _OF_A_KIND:
            found.append(f"... and {len(alike) - _OF_A_KIND} more like this")
    return found


class Reign(msgspec.Struct):
    """From when to when old messages were handed out in a view."""

    decisions: list[Decision] = []

    def add(self, decision: Decision) -> None:
        self.decisions.append(decision)

    @property
    def first(self) -> Decision:
        return min(self.decisions, key=lambda each: each.at)

    @property
    def last(self) -> Decision:
        return max(self.decisions, key=lambda each: each.at)

"""What the partition states mean, and which may follow which: for people, and for the docs that are made of it.

A member comes from the state of its last view, or from none if it has just started, and goes where a rule of
`partition_state.py` takes its next view. Where it goes does not depend on where it comes from; why it can does:

    from \\ by   1    2       3       4
    start       A    B, C    B, C    D
    A           A    B, C    B, C    D
    B           A    B, C    B, C    D
    C           A    B, C    B, C    D
    D           A    B, C    B, C    D
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from heliograph.cluster.partition_state import Partition, State

START: Final = "start"


class Meaning(msgspec.Struct, frozen=True):
    """A state in words."""

    title: str
    means: str
    held_back: str
    ends: str


MEANINGS: Final[dict[State, Meaning]] = {
    State.A: Meaning(
        "whole",
        "Every configured message manager is here. Everything is handed out.",
        "Nothing, once every message manager has the union of what all parts accepted; until then as in B.",
        "A message manager is lost.",
    ),
    State.B: Meaning(
        "unrestricted, the smaller part",
        "This part goes on with everything that was accepted before the cut, and with what comes now. "
        "Most of the cluster may be elsewhere, and is restricted.",
        "Messages that a restricted part accepted, messages that were sent again and are unknown here, and what is "
        "behind either in its session or unit of order. Topic messages are kept after delivery.",
        "All message managers meet again (A), or an administrator removes those that are gone for good.",
    ),
    State.C: Meaning(
        "unrestricted, the larger part",
        "As B, and most message managers and most client managers are here.",
        "As in B.",
        "As in B.",
    ),
    State.D: Meaning(
        "restricted",
        "Messages are accepted and stored. Of queues only what was accepted in this view is handed out; "
        "another part may be handing out the rest.",
        "Everything older than this view, and what is behind it in its session; messages with a unit of order, "
        "unless the destination's policy lets them go on; messages that were sent again. Topic messages are kept "
        "after delivery.",
        "All message managers meet again (A), this part meets the unrestricted one and catches up with it (B, C), "
        "all who were unrestricted last are together again (B, C), or an administrator overrides.",
    ),
}

RULES: Final[dict[int, str]] = {
    1: "every configured message manager is here with its enrolled store, all of one epoch",
    2: "one of the last unrestricted message managers, and most client managers of that view, came straight from it",
    3: "all of the last unrestricted message managers are here",
    4: "none of these",
}


class Transition(msgspec.Struct, frozen=True):
    """A member's way from one view to the next."""

    before: str
    rule: int
    after: State
    when: str


_WHENCE: Final[dict[str, dict[int, str]]] = {
    START: {
        1: "the last message manager to start completes the cluster",
        2: "a node starts and joins the unrestricted part",
        3: "after a power cut, those who were unrestricted last are back",
        4: "those who may know more are not there yet",
    },
    State.A: {
        1: "a client manager came or went",
        2: "a message manager is lost, most client managers are not",
        3: "most client managers are lost while a message manager that had not caught up is away",
        4: "most client managers are elsewhere, or no message manager that has the log is here",
    },
    State.B: {
        1: "the lost message managers are back",
        2: "somebody came or went, and most client managers of this part stayed",
        3: "most client managers of this part are lost, its message managers are here",
        4: "this part was cut again, and the other one has most of its client managers",
    },
    State.C: {
        1: "the lost message managers are back",
        2: "somebody came or went, and most client managers of this part stayed",
        3: "most client managers of this part are lost, its message managers are here",
        4: "this part was cut again, and the other one has most of its client managers",
    },
    State.D: {
        1: "the cut healed",
        2: "it met the unrestricted part",
        3: "the last of those who were unrestricted came back, and nobody else was meanwhile",
        4: "it met others who are restricted, or was cut again",
    },
}
_OUTCOMES: Final = ((1, State.A), (2, State.B), (2, State.C), (3, State.B), (3, State.C), (4, State.D))

TRANSITIONS: Final[tuple[Transition, ...]] = tuple(
    Transition(before, rule, after, why[rule]) for before, why in _WHENCE.items() for rule, after in _OUTCOMES
)


_RESTRICTED: Final = (
    "another part may be going on, since here are neither all message managers, nor one of the last unrestricted with"
    " most client managers of that view, nor all of the last unrestricted"
)


def sentence_of(partition: Partition, *, is_in_force: bool = True) -> str:
    """The state for a person who asks how things stand."""
    meaning = MEANINGS[partition.state]
    waiting = (
        "" if is_in_force or not partition.is_unrestricted else " It is not in force yet: nothing is decided."
    )
    why = RULES[partition.rule] if partition.is_unrestricted else _RESTRICTED
    return f"{partition.state}, {meaning.title}: {why}.{waiting}"


# ---- docs/reference/partition-states.md


def reference() -> str:
    """The page, whole."""
    return "\n".join([_HEAD, *_states(), *_rules(), *_diagram(), *_transitions()]) + "\n"


_HEAD: Final = """\
# Partition states

The state of a sub-cluster in a view. It is a function of what the members of the view said of themselves, so all
of them agree on it. This page is made from `cluster/partition_table.py`; the reasons are in
[decision 14](../decisions/0014-partitions.md).
"""
_RULES_HEAD: Final = """\
## Rules
The first that holds decides. *Most*: more than half, or half with the most senior. *Straight*: as
[views](views.md) say. C if more than half of the configured message managers and of the configured client managers
are here, else B.

| rule | holds if | state |
|---|---|---|"""
_RULES_FOOT: Final = """
A view that is not D decides nothing until it is **in force**: those without whom no other view could follow have
arrived in it, and all unrestricted message managers have it on disk.
"""


def _states() -> Iterator[str]:
    for state, meaning in MEANINGS.items():
        yield f"## {state}: {meaning.title}"
        yield f"{meaning.means}"
        yield ""
        yield f"*Held back:* {meaning.held_back}"
        yield ""
        yield f"*Ends when:* {meaning.ends}"
        yield ""


def _rules() -> Iterator[str]:
    yield _RULES_HEAD
    for rule, text in RULES.items():
        states = ", ".join(state for number, state in _OUTCOMES if number == rule)
        yield f"| {rule} | {text} | {states} |"
    yield _RULES_FOOT


def _diagram() -> Iterator[str]:
    yield "## Diagram"
    yield "Numbers are rules."
    yield ""
    yield "```mermaid"
    yield "stateDiagram-v2"
    ways: dict[tuple[str, State], list[int]] = {}
    for each in TRANSITIONS:
        ways.setdefault((each.before, each.after), []).append(each.rule)
    for (before, after), rules in ways.items():
        origin = "[*]" if before == START else before
        yield f"    {origin} --> {after}: {', '.join(map(str, rules))}"
    yield "```"
    yield ""


def _transitions() -> Iterator[str]:
    yield "## Transitions"
    yield "| from | rule | to | when |"
    yield "|---|---|---|---|"
    for each in TRANSITIONS:
        yield f"| {each.before} | {each.rule} | {each.after} | {each.when} |"

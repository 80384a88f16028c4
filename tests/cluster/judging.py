"""What diaries of several members must have in common."""

from itertools import pairwise
from typing import Any

from tests.suites.bus_behaviour import in_order, said
from tests.suites.bus_diary import Event

Diary = list[Event]


def heard_in_configurations(diary: Diary) -> list[tuple[Event, Diary]]:
    """Each configuration with what was heard in it."""
    parts: list[tuple[Event, Diary]] = []
    for event in diary:
        if event[0] in {"configuration", "ring", "ended"}:
            parts.append((event, []))
        elif event[0] in {"said", "hello", "frame"}:
            parts[-1][1].append(event)
    return parts


def since_the_first_word(diary: Diary) -> Diary:
    """Before it, each host came in on a ring of its own."""
    order = in_order(diary)
    return order[order.index(said(order)[0]) :]


def numbers(diary: Diary, who: int) -> list[int]:
    return [event[2] for event in said(diary, who)]


def check_that_those_who_moved_together_heard_the_same(diaries: list[Diary]) -> int:
    """From one configuration to the next, both the same: all that was heard in the first, since all of its members
    said hello in it, is the same. Returns how often two members were compared.

    Before a hello, members that just met may miss frames of one another: corosync loses what is under way.
    """
    compared = 0
    moves: dict[Any, Diary] = {}
    for diary in diaries:
        for (configuration, heard), (following, _) in pairwise(heard_in_configurations(diary)):
            move = (_met(configuration), _met(following))
            view = _since_all_said_hello(configuration, heard)
            if not view:
                continue
            if move in moves:
                compared += 1
                assert moves[move] == view, f"between {configuration} and {following} not all heard the same"
            else:
                moves[move] = view
    return compared


def _met(configuration: Event) -> tuple[Any, Any]:
    """Ring and members. Who is new depends on where one comes from. An end is nobody else's."""
    if configuration[0] == "ended":
        return object(), ()
    return configuration[-1], configuration[1]


def _since_all_said_hello(configuration: Event, heard: Diary) -> Diary:
    if configuration[0] == "ended":
        return []
    node, sequence = configuration[-1]
    missing = len(configuration[1])
    for at, event in enumerate(heard):
        missing -= event[0] == "hello" and event[2] == f"{node}.{sequence}"
        if not missing:
            return heard[at:]
    return []

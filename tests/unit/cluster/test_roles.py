"""Who is what in a view (M9): a function of what its members say of themselves. Who leads in which partition state is
told in `test_partition_state.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heliograph.bus.interface import NO_VIEW, Incarnation, Ring, Stamp
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Company, Hello, NodeState
from heliograph.cluster.partition_state import Enrolment, State, UnrestrictedView
from heliograph.cluster.roles import Roles, roles_in
from heliograph.cluster.view import formed

pytestmark = pytest.mark.req("M9")

LAST = UnrestrictedView(5, Stamp(b"L" * 24), (b"one", b"two"))
CONFIGURED = Enrolment(1, (("one", b"one"), ("two", b"two")), ("client",))


def manager(name: str, **other: Any) -> NodeState:
    known = NodeState(
        name,
        MESSAGE_MANAGER,
        store=name.encode(),
        cluster=b"here",
        record=msgspec.msgpack.encode(LAST),
        enrolment=msgspec.msgpack.encode(CONFIGURED),
    )
    return msgspec.structs.replace(known, **other)


def new(name: str, **other: Any) -> NodeState:
    return NodeState(name, MESSAGE_MANAGER, store=name.encode(), **other)


def roles(*nodes: NodeState) -> Roles:
    hellos = tuple(
        (Incarnation(bytes([number]) * 16), _hello(node)) for number, node in enumerate(nodes, start=1)
    )
    return roles_in(formed(_hello(nodes[0]).company, hellos))


def leader(*nodes: NodeState) -> str | None:
    found = roles(*nodes)
    return None if found.primary is None else found.states[found.primary].name


def _hello(node: NodeState) -> Hello:
    return Hello(Company(Ring(1, 1), (), ()), NO_VIEW, 6, (), b"", b"", b"", 0, (node,))


def test_the_longest_log_leads_and_seniority_breaks_the_tie() -> None:
    assert leader(manager("one", reach=(7, 0)), manager("two", reach=(9, 0))) == "two"
    assert leader(manager("one", reach=(9, 0)), manager("two", reach=(9, 0))) == "one", "enrolled first"
    assert leader(manager("client", role=CLIENT_MANAGER)) is None


def test_one_that_was_stopped_for_long_does_not_lead_because_it_never_noticed() -> None:
    """It had the log five views ago, and takes itself for synchronised; the others were on, and have restarted."""
    older = UnrestrictedView(4, Stamp(b"K" * 24), (b"one", b"two"))
    slept = manager("one", is_synchronised=True, reach=(900, 0), record=msgspec.msgpack.encode(older))
    assert leader(slept, manager("two", reach=(700, 0))) == "two"


def test_nobody_leads_while_one_is_missing_that_may_know_the_end() -> None:
    alone = roles(manager("one", is_waiting=True))
    assert (alone.primary, alone.missing, alone.partition.state) == (None, ("two",), State.D)


def test_one_that_has_waited_long_enough_leads_restricted() -> None:
    assert leader(manager("one")) == "one"
    assert leader(manager("one", is_waiting=True, is_synchronised=True)) == "one", (
        "it has been there all the time"
    )
    assert leader(manager("one"), new("three", is_waiting=True)) == "one"


def test_at_the_very_first_start_nobody_leads_before_as_many_are_here_as_are_expected() -> None:
    assert leader(new("one", expected=2)) is None
    first = roles(new("one", seniority=2, expected=2), new("two", seniority=1, expected=2))
    assert (leader(new("one", seniority=2), new("two", seniority=1)), first.partition.state) == (
        "two",
        State.A,
    )


def test_whose_data_is_of_another_cluster_has_no_say() -> None:
    found = roles(manager("one"), manager("two"), manager("three", cluster=b"there", reach=(99, 0)))
    assert len(found.states) == 2

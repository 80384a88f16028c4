"""Who leads in a view (M9): a function of what its members say of themselves."""

from __future__ import annotations

import msgspec
import pytest

from heliograph.bus.interface import NO_VIEW, Incarnation, Ring
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Company, Hello, NodeState
from heliograph.cluster.roles import roles_in
from heliograph.cluster.view import formed

pytestmark = pytest.mark.req("M9")


def manager(name: str, **other: object) -> NodeState:
    known = NodeState(name, MESSAGE_MANAGER, store=name.encode(), holders=(name.encode(),), cluster=b"here")
    return msgspec.structs.replace(known, **other)


def leader(*nodes: NodeState) -> str | None:
    hellos = tuple(
        (Incarnation(bytes([number]) * 16), _hello(node)) for number, node in enumerate(nodes, start=1)
    )
    roles = roles_in(formed(_hello(nodes[0]).company, hellos))
    return None if roles.primary is None else roles.states[roles.primary].name


def _hello(node: NodeState) -> Hello:
    return Hello(Company(Ring(1, 1), (), ()), NO_VIEW, 6, (), b"", b"", b"", 0, (node,))


def test_of_those_who_have_the_log_the_most_senior_leads() -> None:
    one, two = (manager(name, lineage=5, is_synchronised=True) for name in ("one", "two"))
    assert (
        leader(msgspec.structs.replace(one, seniority=2), msgspec.structs.replace(two, seniority=1)) == "two"
    )
    assert leader(one, msgspec.structs.replace(two, is_leading=True)) == "two", "a change costs a pause"
    assert leader(manager("client", role=CLIENT_MANAGER)) is None


def test_one_that_was_stopped_for_long_does_not_lead_because_it_never_noticed() -> None:
    """It had the log five views ago, and takes itself for synchronised; the others were on, and have restarted."""
    slept = manager("slept", lineage=5, is_synchronised=True, index=900)
    back = manager("back", lineage=6, index=700)
    assert leader(slept, back) == "back"
    assert leader(slept, msgspec.structs.replace(back, holders=(b"back", b"missing"))) is None, (
        "it may know more"
    )
    assert leader(slept, msgspec.structs.replace(back, lineage=5)) == "slept"


def test_nobody_leads_while_one_is_missing_that_may_know_the_end() -> None:
    waits = manager("waits", lineage=5, holders=(b"waits", b"missing"))
    assert leader(waits) is None
    assert leader(waits, manager("missing", lineage=4)) == "waits"
    assert leader(manager("first", holders=(), expected=2)) is None

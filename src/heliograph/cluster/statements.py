"""What the members of a view said, as the partition state is judged by it (docs/decisions/0014)."""

from __future__ import annotations

import msgspec

from heliograph.bus.interface import Incarnation
from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER, Hello, NodeState
from heliograph.cluster.log import decode_enrolment, decode_unrestricted
from heliograph.cluster.partition_state import Enrolment, Partition, Statement, partition_in
from heliograph.cluster.view import View, straight

FIRST_EPOCH = 1


def partition_of(view: View, managers: dict[Incarnation, NodeState]) -> Partition:
    """`managers`: those message managers of the view that have a say."""
    statements = [_statement(who, hello, managers.get(who)) for who, hello in view.hellos]
    return partition_in(_with_first_enrolment(statements, managers), straight(view))


def _statement(who: Incarnation, hello: Hello, manager: NodeState | None) -> Statement:
    client = next((node.name for node in hello.nodes if node.role == CLIENT_MANAGER), "")
    if manager is None:
        return Statement(who=who, client_manager=client, last=hello.last)
    assert manager.role == MESSAGE_MANAGER
    return Statement(
        who=who,
        client_manager=client,
        message_manager=manager.name,
        last=hello.last,
        reached=decode_unrestricted(manager.reached) if manager.reached else None,
        elders=manager.elders,
        clients=tuple(Incarnation(each) for each in manager.clients),
        store=manager.store,
        is_synchronised=manager.is_synchronised,
        is_leading=manager.is_leading,
        is_leaving=manager.is_leaving,
        record=decode_unrestricted(manager.record) if manager.record else None,
        reach=manager.reach[0],
        end=manager.index,
        enrolment=decode_enrolment(manager.enrolment) if manager.enrolment else None,
        proposed=decode_enrolment(manager.proposed) if manager.proposed else None,
    )


def _with_first_enrolment(
    statements: list[Statement], managers: dict[Incarnation, NodeState]
) -> list[Statement]:
    """The very first start: those who are here are the cluster, if there are as many as are expected. Nobody has
    handed anything out yet, and from here on all of them have the view on disk.

    It is still the first when some have recorded a view, and the end of that came before the enrolment was on any
    disk: who has the record goes first then, as ever.
    """
    is_first = not any(each.enrolment for each in statements)
    if not is_first or len(managers) < max((each.expected for each in managers.values()), default=1):
        return statements
    seniors = sorted(managers.values(), key=lambda each: (each.seniority, each.name))
    clients = sorted({each.client_manager: None for each in statements if each.client_manager})
    first = Enrolment(FIRST_EPOCH, tuple((each.name, each.store) for each in seniors), tuple(clients))
    return [
        msgspec.structs.replace(each, enrolment=first) if each.message_manager else each
        for each in statements
    ]

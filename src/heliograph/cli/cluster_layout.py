"""Which host of a new cluster has which kinds of nodes, and what to say of a layout that does not bear much (P9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.bus.presence import CLIENT_MANAGER, MESSAGE_MANAGER
from heliograph.model.errors import ClientFault

BOTH = "both"
_ROLES = (BOTH, CLIENT_MANAGER, MESSAGE_MANAGER)
_ADVICE = "Take an odd number of hosts with client managers, three at the least"


def roles_of(hosts: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """The role of each host; `given` are those that do not have both kinds, as HOST=ROLE. Raises ClientFault."""
    roles = dict.fromkeys(hosts, BOTH)
    for each in given:
        host, _, role = each.partition("=")
        if host not in roles or role not in _ROLES:
            sentence = f"a role is written HOST={'|'.join(_ROLES)}, with one of the hosts, not {each!r}"
            raise ClientFault(sentence, code="argument-invalid")
        roles[host] = role
    if not serving_clients(roles):
        raise ClientFault("a cluster needs a client manager", code="argument-invalid")
    if not keeping_messages(roles):
        raise ClientFault("a cluster needs a message manager", code="argument-invalid")
    return roles


def serving_clients(roles: Mapping[str, str]) -> list[str]:
    return [host for host, role in roles.items() if role != MESSAGE_MANAGER]


def keeping_messages(roles: Mapping[str, str]) -> list[str]:
    return [host for host, role in roles.items() if role != CLIENT_MANAGER]


def warnings(roles: Mapping[str, str]) -> list[str]:
    """A sentence for each thing that will go badly some day."""
    clients, messages = serving_clients(roles), keeping_messages(roles)
    found = []
    if len(messages) == 1:
        found.append(
            f"only {messages[0]} keeps messages: without it nothing is accepted, and with its disk all is lost. Take"
            " three hosts, and any one of them can be lost"
        )
    if len(clients) == 1:
        found.append(f"clients come to {clients[0]} only: without it nobody is served. {_ADVICE}")
    elif len(clients) == 2:
        found.append(
            "two hosts with client managers: if the one that was there first is lost, the other goes on restricted,"
            f" and hands out nothing that it had before. {_ADVICE}"
        )
    elif len(clients) % 2 == 0:
        found.append(
            f"{len(clients)} hosts with client managers, an even number: when the network is cut into halves, only"
            " the half with the one that was there first goes on unrestricted, and"
            f" {len(clients)} bear the loss of no more than {len(clients) - 1} do. {_ADVICE}"
        )
    return found + _of_one_kind(roles, clients, messages)


def _of_one_kind(roles: Mapping[str, str], clients: Sequence[str], messages: Sequence[str]) -> list[str]:
    found = []
    for kind, others in (("message manager", messages), ("client manager", clients)):
        without = [host for host in roles if host not in others]
        if without:
            found.append(
                f"no {kind} is on {' and '.join(without)}: a part of a cut in which there is no other host accepts no"
                f" messages. Give every host both kinds, or see to it that none of these is ever cut off from all of"
                f" {', '.join(others)}"
            )
    return found

"""What can be asked of the administration, and over what one must have the right to administer."""

from __future__ import annotations

from typing import Any, Final

from heliograph.model.destination import EVENT_LOG, at_sub_cluster, parse_address
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_NODES_ASKED
from heliograph.sessions.access import Right

Arguments = dict[str, Any]

# The last events, of all kinds or of those named in `events`; whoever may receive them may ask.
LOG: Final = "log"
# What the bus of a cluster carried, as the primary heard it.
BUS: Final = "bus"
# How a node is: what of a cluster it is, what it does and what it waits for.
NODE: Final = "node"
# A question to nodes, each for itself: `command`, `arguments`, and `nodes` by name, all unless told.
ASK_NODES: Final = "nodes.ask"
# A node is gone for good: the others do not wait for it.
REMOVE_NODE: Final = "node.remove"
# The other part of the cluster is gone for good: this one hands out everything.
OVERRIDE: Final = "partition.override"
# Who leads on the node that is asked lets another lead, and stays as a backup.
HAND_OVER: Final = "node.hand_over"
# The names of a client's own durable subscriptions.
OWN_SUBSCRIPTIONS: Final = "client.subscriptions"
# The server's certificate is read again from its files.
CERTIFICATE_RELOAD: Final = "certificate.reload"
# The users: all of them, one more, one less. They are the same for all nodes.
USERS: Final = "users"
USER_ADD: Final = "user.add"
USER_REMOVE: Final = "user.remove"
# The rules of what they may do: all of them, rights for some users and roles, and those rights no more.
ACCESS: Final = "access"
ACCESS_GRANT: Final = "access.grant"
ACCESS_REVOKE: Final = "access.revoke"
OF_USERS: Final = (USERS, USER_ADD, USER_REMOVE, ACCESS, ACCESS_GRANT, ACCESS_REVOKE)
# What is written down with who ordered it, in the argument `by`.
AUDITED: Final = (REMOVE_NODE, OVERRIDE, HAND_OVER, USER_ADD, USER_REMOVE, ACCESS_GRANT, ACCESS_REVOKE)
# Data pipelines, seen as a whole, and what they ask about the destination that they read or write.
PIPELINES: Final = "pipelines"
PIPELINE_READS: Final = (
    "pipeline.feed",
    "pipeline.positions",
    "pipeline.measure",
    "pipeline.hold",
    "pipeline.lease",
    "pipeline.depth",
    "pipeline.read",
    "pipeline.acknowledge",
    "pipeline.return",
)
PIPELINE_RAISE: Final = "pipeline.raise"
PIPELINE_WRITES: Final = (
    "pipeline.stage",
    "pipeline.publish",
    "pipeline.published",
    "pipeline.discard",
    PIPELINE_RAISE,
)
OF_PIPELINES: Final = (*PIPELINE_READS, *PIPELINE_WRITES)
# All destinations summed up; some of them, sorted; and the settings of the node that is asked.
TOTALS: Final = "totals"
FIND: Final = "destinations.find"
CONFIGURATION: Final = "configuration"
# About the server as a whole.
OVER_SERVER: Final = (
    "server",
    PIPELINES,
    "pipeline.release",
    "sessions",
    "transactions",
    "policies",
    "destinations",
    TOTALS,
    FIND,
    CONFIGURATION,
    BUS,
    NODE,
    CERTIFICATE_RELOAD,
    REMOVE_NODE,
    OVERRIDE,
    HAND_OVER,
    *OF_USERS,
)
# About the destination that the argument `destination` names.
OVER_DESTINATION: Final = (
    "destination.show",
    "destination.set",
    "destination.create",
    "destination.delete",
    "destination.purge",
    "destination.consumers",
    "destination.units",
    "destination.resume_unit",
    "destination.pause",
    "destination.resume",
    "message.move",
    "message.delete",
)


def needed(subject: str, arguments: Arguments) -> list[tuple[Right, str]]:
    """The rights that the asker must have, and over what; no address means the server as a whole.

    Raises ClientFault for what nobody answers to.
    """
    if subject == LOG:
        return [(Right.RECEIVE, EVENT_LOG)]
    if subject in OVER_SERVER:
        return [(Right.ADMIN, "")]
    if subject in OF_PIPELINES:
        return _of_pipeline(subject, argument(arguments, "destination", str))
    if subject == ASK_NODES:
        inner = argument(arguments, "command", str)
        if inner == ASK_NODES:
            raise ClientFault("nodes are asked one thing at a time", code="argument-invalid")
        return [(Right.ADMIN, ""), *needed(inner, argument(arguments, "arguments", dict, {}))]
    if subject not in OVER_DESTINATION:
        known = ", ".join((LOG, *OVER_SERVER, ASK_NODES, *OVER_DESTINATION, *OF_PIPELINES))
        raise ClientFault(f"nobody answers to {subject[:60]!r}; there are {known}", code="subject-unknown")
    address, _ = at_sub_cluster(parse_address(argument(arguments, "destination", str), system=True))
    rights = [(Right.ADMIN, str(address))]
    if subject == "destination.create":
        rights.append((Right.CREATE, address))
    if subject == "message.move":
        rights.append((Right.ADMIN, parse_address(argument(arguments, "target", str))))
    return rights


def _of_pipeline(subject: str, destination: str) -> list[tuple[Right, str]]:
    """Who reads many destinations at once, or what happened to messages, sees what administrators see."""
    if "*" in destination:
        return [(Right.ADMIN, "")]
    right = Right.SEND if subject in PIPELINE_WRITES else Right.RECEIVE
    address, _ = at_sub_cluster(parse_address(destination, system=right is Right.RECEIVE))
    return [(right, str(address))]


def raised_by(who: str, arguments: Arguments, *, may_create: bool) -> Arguments:
    """The arguments of who raises alerts, with who that is, and whether their channel may be made for it."""
    return {**arguments, "by": who, "create": may_create}


def ordered_by(who: str, subject: str, arguments: Arguments) -> Arguments:
    """The arguments, with who gave the order where that is kept."""
    return {**arguments, "by": who} if subject in AUDITED else arguments


def nodes_meant(arguments: Arguments) -> list[str] | None:
    """The nodes that a question names, each once; None: all. Raises ClientFault."""
    nodes = arguments.get("nodes")
    if nodes is None:
        return None
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise ClientFault("the argument nodes is a list of names of nodes", code="argument-invalid")
    return list(dict.fromkeys(nodes[:MAX_NODES_ASKED]))


def argument(arguments: Arguments, name: str, kind: type, default: Any = None) -> Any:
    """An argument of the right type. Raises ClientFault `argument-invalid`, naming it."""
    value = arguments.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        what = {str: "a text", int: "a whole number", bool: "true or false", dict: "a map", list: "a list"}[
            kind
        ]
        problem = "is missing" if value is None else f"is {str(value)[:40]!r}"
        raise ClientFault(f"the argument {name} {problem}; it is {what}", code="argument-invalid")
    return value

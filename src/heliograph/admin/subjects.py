"""What can be asked of the administration, and over what one must have the right to administer."""

from __future__ import annotations

from typing import Any, Final

from heliograph.model.destination import EVENT_LOG, parse_address
from heliograph.model.errors import ClientFault
from heliograph.sessions.access import Right

Arguments = dict[str, Any]

# The last events; whoever may receive them may ask.
LOG: Final = "log"
# What the bus of a cluster carried, as the primary heard it.
BUS: Final = "bus"
# About the server as a whole.
OVER_SERVER: Final = ("server", "sessions", "transactions", "policies", "destinations", BUS)
# About the destination that the argument `destination` names.
OVER_DESTINATION: Final = (
    "destination.show",
    "destination.set",
    "destination.create",
    "destination.delete",
    "destination.purge",
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
    if subject not in OVER_DESTINATION:
        known = ", ".join((LOG, *OVER_SERVER, *OVER_DESTINATION))
        raise ClientFault(f"nobody answers to {subject[:60]!r}; there are {known}", code="subject-unknown")
    address = parse_address(argument(arguments, "destination", str), system=True)
    rights = [(Right.ADMIN, str(address))]
    if subject == "destination.create":
        rights.append((Right.CREATE, address))
    if subject == "message.move":
        rights.append((Right.ADMIN, parse_address(argument(arguments, "target", str))))
    return rights


def argument(arguments: Arguments, name: str, kind: type, default: Any = None) -> Any:
    """An argument of the right type. Raises ClientFault `argument-invalid`, naming it."""
    value = arguments.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        what = {str: "a text", int: "a whole number", bool: "true or false", dict: "a map"}[kind]
        problem = "is missing" if value is None else f"is {str(value)[:40]!r}"
        raise ClientFault(f"the argument {name} {problem}; it is {what}", code="argument-invalid")
    return value

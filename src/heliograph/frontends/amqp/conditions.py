"""Our errors in the words of AMQP: a condition that programs know, and a description with our sentence and code."""

from __future__ import annotations

from typing import Final

from heliograph.model.errors import (
    HeliographError,
    InvalidName,
    NotAllowed,
    NotAuthenticated,
    ProtocolFault,
    StorageFull,
    TransactionRolledBack,
    Unavailable,
    from_code,
)
from heliograph.sessions.commands import Fail

INTERNAL: Final = "amqp:internal-error"
_OF_CODE: Final = {
    "client-id-in-use": "amqp:invalid-field",
    "destination-deleted": "amqp:resource-deleted",
    "destination-unknown": "amqp:not-found",
    "subscription-unknown": "amqp:not-found",
    "subscription-in-use": "amqp:resource-locked",
    "message-too-large": "amqp:link:message-size-exceeded",
    "head-too-large": "amqp:link:message-size-exceeded",
    "selector-invalid": "amqp:invalid-field",
    "header-invalid": "amqp:invalid-field",
    "property-invalid": "amqp:invalid-field",
    "body-invalid": "amqp:invalid-field",
    "too-many-consumers": "amqp:resource-limit-exceeded",
    "too-many-links": "amqp:resource-limit-exceeded",
    "transactions-open": "amqp:resource-limit-exceeded",
    "transaction-too-large": "amqp:resource-limit-exceeded",
    "transaction-unknown": "amqp:transaction:unknown-id",
    "server-stopping": "amqp:connection:forced",
    "session-moved": "amqp:connection:forced",
    "not-implemented": "amqp:not-implemented",
}
_OF_KIND: Final = (
    (NotAllowed, "amqp:unauthorized-access"),
    (NotAuthenticated, "amqp:unauthorized-access"),
    (InvalidName, "amqp:not-found"),
    (ProtocolFault, "amqp:decode-error"),
    (TransactionRolledBack, "amqp:transaction:rollback"),
    (StorageFull, "amqp:resource-limit-exceeded"),
    (Unavailable, INTERNAL),
)


def condition_of(error: HeliographError) -> str:
    found = _OF_CODE.get(error.code)
    if found is not None:
        return found
    for kind, condition in _OF_KIND:
        if isinstance(error, kind):
            return condition
    return "amqp:not-allowed"


def error_of(fail: Fail) -> HeliographError:
    return from_code(fail.code, fail.sentence)

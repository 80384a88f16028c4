"""Heliograph: a message server whose unit of work is a block of messages, and its client library.

    async with heliograph.connect("helio://localhost:7700") as connection: ...
    with heliograph.connect_blocking("helio://localhost:7700") as connection: ...

The names of the client library are imported on first use, so that the server does without it.
"""

from typing import TYPE_CHECKING

from heliograph.model.errors import (
    ClientFault,
    ConnectionLost,
    HeliographError,
    InvalidName,
    NotAllowed,
    NotAuthenticated,
    OrderBroken,
    ProtocolFault,
    StorageFull,
    TransactionRolledBack,
    Unavailable,
)

__version__ = "0.1.0"

if TYPE_CHECKING:
    from heliograph.client import Browser, Connection, Consumer, Message, Producer, Session, blocking, connect
    from heliograph.client.blocking import connect as connect_blocking
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "blocking":
            return import_module("heliograph.client.blocking")
        if name == "connect_blocking":
            return import_module("heliograph.client.blocking").connect
        if name in __all__:
            return getattr(import_module("heliograph.client"), name)
        raise AttributeError(f"module 'heliograph' has no attribute {name!r}")


__all__ = [
    "Browser",
    "ClientFault",
    "Connection",
    "ConnectionLost",
    "Consumer",
    "HeliographError",
    "InvalidName",
    "Message",
    "NotAllowed",
    "NotAuthenticated",
    "OrderBroken",
    "Producer",
    "ProtocolFault",
    "Session",
    "StorageFull",
    "TransactionRolledBack",
    "Unavailable",
    "__version__",
    "blocking",
    "connect",
    "connect_blocking",
]

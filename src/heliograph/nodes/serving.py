"""What every server does that clients connect to, whether it stands alone or in a cluster: who may come in, where it
listens, and how its process treats memory."""

from __future__ import annotations

import asyncio
import gc
import os
from functools import partial

from heliograph.model.errors import Unavailable
from heliograph.nodes.allocation import keep_large_buffers
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.configuration import Configuration
from heliograph.nodes.connection import Connection
from heliograph.nodes.users import UserStore, open_to_everyone
from heliograph.sessions.access import AccessControl

# Blocks come and go by reference count; the collector only has to find what is rare.
_COLLECT_AFTER = (50_000, 20, 100)
_BACKLOG = 1024


def admission(configuration: Configuration) -> tuple[AccessControl, UserStore | None]:
    """Who may do what, and the users if there are any. Raises ClientFault."""
    everyone = open_to_everyone(configuration.server.host, configuration.users_path)
    creation = configuration.creation_rules()
    if everyone:
        return AccessControl(open_to_everyone=True, creation=creation), None
    users = UserStore.load(configuration.users_path)
    return users.access_control(creation), users


async def listen(configuration: Configuration, clients: ClientManager) -> asyncio.Server:
    """Raises Unavailable `address-unavailable`."""
    server = configuration.server
    first = await _listen(server.host, server.port, clients)
    try:
        for port in [int(port) for port in server.more_ports.split(",") if port]:
            clients.more_listeners.append(await _listen(server.host, port, clients))
    except Unavailable:
        first.close()
        raise
    return first


async def _listen(host: str, port: int, clients: ClientManager) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            partial(Connection, clients), host, port, backlog=_BACKLOG
        )
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number and number > 0 else error
        raise Unavailable(
            f"cannot listen on {host}:{port}: {why}; is another server"
            " running there? Choose another port with --port",
            code="address-unavailable",
        ) from None


def settle_memory() -> None:
    """Everything that stays is there: from now on the collector has little to do, and large buffers are kept."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    keep_large_buffers()

"""What every server does that clients connect to, whether it stands alone or in a cluster: who may come in, where it
listens, and how its process treats memory."""

from __future__ import annotations

import asyncio
import gc
import os
from functools import partial

from heliograph.model.errors import ClientFault, Unavailable
from heliograph.nodes.allocation import keep_large_buffers
from heliograph.nodes.certificates import INVALID, Certificates
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.configuration import Configuration
from heliograph.nodes.connection import Connection
from heliograph.nodes.event_log import Record
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


def certificates(configuration: Configuration, record: Record) -> Certificates | None:
    """None where there is no TLS. Raises ClientFault."""
    tls = configuration.tls
    if tls.certificate:
        return Certificates(tls, record)
    if tls.required or "/tls" in configuration.server.more_ports or tls.clients != "ignored" or tls.key:
        raise ClientFault("there is no TLS without a certificate: name one in tls.certificate", code=INVALID)
    return None


async def listen(configuration: Configuration, clients: ClientManager) -> asyncio.Server:
    """Raises Unavailable `address-unavailable`."""
    server = configuration.server
    first = await _listen(server.host, server.port, clients)
    try:
        for given in [port for port in server.more_ports.split(",") if port]:
            port, _, tls_only = given.partition("/")
            more = await _listen(server.host, int(port), clients, tls_only=bool(tls_only))
            clients.more_listeners.append(more)
    except Unavailable:
        first.close()
        raise
    return first


async def _listen(host: str, port: int, clients: ClientManager, *, tls_only: bool = False) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            partial(Connection, clients, clients.tls_of_port(tls_only)), host, port, backlog=_BACKLOG
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

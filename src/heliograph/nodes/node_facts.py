"""What a node says of itself when an administrator asks how it is (M13)."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

from heliograph import __version__

if TYPE_CHECKING:
    from heliograph.nodes.client_manager import ClientManager
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.replica import Replica


def process_facts() -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "version": __version__,
        "process": os.getpid(),
        "rss_bytes": resident_bytes(),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
    }


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def client_manager_facts(clients: ClientManager, address: tuple[str, int] | None) -> dict[str, Any]:
    return {
        "address": ":".join(map(str, address)) if address is not None else "",
        "connections": len(clients.connections),
        "sessions": clients.session_count,
    }


def store_facts(manager: MessageManager) -> dict[str, Any]:
    return {
        "journal_bytes": manager.journal.stats()["disk_bytes"],
        "resident_bytes": manager.catalogue.residence.used,
        "disk_full": manager.journal.is_tight,
    }


def replica_facts(replica: Replica) -> dict[str, Any]:
    """`index`: how far its log goes; `stored`: how far others can count on it."""
    return {
        "standing": replica.standing,
        "index": replica.manager.place.index,
        "stored": replica.stored_index,
        "backups": replica.backup_names,
        **store_facts(replica.manager),
    }

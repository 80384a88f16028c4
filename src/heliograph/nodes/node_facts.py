"""What a node says of itself when an administrator asks how it is (M13)."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any

from heliograph import __version__
from heliograph.cluster.dispatch_rules import Hold
from heliograph.cluster.partition_table import MEANINGS, sentence_of
from heliograph.destinations.holding_back import in_words

if TYPE_CHECKING:
    from heliograph.nodes.client_manager import ClientManager
    from heliograph.nodes.message_manager import MessageManager
    from heliograph.nodes.replica import Replica
    from heliograph.nodes.station import Station


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


def partition_facts(station: Station) -> dict[str, Any]:
    """What the view of a sub-cluster is, as all its members see it (P10). Nothing: there is none at the moment."""
    standing, roles = station.standing, station.roles
    if standing is None or roles is None or not station.member.is_installed:
        return {}
    partition, names = standing.partition, {who: state.name for who, state in roles.states.items()}
    return {
        "state": str(partition.state),
        "title": MEANINGS[partition.state].title,
        "sentence": sentence_of(partition, is_in_force=standing.is_in_force),
        "in_force": standing.is_in_force,
        "awaited": list(standing.awaited),
        "view": standing.number,
        "view_id": standing.view.hex(),
        "leads": names[roles.primary] if roles.primary is not None else "",
        "follow": [names[who] for who in roles.backups],
        "catch_up": [names[who] for who in roles.others],
        "missing": list(standing.missing),
        "ends": MEANINGS[partition.state].ends,
    }


def held_back_facts(manager: MessageManager) -> dict[str, Any]:
    """What whoever leads does not hand out because the cluster is in parts, or was until a moment ago."""
    found: dict[Hold, int] = {}
    for destination in manager.catalogue.by_address.values():
        for why, count in destination.held_back().items():
            found[why] = found.get(why, 0) + count
    return {
        "held_back": sum(found.values()),
        "held_back_why": in_words(found),
        "whole": not manager.catalogue.views.is_parted,
    }


def replica_facts(replica: Replica) -> dict[str, Any]:
    """`index`: how far its log goes; `stored`: how far others can count on it; `branches`: what it did in another
    part, and the log does not have yet."""
    return {
        "standing": replica.standing,
        "index": replica.manager.place.index,
        "stored": replica.stored_index,
        "backups": replica.backup_names,
        "branches": len(replica.reunion.branches.all),
        "merging": replica.reunion.is_merging,
        **(held_back_facts(replica.manager) if replica.is_leading else {}),
        **store_facts(replica.manager),
    }

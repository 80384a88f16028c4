"""Where the dead are: one queue, or, if there are several sub-clusters, one in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heliograph.model.destination import DEAD_MESSAGES

if TYPE_CHECKING:
    from heliograph.client import Connection


def dead_message_queues(connection: Connection) -> list[str]:
    return [f"{DEAD_MESSAGES}@{name}" for name in connection.sub_clusters] or [str(DEAD_MESSAGES)]

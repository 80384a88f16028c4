"""This node's copy of the cluster's users (M14): offered to whoever leads, and rewritten when it is stale.

A client manager shows what it has to each new leader. If that is newer than what the cluster has, the cluster takes
it; if it is older or another, the node gets the cluster's, keeps its own beside it as FILE.previous, and goes by the
new one at once.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.admin.subjects import USERS
from heliograph.bus.commands import Command, DocumentOffered, DocumentTold
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_DOCUMENT_BYTES
from heliograph.nodes.client_manager import ClientManager
from heliograph.nodes.event_log import Record
from heliograph.nodes.users import UserStore


class UsersCopy:
    """Of one client manager."""

    def __init__(
        self,
        clients: ClientManager,
        users: UserStore,
        *,
        node: str,
        record: Record,
        tell: Callable[[str], None],
    ) -> None:
        """`tell` says something to whoever looks on."""
        self._clients = clients
        self._users = users
        self._node = node
        self._record = record
        self._tell = tell

    def offer(self) -> DocumentOffered | None:
        """What this node has; nothing if it has no users."""
        content = self._users.content
        if not self._users.path.exists():
            return DocumentOffered(USERS, -1, b"", self._node)
        if len(content) > MAX_DOCUMENT_BYTES:
            self._record("users-file-too-large", bytes=len(content), most=MAX_DOCUMENT_BYTES)
            return None
        return DocumentOffered(USERS, self._users.version, content, self._node)

    def on_command(self, command: Command) -> None:
        if not isinstance(command, DocumentTold) or command.key != USERS:
            return
        if command.content == self._users.content:
            return
        before, was_there = self._users.version, self._users.path.exists()
        try:
            self._users.adopt(command.content)
        except ClientFault as fault:
            self._record("users-file-not-written", sentence=fault.sentence)
            self._tell(fault.sentence)
            return
        self._clients.use(self._users)
        self._record("users-acquired", version=self._users.version, before=before, file=str(self._users.path))
        path, version = self._users.path, self._users.version
        self._tell(
            f"the users file {path} was of version {before}; the cluster has version {version}, which is there now,"
            f" and what was there is {path.name}.previous"
            if was_there
            else f"there was no users file {path}: it is there now, with the cluster's users, of version {version}"
        )

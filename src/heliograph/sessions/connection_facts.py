"""What the sessions of one connection share: who it says it is, and its temporary destinations (J9)."""

from __future__ import annotations

from heliograph.model.destination import TEMPORARY_PREFIX, Address, Kind
from heliograph.model.ids import text_of
from heliograph.model.limits import MAX_CONSUMERS_PER_SESSION


class ConnectionFacts:
    """Made with the connection, and gone with it."""

    def __init__(
        self, identity: bytes, client_id: str, *, max_consumers: int = MAX_CONSUMERS_PER_SESSION
    ) -> None:
        self.identity = identity
        self.max_consumers = max_consumers  # of each session
        self.client_id = client_id
        self.temporaries: dict[Address, int] = {}  # with the number of their consumers, over all sessions
        self._made = 0

    @property
    def names(self) -> tuple[bytes, str]:
        """What its messages are known by: no-local subscriptions leave them out."""
        return self.identity, self.client_id

    def new_temporary(self, kind: Kind) -> Address:
        self._made += 1
        address = Address(f"{kind}:{TEMPORARY_PREFIX}{text_of(self.identity)}.{self._made}")
        self.temporaries[address] = 0
        return address

    def count_consumer(self, address: Address, change: int) -> None:
        if address in self.temporaries:
            self.temporaries[address] += change

"""Where a session's user may go: the rights of the user, seen from this connection.

Rights are decided in `access`; what is added here is what depends on the connection: its temporary
destinations (J9), and whether destinations come into being by being used.
"""

from __future__ import annotations

from heliograph.model.address_pattern import is_reserved
from heliograph.model.destination import (
    RETAINED_PREFIX,
    TEMPORARY_PREFIX,
    Address,
    Kind,
    at_sub_cluster,
    kind_of,
    name_of,
    parse_address,
)
from heliograph.model.distribution import NOTHING_DISTRIBUTED, Distribution, Distributions
from heliograph.model.errors import NotAllowed
from heliograph.model.patterns import Pattern
from heliograph.sessions.access import AccessControl, Identity, Right
from heliograph.sessions.connection_facts import ConnectionFacts


class Admission:
    """Every address that a client names comes by here."""

    def __init__(
        self,
        user: Identity,
        access: AccessControl,
        connection: ConnectionFacts,
        *,
        creates: bool,
        distributions: Distributions = NOTHING_DISTRIBUTED,
    ) -> None:
        """`creates`: destinations are made on first use, where the user may create them."""
        self.user = user
        self._access = access
        self._connection = connection
        self._creates = creates
        self._distributions = distributions

    @property
    def max_consumers(self) -> int:
        """Of each session."""
        return self._connection.max_consumers

    def allows(self, right: Right, address: str) -> bool:
        """A right over a distributed destination is one over its members (U6)."""
        topic = retained_for(Address(address))
        if topic:
            return self._allows_retained(right, topic)
        return self._access.allows(self.user, right, self.plain(Address(address)))

    def may_receive_kept(self, address: str) -> bool:
        """Whether what is kept for a client at a topic may be its user's: who made a temporary one receives there."""
        return address in self._connection.temporaries or self.allows(Right.RECEIVE, address)

    def covers(self, right: Right, pattern: Pattern) -> bool:
        """Whether the user surely has a right over every topic that a pattern can mean."""
        return self._access.covers(self.user, right, pattern)

    def meets(self, right: Right, pattern: Pattern) -> bool:
        """Whether the user may have a right over a topic that a pattern can mean."""
        return self._access.meets(self.user, right, pattern)

    @property
    def is_free(self) -> bool:
        """No rule restrains the user."""
        return self._access.is_free(self.user)

    def check_subscriber(self) -> None:
        """Durable subscriptions go by a client's name, which anybody may give: only who receives from something can
        have any, and hears of them. Raises NotAllowed."""
        if not self._access.allows_somewhere(self.user, Right.RECEIVE):
            raise NotAllowed(f"user {self.user.name!r} may not receive from anything here")

    def plain(self, address: Address) -> Address:
        """The name of a destination, without which member of it is meant."""
        return self._distributions.split(address)[0]

    def distribution_of(self, address: Address) -> Distribution | None:
        """How a destination is distributed; None: it is not."""
        return self._distributions.of(address)

    def everywhere(self, address: Address) -> list[Address]:
        """One of the server's own destinations, in each sub-cluster."""
        return self._distributions.everywhere(address)

    def checked(self, destination: str, right: Right) -> Address:
        """The address, if there can be such a destination and the user has the right there."""
        # Access control remembers what it decided, so it must never see a name without a bound.
        address = parse_address(destination, system=True)
        if name_of(address).startswith(TEMPORARY_PREFIX):
            return self._checked_temporary(address, right)
        topic = retained_for(address)
        if topic:
            if not self._allows_retained(right, topic):
                self._access.check(self.user, Right.ADMIN, topic)
            return address
        # What a well-known destination admits is decided by access control; any other name with `_` is
        # nobody's.
        plain = self.plain(at_sub_cluster(address)[0])
        parse_address(plain, system=self.allows(right, plain))
        self._access.check(self.user, right, plain)
        return address

    def _allows_retained(self, right: Right, topic: Address) -> bool:
        """Who sends to a topic may say what newcomers get first, and who receives may look. To take it away is for
        administrators."""
        of_topic = {Right.BROWSE: Right.RECEIVE, Right.RECEIVE: Right.ADMIN}.get(right, right)
        return self._access.allows(self.user, of_topic, topic)

    def _checked_temporary(self, address: Address, right: Right) -> Address:
        """Everybody may answer to a temporary destination; only the connection that made it may receive
        (J9)."""
        if right is not Right.SEND and address not in self._connection.temporaries:
            raise NotAllowed(f"{address} belongs to another connection")
        return address

    def may_create(self, address: Address) -> bool:
        if is_reserved(address):
            return False
        return self._creates and self.allows(Right.CREATE, address)


def retained_for(address: Address) -> Address | None:
    """The topic whose retained message a queue has; None: it is an ordinary destination."""
    if kind_of(address) is Kind.QUEUE and name_of(address).startswith(RETAINED_PREFIX):
        return Address(f"{Kind.TOPIC}:{name_of(address).removeprefix(RETAINED_PREFIX)}")
    return None

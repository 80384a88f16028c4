"""Which consumers each session has, and which of them are away because its connection was lost (M8).

    attached ──session lost──▶ away ──claimed──▶ attached
        │                        └──lease passed, session closed──▶ detached
        └──detached

Kept by the message managers, so that a session can go on at any client manager. What a consumer has is known to
its list alone; here is only known that it has to come to an end.
"""

from __future__ import annotations

import msgspec

from heliograph.bus.commands import ConsumerAttached
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, SessionId

NO_NUMBER = -1  # of a consumer that its client does not know by a number of its own, and cannot claim


class Attendant(msgspec.Struct, gc=False):
    """A consumer, under its client's number for it. `away_until`: when its lease passes, 0 while it is there.
    `is_in_doubt`: its client manager may be, or may have been, in another part; `lease`: when it would pass if the
    cluster were whole all the time."""

    session: SessionId
    consumer: ConsumerId
    address: Address
    number: int
    away_until: float = 0.0
    attached: ConsumerAttached | None = None  # as it came
    is_in_doubt: bool = False
    lease: float = 0.0

    @property
    def can_be_claimed(self) -> bool:
        return self.number != NO_NUMBER


class Attendance:
    """The consumers of all sessions."""

    def __init__(self) -> None:
        self._consumers: dict[ConsumerId, Attendant] = {}
        self._by_session: dict[SessionId, dict[ConsumerId, Attendant]] = {}
        self._away: dict[ConsumerId, Attendant] = {}

    def attached(
        self,
        session: SessionId,
        consumer: ConsumerId,
        address: Address,
        number: int,
        attached: ConsumerAttached | None = None,
    ) -> None:
        """A consumer is there, for the first time or again."""
        self._away.pop(consumer, None)
        attendant = Attendant(session, consumer, address, number, attached=attached)
        self._consumers[consumer] = attendant
        self._by_session.setdefault(session, {})[consumer] = attendant

    def detached(self, consumer: ConsumerId) -> None:
        attendant = self._consumers.pop(consumer, None)
        if attendant is None:
            return
        self._away.pop(consumer, None)
        others = self._by_session[attendant.session]
        del others[consumer]
        if not others:
            del self._by_session[attendant.session]

    def all(self) -> list[Attendant]:
        """The consumers of all sessions."""
        return list(self._consumers.values())

    def of(self, session: SessionId) -> list[Attendant]:
        """All consumers of a session, in the order in which they came."""
        return list(self._by_session.get(session, {}).values())

    def went_away(self, attendant: Attendant, until: float, *, is_in_doubt: bool = False) -> None:
        """A consumer of a lost session waits to be claimed."""
        attendant.away_until, attendant.lease = until, 0.0
        attendant.is_in_doubt = attendant.is_in_doubt or is_in_doubt
        self._away[attendant.consumer] = attendant

    def away_until(self, consumer: ConsumerId) -> float:
        """When the lease of a consumer passes, 0 if it is there."""
        attendant = self._consumers.get(consumer)
        return attendant.away_until if attendant is not None else 0.0

    def to_claim(self, session: SessionId) -> list[tuple[int, ConsumerId, Address]]:
        """What a client that resumes its session can go on with: number, id and destination of each."""
        return [(each.number, each.consumer, each.address) for each in self.of(session) if each.away_until]

    def wait_at_most_until(self, moment: float) -> None:
        """The cluster is whole: nobody settles anything elsewhere."""
        for attendant in self._away.values():
            attendant.away_until = min(attendant.away_until, moment)

    def doubt_until(self, moment: float) -> None:
        """It may not be whole any more: of those who were in doubt the leases stop."""
        for attendant in self._away.values():
            if attendant.is_in_doubt and not attendant.lease:
                attendant.away_until, attendant.lease = moment, attendant.away_until

    def was_whole(self) -> None:
        """It was whole all the time: leases go on as if nothing had happened."""
        for attendant in self._away.values():
            if attendant.lease:
                attendant.away_until, attendant.lease = attendant.lease, 0.0

    def was_not_whole(self) -> None:
        """They begin anew when it is whole again."""
        for attendant in self._away.values():
            attendant.lease = 0.0

    def overdue(self, now: float) -> list[Attendant]:
        """Consumers whose lease has passed."""
        return [each for each in self._away.values() if each.away_until <= now]

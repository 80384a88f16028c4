"""Where a session's messages to distributed destinations go (U6): what the server said of their members.

It is asked once for each destination, and again on each new connection before anything is sent there: members may
have been added or removed meanwhile. While there is no connection, nothing is routed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from heliograph.client.sender import renewed
from heliograph.client.wire import IsDistributed
from heliograph.frontends.native.frames import Answer, FindPath, LaneOpened, OpenLane
from heliograph.model.distribution import (
    Distribution,
    HashRouting,
    PathRouting,
    Routing,
    all_members,
    unit_property,
)
from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError

if TYPE_CHECKING:
    from heliograph.client.link import Link
    from heliograph.client.wire import Wire

Connected = Callable[[], Awaitable[object]]
"""Wait until there is a connection. Raises when there will be none."""
AskPath = Callable[[str, int], Awaitable[str]]
"""Ask the path service for the member of a unit. Raises OrderBroken."""


class Route:
    """The way to a distributed destination, shared by a session's producers and consumers of it."""

    def __init__(
        self,
        destination: str,
        distribution: Distribution,
        own_key: bytes,
        *,
        find_path: AskPath,
        connected: Connected,
    ) -> None:
        self.destination = destination
        self.is_known = True  # false while there is no connection: when there is, members may be others
        self._own_key = own_key
        self._find_path = find_path
        self._connected = connected
        self._ended: HeliographError | None = None
        self._learn(distribution)

    def learn(self, distribution: Distribution, *, is_new: bool) -> None:
        """How the destination is distributed, as the server said last. `is_new`: the session is another one."""
        self.is_known = True
        if distribution != self.distribution:
            self._learn(distribution)
        elif is_new and isinstance(self._routing, PathRouting):
            self._routing.forget_all()

    def end(self, why: HeliographError) -> None:
        """It is not what it was: whoever has a producer to it has to make another."""
        self.is_known, self._ended = True, why

    def _learn(self, distribution: Distribution) -> None:
        self.distribution = distribution
        self.unit_property = unit_property(distribution)
        self._routing: HashRouting | PathRouting
        if distribution.routing is Routing.PATH:
            self._routing = PathRouting(distribution, self._own_key)
        else:
            self._routing = HashRouting(distribution, self._own_key)

    @property
    def members(self) -> tuple[str, ...]:
        """Those that messages may be at, former ones too."""
        return all_members(self.distribution)

    def known_member(self, unit: int) -> str:
        """The member of a unit, if nobody has to be asked; otherwise empty."""
        return "" if self._ended is not None else self._routing.member_for(unit)

    async def member_for(self, unit: int) -> str:
        """Raises OrderBroken if only the path service knows, and it cannot be asked."""
        while not self.is_known:
            await self._connected()
        if self._ended is not None:
            raise renewed(self._ended)
        member = self._routing.member_for(unit)
        if member:
            return member
        routing = self._routing
        assert isinstance(routing, PathRouting), "a hash needs nobody"
        member = await self._find_path(self.destination, unit)
        routing.learn(unit, member)
        return member


class Routes:
    """All of one session."""

    def __init__(self, link: Link, session: int, own_key: bytes) -> None:
        """`own_key` decides where what has no unit goes: the same place as long as the session lives."""
        self._link = link
        self._session = session
        self._own_key = own_key
        self._routes: dict[str, Route] = {}

    def get(self, destination: str) -> Route | None:
        return self._routes.get(destination)

    def found(self, destination: str, found: IsDistributed) -> Route:
        """All producers and consumers of the session share it."""
        route = self._routes.get(destination)
        if route is None:
            route = self._routes[destination] = Route(
                destination,
                found.distribution,
                self._own_key,
                find_path=self._find_path,
                connected=self._link.ready,
            )
        return route

    async def _find_path(self, destination: str, unit: int) -> str:
        answer = await self._link.request(
            lambda: FindPath(request=0, number=self._session, destination=destination, unit=unit), Answer
        )
        return str(answer.body["member"])

    def lose(self) -> None:
        """There is no connection."""
        for route in self._routes.values():
            route.is_known = False

    async def learn(self, wire: Wire, lane: int, *, is_new: bool) -> int:
        """There is another one, and perhaps another session. `lane` is the first free one; returns which is now."""
        for destination, route in list(self._routes.items()):
            # Nothing is opened unless it is not distributed any more.
            asking = OpenLane(request=0, number=self._session, lane=lane, destination=destination)
            try:
                await wire.request(asking, LaneOpened)
            except IsDistributed as found:
                route.learn(found.distribution, is_new=is_new)
                continue
            except ConnectionLost:
                raise
            except HeliographError as refusal:
                route.end(refusal)
            else:
                lane += 1
                route.end(ClientFault(f"{destination} is not distributed any more", code="routing-changed"))
            del self._routes[destination]
        return lane

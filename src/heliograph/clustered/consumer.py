"""A clustered consumer: several processes that consume a destination as one, on any middleware (H1-H4).

    async def handle(message: ClusteredMessage) -> bytes | None: ...

    async with ClusteredConsumer(
        lambda: RabbitMQ("amqp://localhost", exchange="orders"), cluster="billing", name="billing-1", handler=handle
    ):
        await stopped.wait()

Members find each other through the middleware; each gets every message and processes what is in its ranges. A
member that loses its lease or its connection begins again by itself, as a new incarnation.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from heliograph.clustered.adapter import Acknowledge, Adapter
from heliograph.clustered.events import Terms
from heliograph.clustered.member import Ended, MemberRun, OnPoison, OnResult, Settings, goes_on
from heliograph.clustered.ranges import Even, Policy, Ranges
from heliograph.clustered.verifier import MessageVerifier
from heliograph.clustered.words import View
from heliograph.clustered.working import Figures, Handler
from heliograph.model import limits
from heliograph.model.errors import ClientFault

log = logging.getLogger("heliograph.clustered")


class ClusteredConsumer:
    """One member. `async with` enters the cluster; leaving the block drains and leaves it."""

    def __init__(
        self,
        adapter: Callable[[], Adapter],
        *,
        cluster: str,
        name: str,
        handler: Handler,
        fields: Sequence[str] = ("id",),
        policy: Policy | None = None,
        weight: int = 1,
        acknowledge: Acknowledge = Acknowledge.OWNER,
        lanes: int = 1,
        shares_results: bool = False,
        on_result: OnResult | None = None,
        on_poison: OnPoison | None = None,
        terms: Terms | None = None,
    ) -> None:
        """`adapter` makes one for each incarnation; all members must say the same but for `name` and `weight`.

        `lanes`: how many messages are processed at a time, those of one value one after the other. `on_poison` is
        given each message of which nobody can say whose it is, and why: every member sees it, and none processes it.
        """
        if not name or not cluster or len(name.encode()) > limits.MAX_NAME_BYTES // 4:
            raise ClientFault("a member needs a short name and a cluster", code="member-name")
        if not 1 <= lanes <= limits.CLUSTERED_LANES:
            raise ClientFault(f"a member has 1 to {limits.CLUSTERED_LANES} lanes", code="member-lanes")
        self._adapter = adapter
        self._settings = Settings(
            cluster=cluster,
            name=name,
            handler=handler,
            verifier=MessageVerifier(fields),
            policy=policy or Even(),
            terms=terms or Terms(),
            weight=weight,
            acknowledge=acknowledge,
            lanes=lanes,
            shares_results=shares_results,
            on_result=on_result,
            on_poison=on_poison,
        )
        self.figures = Figures()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._run: MemberRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_leaving = False
        self._apart = 0

    # ---- what one may ask

    @property
    def view(self) -> View | None:
        """Who is in, and who owns what, as this member knows."""
        return None if self._run is None else self._run.membership.view

    @property
    def ranges(self) -> Ranges:
        """What this member may act on now."""
        return Ranges() if self._run is None else self._run.membership.acting

    @property
    def held(self) -> int:
        """Messages that are here and not done, its own and others'."""
        return 0 if self._run is None else len(self._run.holding.held)

    # ---- life

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._live())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.leave()
        await self._cancel()

    async def wait(self) -> None:
        """Until it has left; raises what ended it."""
        assert self._task is not None, "it was not entered"
        await asyncio.shield(self._task)

    async def leave(self, timeout: float = limits.CLUSTERED_LEAVING_SECONDS) -> None:
        """Finish what is under way, hand over, and go. After `timeout` seconds the others must wait for the lease."""
        self._is_leaving = True
        if self._run is not None:
            self._run.leave()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout)

    async def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _live(self) -> None:
        """One incarnation after the other. A fault of the application ends it; one of the world does not."""
        first, most = limits.CLUSTERED_RETURN_SECONDS
        pause = first
        loop = asyncio.get_running_loop()
        while not self._is_leaving:
            began = loop.time()
            try:
                await self._once()
            except Ended as ended:
                if ended.stop.has_left:
                    return
                self._apart = ended.stop.apart or self._apart
                log.warning("%s begins again: %s", self._settings.name, ended.stop.reason)
            except ClientFault:
                raise
            except asyncio.CancelledError:
                if not goes_on():
                    raise
                log.warning("%s begins again: its client gave up", self._settings.name)
            except Exception as error:
                log.warning("%s begins again: %r", self._settings.name, error)
            pause = (
                first
                if loop.time() - began > 2 * self._settings.terms.silence_seconds
                else min(2 * pause, most)
            )
            await asyncio.sleep(pause)

    async def _once(self) -> None:
        self.figures.incarnations += 1
        run = MemberRun(self._settings, self._adapter(), self.figures, self._known, self._apart)
        self._run = run
        try:
            await run.run()
        finally:
            self._run = None
            if run.membership.view is not None:
                self._apart = 0  # it was in: the others know of it

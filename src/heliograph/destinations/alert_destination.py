"""An alert channel as a destination among others: it is placed, made, deleted, paused and shown like them, and has no
messages.

What happens in it is decided in `alerts/`.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.bus.commands import (
    AlertAcknowledged,
    AlertPublished,
    ConsumerAttached,
    ConsumerDetached,
    Published,
)
from heliograph.cluster.dispatch_rules import Situation
from heliograph.destinations.alerts.channel import ALERT_FACTS, AlertChannel
from heliograph.destinations.alerts.publishing import TokenOf, refusal_of
from heliograph.destinations.alerts.records import CANCELLED
from heliograph.destinations.competing import Consumer
from heliograph.destinations.destination import Destination, Figures
from heliograph.destinations.effects import AnyEffect, Continue
from heliograph.destinations.events import (
    AlertRefused,
    AlertStored,
    AttendantsLost,
    PageLoaded,
    Swept,
    TimeCame,
    TurnCame,
)
from heliograph.destinations.message_list import MessageList, UserOf
from heliograph.destinations.partition_gate import decides
from heliograph.destinations.pausing import Paused
from heliograph.destinations.standing import Standing
from heliograph.destinations.waiting import Residence
from heliograph.model.block import Block
from heliograph.model.destination import Address
from heliograph.model.errors import ClientFault, Unavailable
from heliograph.model.ids import ConsumerId
from heliograph.model.policy import Policy

ONLY_ALERTS = "a channel takes alerts, not messages: use connection.alerts(...)"


class AlertDestination(Destination):
    """A channel, whatever its name."""

    def __init__(
        self,
        address: Address,
        number: int,
        *,
        residence: Residence,
        user_of: UserOf,
        token_of: TokenOf,
        doubt: int,
    ) -> None:
        self.channel = AlertChannel(address, number, token_of=token_of, doubt=doubt)
        super().__init__(address, number, residence=residence, user_of=user_of)
        self._handlers.update(
            dict.fromkeys(
                (*ALERT_FACTS, AlertStored, AlertRefused, AttendantsLost, TurnCame, TimeCame, Swept),
                self._to_channel,
            )
        )

    def _to_channel(self, event: object, effects: list[AnyEffect], now: int) -> None:
        paused = self.pause.state
        if paused.production and isinstance(event, AlertPublished | AlertAcknowledged):
            fault = Unavailable(f"{self.address} is paused", code="destination-paused")
            effects.append(refusal_of(event.request, fault))
            return
        effects += self.channel.handle(event, now)  # type: ignore[arg-type]

    # ---- what others do with messages

    def lists(self) -> Iterator[MessageList]:
        return iter(())

    def list_by_number(self, number: int) -> MessageList | None:
        return None

    def list_of(self, consumer: ConsumerId) -> MessageList | None:
        return None

    def add(self, block: Block, effects: list[AnyEffect], now: int) -> int:
        return 0

    def _wants(self, _block: Block) -> bool:
        return False

    def _published_block(self, event: Published, effects: list[AnyEffect], now: int) -> None:
        """Sessions refuse messages for a channel; what comes all the same is not lost in silence."""
        if self.intake.accept(event.block, effects, number=False):
            self.intake.stage_refused(event.block, code="alerts-only", sentence=ONLY_ALERTS, effects=effects)

    def _attached(self, event: ConsumerAttached, effects: list[AnyEffect], now: int) -> None:
        effects.append(refusal_of(event.request, ClientFault(ONLY_ALERTS, code="alerts-only")))

    def restore_consumer(self, event: ConsumerAttached, list_number: int) -> Consumer | None:
        return None

    def _leave(self, event: ConsumerDetached, effects: list[AnyEffect], now: int) -> None:
        """Nobody consumes messages of it."""

    def _page_loaded(self, event: PageLoaded, effects: list[AnyEffect], now: int) -> None:
        """It has no pages."""

    def _has_rules(self, messages: MessageList) -> bool:
        return False

    def held(self) -> int:
        return 0

    # ---- what is as with others

    def dispatch(self, effects: list[AnyEffect], now: int) -> None:
        self._dispatch(effects, now)

    def _dispatch(self, effects: list[AnyEffect], now: int) -> None:
        """Hand out what waited while nothing went out."""
        effects += self.channel.hand_out(now)

    @property
    def _is_closed(self) -> bool:
        is_ours = self._situation is None or decides(self._situation)
        return self.pause.state.consumption or not is_ours

    def regate(
        self, situation: Situation | None, standing: Standing | None, effects: list[AnyEffect]
    ) -> None:
        """Alerts are handed out in every part of a cluster, as messages of topics are (P4), if somebody decides
        there."""
        super().regate(situation, standing, effects)
        if self.channel.handing.close(self._is_closed):
            effects.append(Continue())

    def set_paused(self, paused: Paused) -> None:
        super().set_paused(paused)
        self.channel.handing.close(self._is_closed)  # whoever sets it gives us our turn

    def set_policy(self, policy: Policy) -> None:
        super().set_policy(policy)
        self.channel.publishing.endless_limit = policy.endless_alerts

    @property
    def next_due(self) -> int:
        return self.channel.next_due

    @property
    def needs_sweeping(self) -> bool:
        return bool(self.channel.next_due)

    def recovered(self) -> None:
        super().recovered()
        self.channel.recovered()

    def purge(self, effects: list[AnyEffect]) -> int:
        """Every alert ends."""
        alerts = list(self.channel.facts.live)
        self.channel.ending.end(alerts, CANCELLED, "an administrator", self.channel.last_moment, effects)
        self.channel.ending.confirm(effects)
        return len(alerts)

    def end(self, effects: list[AnyEffect]) -> None:
        super().end(effects)
        effects += self.channel.close("destination-deleted", f"{self.address} was deleted")

    def counts(self) -> tuple[int, ...]:
        figures = self.figures()
        counted = (figures.depth, 0, figures.consumers, figures.delivered, figures.settled, 0)
        return (*counted, figures.published, figures.bytes, figures.subscriptions, 0)

    def figures(self) -> Figures:
        """What is classified is not counted."""
        figures = super().figures()
        facts = self.channel.facts
        figures.depth = self.channel.count()
        figures.published = self.channel.publishing.published
        figures.subscriptions = sum(bool(each.wishes) for each in facts.subscribers)
        figures.consumers = sum(each.attachment is not None for each in facts.subscribers)
        return figures

"""Pausing and resuming destinations (U8)."""

from __future__ import annotations

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.handlers import destination_named, shown
from heliograph.admin.subjects import Arguments, argument
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.destination import Destination
from heliograph.destinations.effects import AnyEffect
from heliograph.destinations.pausing import Paused
from heliograph.model.destination import DEAD_MESSAGES, name_of
from heliograph.model.errors import ClientFault


class PauseHandlers:
    """Answers for the destinations of one message manager. Both arguments false, or missing: both are meant."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def register_with(self, administration: Administration) -> None:
        administration.register("destination.pause", lambda arguments: self._change(arguments, pause=True))
        administration.register("destination.resume", lambda arguments: self._change(arguments, pause=False))

    def _change(self, arguments: Arguments, *, pause: bool) -> Outcome:
        destination = destination_named(self._catalogue, arguments)
        production = argument(arguments, "production", bool, False)
        consumption = argument(arguments, "consumption", bool, False)
        if not production and not consumption:
            production = consumption = True
        _check_pausable(destination, production=production)
        before = destination.pause.state
        paused = Paused(
            pause if production else before.production, pause if consumption else before.consumption
        )
        effects: list[AnyEffect] = []
        if paused != before:
            self._catalogue.set_paused(destination, paused, effects)
        fields = {
            "destination": destination.address,
            "production": paused.production,
            "consumption": paused.consumption,
        }
        event = ("destination-paused" if pause else "destination-resumed", fields)
        return Outcome(shown(destination), effects, destination, event)


def _check_pausable(destination: Destination, *, production: bool) -> None:
    """The server must be able to bury, to log and to answer; the dead need not be handed out."""
    if not name_of(destination.address).startswith("_"):
        return
    if destination.address != DEAD_MESSAGES or production:
        raise ClientFault(
            f"{destination.address} belongs to the server; of its destinations only the consumption of"
            f" {DEAD_MESSAGES} can be paused",
            code="name-reserved",
        )

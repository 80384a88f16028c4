"""Alerts as a workload (A10): producers who cancel, subscribers with names, on a cluster and on a server that stands
alone, under all that happens to them."""

from __future__ import annotations

from simulation import alert_checkers
from simulation.alert_clients import AlertHistory, Publishing, Watching
from simulation.clients import Client
from simulation.cluster import Cluster
from simulation.play import Outcome, Play
from simulation.single import Single
from simulation.weather import STORM, Plan


class AlertPlay(Play):
    """Three who publish, four who listen."""

    calm_seconds = 60.0  # a cancel may wait for a client that was cut off
    order: list[str]

    def _cast(self) -> list[Client]:
        scene, desk = self.scene, self._desk
        self.alerts = AlertHistory(self.world)
        self.publishers = [Publishing(scene, desk(), name, self.alerts) for name in ("ann", "bob", "cid")]
        areas = {"console": "", "pager": "db", "mirror": "db", "night": "web"}
        watchers = [Watching(scene, desk(), name, area, self.alerts) for name, area in areas.items()]
        return [*watchers, *self.publishers]

    def _is_quiet(self) -> bool:
        return not self._unfinished() and not self.alerts.missing()

    def _left_over(self) -> int:
        return len(self._unfinished()) + len(self.alerts.missing())

    def _unfinished(self) -> list[str]:
        return [client.name for client in self.publishers if not client.is_through]

    def judge(self) -> list[str]:
        return [*super().judge(), *alert_checkers.violations(self.alerts), *self.order[:10]]

    def _judged(self) -> Outcome:
        outcome = super()._judged()
        outcome.counts = self.alerts.counts()
        return outcome


class AlertsInCluster(AlertPlay, Cluster):
    """Two client managers and three message managers."""


class AlertsAlone(AlertPlay, Single):
    """A server that stands alone."""


def run(seed: int, plan: Plan = STORM) -> Outcome:
    """Every third seed has one server."""
    kind = AlertsAlone if seed % 3 == 0 else AlertsInCluster
    with alert_checkers.order_watched() as order:
        play = kind(seed, plan)
        play.order = order
        return play.run()

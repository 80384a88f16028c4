"""One server, several clients, and whatever can happen to them: the embedded server of production on a machine."""

from __future__ import annotations

from heliograph.nodes.configuration import load
from simulation.machines import Machine
from simulation.play import PORT, SETTINGS, Outcome, Play
from simulation.supervisor import Supervisor, embedded
from simulation.weather import STORM, Plan


class Single(Play):
    """A server that stands alone."""

    def servers(self) -> list[Supervisor]:
        machine = Machine(self.world, self.sockets, "server")
        return [Supervisor(machine, embedded(load(None, SETTINGS)))]

    def urls(self) -> tuple[str, ...]:
        return (f"helio://server:{PORT}",)


def run(seed: int, plan: Plan = STORM) -> Outcome:
    return Single(seed, plan).run()

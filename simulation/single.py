"""One server, several clients, and whatever can happen to them: the embedded server of production on a machine."""

from __future__ import annotations

from heliograph.nodes.configuration import load
from simulation.machines import Machine
from simulation.play import PORT, SETTINGS, Outcome, Play
from simulation.supervisor import Supervisor, embedded


class Single(Play):
    """A server that stands alone."""

    def servers(self) -> list[Supervisor]:
        machine = Machine(self.world, self.sockets, "server")
        return [Supervisor(machine, embedded(load(None, SETTINGS)))]

    def url(self) -> str:
        return f"helio://server:{PORT}"


def run(seed: int, *, faults: int = 1_000_000) -> Outcome:
    """`faults`: no more than so many."""
    return Single(seed, faults).run()

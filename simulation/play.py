"""A run: servers, their clients and the weather; a phase of faults, a calm one, and the judgement.

What servers there are is said by `single.py` and `cluster.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import format_exception
from typing import Final

import msgspec

from simulation.checkers import named, violations
from simulation.clients import Client, Receiving, Scene, Sending, Streaming, Transacting
from simulation.history import History
from simulation.loop import bury
from simulation.machines import Machine
from simulation.sockets import Sockets
from simulation.supervisor import Supervisor
from simulation.weather import Plan, Weather
from simulation.world import World

_STORM_SECONDS: Final = 12.0
CALM_SECONDS: Final = 40.0
# No fault lasts longer, but for what `outlast_turns` waits for.
_RECOVERY_SECONDS: Final = 6.0
PORT: Final = 7700
SETTINGS: Final[dict[str, object]] = {
    "server.data": "/data",
    "server.port": PORT,
    "journal.segment_bytes": 128 * 1024,
    "journal.snapshot_every_bytes": 128 * 1024,
    "memory.resident_bytes": 1024 * 1024,
    "limits.heartbeat_seconds": 1.0,
    "sessions.reconnect_seconds": 2.0,
    "sessions.lease_seconds": 5.0,
    "policies": [
        {"destinations": "queue:*", "redelivery_limit": 0},
        {"destinations": "topic:*", "redelivery_limit": 0},
    ],
}


class Outcome(msgspec.Struct):
    """What became of a seed."""

    seed: int
    digest: str
    simulated_seconds: float
    events: int
    faults: dict[str, int]
    counts: dict[str, int]
    errors: dict[str, int]
    violations: list[str]
    covered: dict[str, int] = {}  # states and the like that were visited, and how often
    story: list[str] = []  # of a run that failed, what happened in words


class Play:
    """One seed."""

    leisure = 1.0
    storm_seconds = _STORM_SECONDS
    calm_seconds = CALM_SECONDS

    def __init__(self, seed: int, plan: Plan) -> None:
        self.seed = seed
        self.world = World(seed)
        self.history = self.make_history()
        self.sockets = Sockets(self.world)
        self.supervisors = self.servers()
        self.scene = Scene(self.world, self.history, self.urls(), self.leisure)
        self.desks = self.make_desks()
        self.clients = self._cast()
        self.weather = self.make_weather(plan)

    def make_history(self) -> History:
        return History(self.world)

    def make_weather(self, plan: Plan) -> Weather:
        return Weather(self.world, self.supervisors, self.clients, self.sockets, plan)

    def make_desks(self) -> list[Machine]:
        """Where clients run."""
        return [Machine(self.world, self.sockets, "clients")]

    def _desk(self) -> Machine:
        return self.desks[0] if len(self.desks) == 1 else self.world.dice.choice(self.desks)

    def servers(self) -> list[Supervisor]:
        raise NotImplementedError

    def urls(self) -> tuple[str, ...]:
        """Where clients connect: any of these."""
        raise NotImplementedError

    def _cast(self) -> list[Client]:
        scene, dice, desk = self.scene, self.world.dice, self._desk
        self.history.subscriptions["topic:news"] = ["topic:news/alice", "topic:news/bob"]
        modes = ("individual", "client", "auto")
        return [
            Receiving(scene, desk(), "alice", "topic:news", mode=dice.choice(modes), durable="news"),
            Receiving(scene, desk(), "bob", "topic:news", mode=dice.choice(modes), durable="news"),
            Receiving(scene, desk(), "solo", "queue:solo", mode=dice.choice(modes)),
            Receiving(scene, desk(), "one", "queue:many", mode="individual"),
            Receiving(scene, desk(), "two", "queue:many", mode=dice.choice(modes)),
            Receiving(scene, desk(), "first", "queue:units", mode=dice.choice(modes)),
            Receiving(scene, desk(), "second", "queue:units", mode="individual"),
            Transacting(scene, desk(), "clerk", ("queue:in",), ("queue:out", "queue:copies")),
            Receiving(scene, desk(), "out", "queue:out", mode=dice.choice(modes)),
            Receiving(scene, desk(), "viewer", "queue:large", mode="individual"),
            Receiving(scene, desk(), "copies", "queue:copies", mode=dice.choice(modes)),
            Sending(scene, desk(), "writer", "queue:solo"),
            Sending(scene, desk(), "many", "queue:many", fleeting=0.2),
            Sending(scene, desk(), "ordered", "queue:units", units=("a", "b", "c")),
            Sending(scene, desk(), "works", "queue:in"),
            Sending(scene, desk(), "press", "topic:news"),
            Streaming(scene, desk(), "studio", "queue:large"),
        ]

    def run(self) -> Outcome:
        self.begin()
        self.weather.begin()
        self.world.run(self.world.now + self.storm_seconds)
        return self.finish()

    def begin(self) -> None:
        """Everybody is there and at work."""
        for supervisor in self.supervisors:
            supervisor.start()
        for client in self.clients:
            if not isinstance(client, Sending | Streaming):
                client.start()
        readers = [client for client in self.clients if isinstance(client, Receiving)]
        self._until(lambda: len(self.scene.subscribed) == len({reader.place for reader in readers}), 10.0)
        for client in self.clients:
            if isinstance(client, Sending | Streaming):
                client.start()

    def finish(self) -> Outcome:
        """It becomes calm, and everything is judged."""
        self.weather.end()
        self.calm_down()
        self.world.run(self.world.now + 3.0)  # whatever comes that should not
        judged = self._judged()
        self._end()
        return judged

    def calm_down(self) -> None:
        """Until everybody is through."""
        self._until(self._are_up, _RECOVERY_SECONDS)
        self.world.run(self.world.now + 1.0)
        self.scene.is_sending = False
        self.outlast_turns()
        self._until_quiet()

    def outlast_turns(self) -> None:
        """A turn that a slow process with a slow disk began in the storm may last far into the calm, and nothing ends
        it earlier. What waits for that process, and rightly so, cannot go on before."""
        processes = [each.process for each in self.supervisors if each.process is not None]
        busy = [process.loop.busy_until for process in processes if process.is_alive]
        self.world.run(max([self.world.now, *busy]))

    def _until_quiet(self) -> None:
        """Who is slow is not hung: it is waited for as long as less and less waits."""
        left = self._left_over() + 1
        while not self._is_quiet() and self._left_over() < left:
            left = self._left_over()
            self._until(self._is_quiet, self.calm_seconds)

    def _left_over(self) -> int:
        """How much nobody is through with."""
        return len(self._unfinished()) + sum(1 for _ in self.history.waiting())

    def _end(self) -> None:
        machines = [supervisor.machine for supervisor in self.supervisors]
        for machine in (*machines, *self.desks):
            for process in list(machine.processes):
                process.loop.kill()
        bury(self.world)

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = self.world.now + seconds
        while not condition() and self.world.now < deadline:
            self.world.run(self.world.now + 0.5)

    def _are_up(self) -> bool:
        """Who was stopped goes on, who was off is back."""
        return all(
            each.process is not None and each.is_running and not each.process.loop.is_stopped
            for each in self.supervisors
        )

    def _is_quiet(self) -> bool:
        return not self._unfinished() and next(self.history.waiting(), None) is None

    def _unfinished(self) -> list[str]:
        senders = (client for client in self.clients if isinstance(client, Sending | Streaming))
        return [client.name for client in senders if not client.is_through]

    def judge(self) -> list[str]:
        """What is wrong, in sentences."""
        unfinished = (f"{name} is not through with what it sent" for name in self._unfinished())
        defects = ("".join(format_exception(error)) for error in self.world.failures)
        return named("unfinished", unfinished) + violations(self.history) + named("defect", defects)

    def _judged(self) -> Outcome:
        faults = dict(self.weather.faults)
        for supervisor in self.supervisors:
            for why, count in supervisor.endings.items():
                faults[f"ended_{why}"] = faults.get(f"ended_{why}", 0) + count
        faults["bits_flipped"] = sum(supervisor.machine.disk.flips for supervisor in self.supervisors)
        return Outcome(
            self.seed,
            self.world.digest,
            self.world.now,
            self.world.events,
            dict(sorted(faults.items())),
            self.history.counts(),
            dict(sorted(self.scene.faults.items())),
            self.judge(),
        )

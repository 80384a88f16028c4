"""Faults of a cluster that chance alone would bring about too rarely: each is two things that go wrong together."""

from __future__ import annotations

from functools import partial

from simulation.clients import Client
from simulation.holding import replica_of
from simulation.loop import ProcessLoop
from simulation.network import Network
from simulation.sockets import Sockets
from simulation.supervisor import Supervisor
from simulation.weather import KINDS, Plan, Weather
from simulation.world import World


class ClusterWeather(Weather):
    """Also: one primary after the other is gone; clients are gone together with the client manager that would say so;
    a primary writes what nobody hears, or is gone in its first moments; clients lose their connection while nobody
    answers, or in the middle of a commit. Only if it is named, since it is for one kind of bug: two client managers
    are at the same commit (`race`)."""

    kinds = (*KINDS, "behead", "desert", "gag", "strand", "interrupt", "false_start")

    def __init__(
        self,
        world: World,
        supervisors: list[Supervisor],
        clients: list[Client],
        sockets: Sockets,
        plan: Plan,
        network: Network,
    ) -> None:
        super().__init__(world, supervisors, clients, sockets, plan)
        self._network = network
        self._desks = [each for each in supervisors if each.role == "client-manager"]
        self._managers = [each for each in supervisors if each.role != "client-manager"]
        self._lies_in_wait = False  # for whoever leads next

    def _desert(self) -> None:
        for client in self.dice.sample(self._clients, self.dice.randint(1, 6)):
            client.kill()
        for supervisor in self.dice.sample(self._desks, self.dice.randint(1, len(self._desks))):
            if supervisor.process is not None:
                supervisor.process.kill()

    def _behead(self) -> None:
        """Whoever leads is killed, and whoever leads then, a few times in a row."""
        for count in range(self.dice.randint(1, 4)):
            self.world.after(count * self.world.between(0.05, 1.5), self._kill_who_leads)

    def _kill_who_leads(self) -> None:
        leading = self._leading()
        if self._left and leading:  # it is not calm
            process = self.dice.choice(leading).process
            assert process is not None
            process.kill()

    def _gag(self) -> bool:
        """Nobody hears whoever leads any more. It writes on what the next one will write in another way, and then its
        power fails."""
        leading = self._leading()
        if not leading:
            return False
        supervisor = self.dice.choice(leading)
        self._network.gag(supervisor.host)
        off = self.world.between(0.05, 2.0)
        self.world.after(self.world.between(0.001, 0.2), lambda: supervisor.power_off(off))
        return True

    def _false_start(self) -> None:
        """All message managers lose their power, and so does the one that leads then, while others learn from it what
        it has. (Who has learned it and is not counted yet may know more than who leads next.)"""
        for supervisor in self._supervisors:
            if supervisor not in self._desks:
                supervisor.power_off(self.world.between(0.05, 0.3))
        if not self._lies_in_wait:
            self._lies_in_wait = True
            self.world.after(0.4, partial(self._end_at_start, 4000))

    def _end_at_start(self, patience: int) -> None:
        leading = self._leading()
        if leading and self._left:
            supervisor = self.dice.choice(leading)
            self._network.gag(supervisor.host)
            off = self.world.between(0.05, 1.0)
            self.world.after(self.world.between(0.0, 0.012), lambda: supervisor.power_off(off))
        elif patience and self._left:
            self.world.after(0.0005, partial(self._end_at_start, patience - 1))
            return
        self._lies_in_wait = False

    def _strand(self) -> bool:
        """Whoever leads is stopped, and goes on when those who waited for its answer are with another client manager,
        or dead; and, if it was stopped for long, when another leads who gave them something else."""
        leading = self._leading()
        if not leading:
            return False
        seconds = self._stop_for_a_while(self.dice.choice(leading), self.dice.choice((1.0, 1.0, 4.0)))
        if self.world.chance(0.3):
            self.world.after(self.world.between(0.0, seconds), self._kill_desk)
        for client in self.dice.sample(self._clients, self.dice.randint(1, len(self._clients))):
            self.world.after(self.world.between(0.0, seconds), partial(self._leave, client))
        return True

    def _stop_for_a_while(self, supervisor: Supervisor, longest: float = 1.0) -> float:
        process = supervisor.process
        assert process is not None
        seconds = self.world.between(0.02, longest)
        process.loop.stop()
        self.world.after(seconds, process.loop.resume)
        return seconds

    def _interrupt(self) -> None:
        """The next commit meets a primary that is stopped, and is asked again through another client manager. The
        first may not know, and goes on with it; or it is dead."""
        waiting = self._clients[0].scene.at_next_commit
        if self.world.chance(0.5):
            waiting.append(self._overtake)
        else:
            moment = self.world.between(0.0, 0.02)
            waiting.append(lambda client: self.world.after(moment, partial(self._stop_in, client)))

    def _stop_in(self, client: Client) -> None:
        leading = self._leading()
        if leading and self._left:
            self._stop_for_a_while(self.dice.choice(leading))
            leave = self._kill_desk_of if self.world.chance(0.3) else self._leave
            self.world.after(self.world.between(0.0, 0.02), partial(leave, client))

    def _overtake(self, client: Client) -> None:
        """Its client manager stops before it has read what it is asked, and goes on when another has been asked."""
        desk = self._desk_of(client)
        if desk is not None and self._left:
            self._stop_for_a_while(desk, 0.3)
            transport = client.transport
            if transport is not None:
                self.world.after(self.world.between(0.0005, 0.005), transport.reset_here)

    def _race(self) -> None:
        """The client manager of the next commit stops before it has read that, and goes on in the very moment in
        which another, asked again, has made somebody promise it."""
        self._clients[0].scene.at_next_commit.append(self._overtake_closely)

    def _overtake_closely(self, client: Client) -> None:
        desk, transport = self._desk_of(client), client.transport
        if desk is None or desk.process is None or transport is None or not self._left:
            return
        desk.process.loop.stop()
        self.world.after(self.world.between(0.0005, 0.005), transport.reset_here)
        self.world.after(0.001, partial(self._go_on_when_promised, desk.process.loop, 2000))

    def _go_on_when_promised(self, loop: ProcessLoop, patience: int) -> None:
        replicas = (replica_of(supervisor) for supervisor in self._leading())
        is_promised = any(each and each.manager.catalogue.transactions.prepared for each in replicas)
        if is_promised or not patience or not self._left:
            self.world.after(self.world.between(0.0, 0.003), loop.resume)
        else:
            self.world.after(0.0005, partial(self._go_on_when_promised, loop, patience - 1))

    def _desk_of(self, client: Client) -> Supervisor | None:
        """The client manager that it is connected to, if that runs."""
        transport = client.transport
        name = transport.get_extra_info("peername")[0] if transport is not None else ""
        return next((each for each in self._desks if each.machine.name == name and each.is_running), None)

    def _kill_desk_of(self, client: Client) -> None:
        desk = self._desk_of(client)
        if desk is not None and desk.process is not None:
            desk.process.kill()

    def _kill_desk(self) -> None:
        process = self.dice.choice(self._desks).process
        if process is not None:
            process.kill()

    def _leave(self, client: Client) -> None:
        if self.world.chance(0.1):
            client.kill()
        elif (transport := client.transport) is not None and not transport.is_broken:
            self._sockets.break_for(transport)

    def _leading(self) -> list[Supervisor]:
        """Whoever leads a sub-cluster now, and runs."""
        leading = []
        for supervisor in self._managers:  # who lies in wait asks this two thousand times a second
            replica = replica_of(supervisor)
            if replica is not None and replica.is_leading:
                leading.append(supervisor)
        return leading

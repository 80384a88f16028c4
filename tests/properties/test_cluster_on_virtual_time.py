"""A cluster of production, two client managers and three message managers, with its clients on virtual time, under
everything that can happen to processes, machines, disks and connections: what it promised holds in every run, and a
promise that is broken on purpose shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.bus.commands import SessionOpened, SessionResumed
from heliograph.bus.interface import NO_VIEW, Incarnation, Origin, Place
from heliograph.model.ids import SessionId
from heliograph.nodes.catching_up import _connect
from simulation.cluster import CLIENT_MANAGERS, Cluster
from simulation.cluster_plants import CLUSTER_PLANTS
from simulation.holding import replica_of
from simulation.machines import Machine, Process
from simulation.runs import summarise
from simulation.sub_cluster_plants import SUB_CLUSTER_PLANTS
from simulation.weather import Plan

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# Bugs that show within a few seeds.
_SOON = ("confirm before a backup has it", "wrong rank", "replay twice")


@pytest.mark.req("M8", "M9")
@pytest.mark.timeout(300)
def test_whatever_happens_a_cluster_keeps_its_promises() -> None:
    summary = summarise("cluster", range(5, 10))
    assert summary.violations == {}
    assert summary.counts["confirmed"] > 200 * summary.seeds, "enough happened"
    assert summary.counts["marked"] > 0
    assert summary.counts["committed"] > 0


@pytest.mark.req("M10", "M12")
@pytest.mark.timeout(300)
def test_whatever_happens_a_transaction_over_two_sub_clusters_takes_effect_in_both_or_in_none() -> None:
    summary = summarise("sub-clusters", range(2))
    assert summary.violations == {}
    assert summary.counts["committed"] > 0
    assert summary.counts["rolled_back"] > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", _SOON)
def test_a_promise_that_a_cluster_breaks_shows(name: str) -> None:
    assert summarise("cluster", range(20), plant=name).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in CLUSTER_PLANTS if name not in _SOON])
def test_every_promise_that_a_cluster_breaks_shows(name: str) -> None:
    assert summarise("cluster", range(500), plant=name, processes=os.cpu_count() or 1).violations


@pytest.mark.nightly
@pytest.mark.req("M10")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", SUB_CLUSTER_PLANTS)
def test_every_promise_of_a_transaction_over_two_sub_clusters_that_is_broken_shows(name: str) -> None:
    assert summarise("sub-clusters", range(500), plant=name, processes=os.cpu_count() or 1).violations


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hundred", range(2))
def test_two_sub_clusters_through_many_seeds(hundred: int) -> None:
    seeds = range(hundred * 100, hundred * 100 + 100)
    assert summarise("sub-clusters", seeds, processes=os.cpu_count() or 1).violations == {}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hundred", range(10))
def test_a_cluster_through_a_thousand_seeds(hundred: int) -> None:
    seeds = range(hundred * 100, hundred * 100 + 100)
    assert summarise("cluster", seeds, processes=os.cpu_count() or 1).violations == {}


@pytest.mark.timeout(300)
def test_a_seed_says_all_about_a_cluster_whatever_the_hash_seed() -> None:
    told = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        options = ["--workload", "cluster", "--seeds", "5:7", "--digests", "--json"]
        command = [sys.executable, "-m", "simulation", *options]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, text=True)
        told.append(run.stdout.partition('"digests"')[2].partition("}")[0])
    assert told[0] == told[1]
    assert len(told[0]) > 60


def test_a_manager_that_cannot_read_its_journal_again_leaves_it_as_it_is_and_stops() -> None:
    cluster = Cluster(0, Plan(faults=0))
    for supervisor in cluster.supervisors:
        supervisor.start()
    cluster.world.run(3.0)
    assert cluster.holding.differences() == []
    backup = next(
        each for each in cluster.supervisors if (found := replica_of(each)) and not found.is_leading
    )
    replica = replica_of(backup)
    assert replica is not None
    assert backup.process is not None
    files = backup.machine.disk.files
    stamp = files["/data/journal/FORMAT"].data
    stamp[0] ^= 1  # as a disk gives it back on a bad day
    before = {path: bytes(file.data).rstrip(b"\0") for path, file in files.items() if ".segment" in path}
    backup.process.loop.call_soon(replica.begin_anew)
    cluster.world.run(4.0)
    assert [path for path in files if ".segment" in path] == list(before), "nothing was begun"
    assert all(files[path].data.startswith(was) for path, was in before.items())
    assert sum(backup.endings.values()) > 0, "it ended, and was started again"
    stamp[0] ^= 1
    cluster.world.run(10.0)
    assert cluster.holding.differences() == []


def test_a_host_that_lost_its_power_is_not_waited_for() -> None:
    cluster = Cluster(0, Plan(faults=0))
    cluster.supervisors[2].machine.crash()
    gave_up: list[float] = []

    async def ask(process: Process) -> None:
        with pytest.raises(TimeoutError):
            await _connect("node3:40000/00")
        gave_up.append(process.world.now)

    Machine(cluster.world, cluster.sockets, "asker").start("asker", ask)
    cluster.world.run(5.0)
    assert gave_up, "the system would wait for minutes"


@pytest.mark.req("M9")
@pytest.mark.parametrize("seed", [1, 2, 4, 5])
def test_a_cluster_whose_first_moments_are_disturbed_finds_a_primary_all_the_same(seed: int) -> None:
    """The first primary has the view on disk, and nobody yet who belongs to the cluster."""
    cluster = Cluster(seed, Plan(faults=0))
    managers = cluster.supervisors[CLIENT_MANAGERS:]
    for supervisor in cluster.supervisors:
        supervisor.start()
    while not any(replica is not None and replica.is_leading for replica in map(replica_of, managers)):
        cluster.world.run(cluster.world.now + 0.0005)
    cluster.world.run(cluster.world.now + 0.002)
    assert managers[-1].process is not None
    managers[-1].process.kill()
    cluster.world.run(cluster.world.now + 20.0)
    assert cluster.holding.differences() == []


@pytest.mark.req("M8", "M9")
def test_a_slow_primary_does_not_take_a_session_back_to_where_it_was() -> None:
    """It introduces a backup that has heard what it has yet to handle: the session is with another client manager."""
    cluster = Cluster(0, Plan(faults=0))
    cluster.begin()
    cluster.scene.is_sending = False
    cluster.calm_down()
    replicas = [replica for each in cluster.supervisors if (replica := replica_of(each)) is not None]
    leading = next(each.leading for each in replicas if each.leading is not None)
    following = next(each._following for each in replicas if each._following is not None)
    session = next(iter(leading.sessions))
    elsewhere = Incarnation(b"another, since now")
    following.heard(elsewhere, 1, SessionResumed(1, session, "", b""))
    following.logged(leading.introduces_itself())
    assert following.sessions[session] == elsewhere
    assert {**leading.sessions, session: elsewhere} == following.sessions
    cluster._end()


@pytest.mark.req("M9", "P5")
def test_between_views_a_primary_carries_out_nothing() -> None:
    """Another may lead already: what a client says then is about what that one gave it, under the same tags."""
    cluster = Cluster(0, Plan(faults=0))
    cluster.begin()
    cluster.world.run(cluster.world.now + 1.0)
    found = (replica_of(each) for each in cluster.supervisors)
    replica = next(each for each in found if each is not None and each.is_leading)
    replica.on_suspend()
    place = replica.manager.place
    index, session = place.index, SessionId(b"\1" * 16)
    origin = Origin(Place(1, 1), Incarnation(b"of the next view"), 1, NO_VIEW)
    replica.on_apply(origin, [SessionOpened(1, session, "", b"")])
    assert place.index == index
    assert session not in replica.manager.catalogue.sessions
    assert replica.channel is not None
    replica.channel.nodes_changed()
    cluster.world.run(cluster.world.now + 1.0)
    assert replica.is_leading
    assert session in replica.manager.catalogue.sessions, "it goes on, and carries it out then"
    cluster._end()

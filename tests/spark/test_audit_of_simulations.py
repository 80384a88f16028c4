"""An audit of what a simulated server, or cluster, went through finds nothing: crashes, power cuts, lost connections
and networks in parts break no promise, and look to nobody as if they had (D4).

The order of lanes is held against them, too: clients compete for queues without selectors, so whatever waits is
handed out for the first time in the order in which it was accepted, also where parts have met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.nodes.configuration import load
from heliograph.spark.pipelines import audit
from simulation.feed import Fed
from simulation.machines import Machine
from simulation.partitions import APART, FIVE, MIXED, TOGETHER, Layout
from simulation.play import SETTINGS
from simulation.single import Single
from simulation.supervisor import Supervisor, embedded
from simulation.weather import STORM
from tests.spark.cluster_of_disks import ClusterInProcess
from tests.spark.serving import ServerInProcess

pytestmark = [pytest.mark.req("D4"), pytest.mark.nightly]
_WHOLE_HISTORY = {"journal.segment_bytes": 8 << 20, "journal.snapshot_every_bytes": 8 << 20}


class Kept(Single):
    """One whose disk outlives it, with everything that was ever written there."""

    def servers(self) -> list[Supervisor]:
        self.machine = Machine(self.world, self.sockets, "server")
        return [Supervisor(self.machine, embedded(load(None, {**SETTINGS, **_WHOLE_HISTORY})))]

    def put_disk(self, folder: Path) -> None:
        for name, file in self.machine.disk.files.items():
            path = folder / Path(name).relative_to("/data")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)


@pytest.mark.parametrize("seed", range(1, 6))
def test_an_audit_of_a_simulated_server_finds_nothing(spark: Any, tmp_path: Path, seed: int) -> None:
    play = Kept(seed, STORM)
    outcome = play.run()
    assert outcome.violations == []
    play.put_disk(tmp_path / "server" / "data")
    with ServerInProcess(tmp_path / "server") as url:
        findings = audit.run(spark, {"url": url, "partitions": 2}, None, lambda _: None)
    assert findings.violations == []
    handed_out = findings.totals[findings.totals["kind"] == "dispatched"]["messages"].sum()
    assert handed_out > 500, "enough happened"


class KeptCluster(Fed):
    """A cluster whose disks outlive it."""

    def put_disks(self, folder: Path) -> None:
        for number, supervisor in enumerate(self.supervisors, start=1):
            for name, file in supervisor.machine.disk.files.items():
                path = folder / f"n{number}" / Path(name).relative_to("/data")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)


@pytest.mark.req("P6")
@pytest.mark.parametrize(
    ("seed", "layout"),
    [(1, APART), (2, TOGETHER), (3, MIXED), (4, FIVE), (5, TOGETHER)],
    ids=["1-apart", "2-together", "3-mixed", "4-five", "5-together"],
)
def test_an_audit_of_a_cluster_whose_network_was_cut_finds_nothing(
    spark: Any, tmp_path: Path, seed: int, layout: Layout
) -> None:
    play = KeptCluster(seed, STORM, layout=layout)
    outcome = play.run()
    assert outcome.violations == []
    play.put_disks(tmp_path)
    with ClusterInProcess(tmp_path, [role for role, _ in layout]) as url:
        findings = audit.run(spark, {"url": url, "partitions": 2}, None, lambda _: None)
    assert findings.violations == []
    handed_out = findings.totals[findings.totals["kind"] == "dispatched"]["messages"].sum()
    assert handed_out > 100, "enough happened"

"""Clusters on real Corosync whose network is cut and healed under load: nothing that was confirmed is lost, nothing
comes twice, order is kept, and it is drained soon after the last heal. Judged by the checkers of the simulation.

`HELIO_TEST_SEED` repeats the load and the cuts of a scenario. The machine adds its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.cuts import require_nftables
from tests.cluster.hosts import require_corosync
from tests.cluster.parted_play import PartedCluster, PartedPlay

pytestmark = [pytest.mark.root, pytest.mark.slow]

CUTS = ("cut", "cut", "cut_twice", "cable", "flap", "heal")
ONE_WAY = (*CUTS, "lose", "lose")
# Seconds of cuts: those of every day are short, so that all six are.
_SHORT, _LONG = 4.5, 15.0


class Clusters:
    """One for all scenarios, unless something was wrong with it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._cluster: PartedCluster | None = None

    def one(self) -> PartedCluster:
        if self._cluster is not None and self._cluster.is_spoilt:
            self.stop()
        if self._cluster is None:
            self._cluster = PartedCluster(
                self._factory.mktemp("parted"),
                client_managers=3,
                message_managers=3,
                placement=(1, 2, 3, 1, 2, 3),
            )
            self._cluster.start()
        return self._cluster

    def stop(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    require_corosync()
    require_nftables()
    clusters = Clusters(tmp_path_factory)
    try:
        yield clusters
    finally:
        clusters.stop()


def run(cluster: PartedCluster, name: str, seed: int, seconds: float, kinds: tuple[str, ...]) -> None:
    seed = int(os.environ.get("HELIO_TEST_SEED", "0")) or seed
    cluster.is_spoilt = True
    play = PartedPlay(cluster, name, seed)
    try:
        play.begin()
        play.storm(seconds, kinds)
        found = play.end()
    finally:
        cluster.cuts.heal()
        play.close()
        print(f"HELIO_TEST_SEED={seed}\n{play.report()}")
    assert not found, "\n".join(found)
    cluster.is_spoilt = False


@pytest.mark.req("P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P11")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(1, 7))
def test_three_hosts_are_cut_and_healed_under_load(clusters: Clusters, seed: int) -> None:
    run(clusters.one(), f"short{seed}", seed, _SHORT, ONE_WAY if seed % 3 == 0 else CUTS)


@pytest.mark.nightly
@pytest.mark.req("P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P11")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(101, 131))
def test_three_hosts_are_cut_and_healed_under_load_for_long(clusters: Clusters, seed: int) -> None:
    run(clusters.one(), f"long{seed}", seed, _LONG, ONE_WAY if seed % 3 == 0 else CUTS)

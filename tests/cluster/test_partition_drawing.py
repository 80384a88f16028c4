"""The source's drawing 3 on real hosts: a sub-cluster that is cut, and another that is not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.cuts import require_nftables
from tests.cluster.hosts import require_corosync, until
from tests.cluster.parted_play import PartedCluster, PartedPlay

pytestmark = [pytest.mark.root, pytest.mark.slow]

_NOTICED_SECONDS = 20.0


@pytest.fixture
def drawing(tmp_path: Path) -> Iterator[PartedCluster]:
    """Three message managers and five client managers; and another sub-cluster, beside the first's primary."""
    require_corosync()
    require_nftables()
    cluster = PartedCluster(
        tmp_path,
        client_managers=5,
        message_managers=3,
        sub_clusters=2,
        placement=(1, 2, 3, 4, 5, 1, 4, 5, 1, 2, 3),
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.req("P2", "P3", "P6")
@pytest.mark.timeout(180)
def test_drawing_3_the_primary_alone_with_three_of_five_client_managers(drawing: PartedCluster) -> None:
    """The primary and most client managers go on (B), the two other message managers are restricted (D), and the
    other sub-cluster, all of which is with the primary, is whole (A). All parts accept messages."""
    ours, theirs = (1, 2, 3), (4, 5)
    play = PartedPlay(drawing, "drawing", 3)
    try:
        play.begin()

        def states(hosts: tuple[int, ...], sub_cluster: str) -> set[str]:
            nodes = [node for node in drawing.dev.nodes if drawing.host_of(node) in hosts]
            return {
                drawing.state(node, sub_cluster) for node in nodes if node.sub_cluster in ("", sub_cluster)
            }

        until(lambda: states((*ours, *theirs), "s1") == {"A"}, "it is whole", _NOTICED_SECONDS)
        drawing.cuts.cut_into((ours, theirs))
        until(lambda: states(ours, "s1") == {"B"}, "the primary's part goes on", _NOTICED_SECONDS)
        until(lambda: states(theirs, "s1") == {"D"}, "the other part is restricted", _NOTICED_SECONDS)
        assert states(ours, "s2") == {"A"}
        since = play.world.now
        # Whether a destination is in the one sub-cluster or the other is for the cluster to choose.
        sides = [ours, *([theirs] if play.some_are_in("s1") else [])]
        for hosts in sides:
            accepts = partial(play.accepts, hosts, since)
            until(accepts, f"{hosts} accept messages", _NOTICED_SECONDS)
        found = play.end()
    finally:
        play.close()
        print(play.report())
    assert not found, "\n".join(found)

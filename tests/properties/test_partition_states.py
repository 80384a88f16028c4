"""All views of small clusters, not a sample of them: at most one part is ever unrestricted, and it knows everything
that was handed out before.

A walk goes through every world that is at most `depth` steps from a whole cluster (`partition_world.py` says what a
step is). To form a view is one step; without windows it is in force in the same step.
"""

import pytest

from heliograph.cluster.partition_table import TRANSITIONS
from tests.properties import partition_world
from tests.properties.partition_plants import PLANTS
from tests.properties.partition_values import Violation
from tests.properties.partition_world import Cluster, walk

# These take minutes to show.
_LONG = (
    "nobody_waits_for_records",
    "a_view_that_nobody_recorded_needs_no_elder",
    "who_caught_up_counts_without_a_view",
    "who_has_caught_up_records_before_the_elders",
)
SIZES = [(clients, managers) for clients in (1, 2, 3) for managers in (1, 2, 3)]


@pytest.mark.slow
def test_three_steps_of_three_and_three_show_every_way_and_never_two_unrestricted_parts() -> None:
    cluster = Cluster(3, 3, windows=False)
    walked = walk(cluster, cluster.whole(), 3)
    begun = walk(cluster, cluster.beginning(), 2)
    assert walked.steps > 50_000, "enough happened"
    for each in TRANSITIONS:
        print(
            f"{each.before:>5} —{each.rule}→ {each.after}",
            (each.before, each.rule, each.after) in cluster.ways,
        )
    print(walked, begun)
    assert set(cluster.ways) == {(each.before, each.rule, each.after) for each in TRANSITIONS}


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "managers"), [size for size in SIZES if size != (3, 3)])
def test_three_steps_of_smaller_clusters(clients: int, managers: int) -> None:
    cluster = Cluster(clients, managers, windows=False)
    walk(cluster, cluster.whole(), 3)
    walk(cluster, cluster.beginning(), 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "managers", "depth"), [(1, 2, 3), (2, 1, 3), (2, 2, 2), (1, 3, 2), (3, 1, 2)]
)
def test_with_every_window_before_a_view_is_in_force(clients: int, managers: int, depth: int) -> None:
    cluster = Cluster(clients, managers, windows=True)
    walk(cluster, cluster.whole(), depth)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "windows", "depth"), [(2, False, 10), (3, False, 4), (2, True, 4), (3, True, 3)]
)
def test_where_each_process_is_both(processes: int, windows: bool, depth: int) -> None:
    """The smallest clusters that people run."""
    cluster = Cluster(processes, processes, windows=windows, paired=True)
    print(walk(cluster, cluster.whole(), depth))


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "managers", "depth"), [(2, 2, 3), (3, 2, 3), (3, 3, 2)])
def test_while_a_message_manager_is_taken_out_of_the_configuration(
    clients: int, managers: int, depth: int
) -> None:
    cluster = Cluster(clients, managers, windows=False, removes=True)
    walk(cluster, cluster.whole(), depth)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("clients", "managers", "windows", "depth"),
    [(2, 2, False, 5), (3, 2, False, 4), (2, 3, False, 4), (1, 2, True, 4), (2, 2, True, 2)],
)
def test_further_while_one_is_taken_out(clients: int, managers: int, windows: bool, depth: int) -> None:
    cluster = Cluster(clients, managers, windows=windows, removes=True)
    print(walk(cluster, cluster.whole(), depth))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("processes", "windows", "depth"), [(3, False, 6), (2, True, 7), (3, True, 4)])
def test_further_where_each_process_is_both(processes: int, windows: bool, depth: int) -> None:
    cluster = Cluster(processes, processes, windows=windows, paired=True)
    print(walk(cluster, cluster.whole(), depth))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("clients", "managers", "windows", "depth"),
    [
        (3, 3, False, 4),
        (2, 2, False, 6),
        (1, 3, False, 5),
        (3, 1, False, 5),
        (1, 2, True, 5),
        (2, 1, True, 4),
        (2, 2, True, 3),
        (3, 2, True, 2),
        (2, 3, True, 2),
    ],
)
def test_further(clients: int, managers: int, windows: bool, depth: int) -> None:
    cluster = Cluster(clients, managers, windows=windows)
    print(walk(cluster, cluster.whole(), depth))


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly) if name in _LONG else name for name in PLANTS],
)
def test_a_rule_that_is_wrong_shows(name: str) -> None:
    plant, clients, managers, depth, windows, removes, paired, young = PLANTS[name]
    # With a bug in the rules, views may matter that by the rules cannot. With windows it shows all the same.
    cluster = Cluster(clients, managers, windows=windows, forgets=windows, removes=removes, paired=paired)
    begin = cluster.young() if young else cluster.whole()
    partition_world._watched.cache_clear()
    try:
        with plant(), pytest.raises(Violation):
            walk(cluster, begin, depth)
    finally:
        partition_world._watched.cache_clear()

"""Bugs that are planted by name: what they replace is there."""

from __future__ import annotations

import pytest

from simulation.plants import Plant
from simulation.runs import HIDDEN, PLANTS_OF

_ALL = {
    f"{workload}: {name}": plant for workload, plants in PLANTS_OF.items() for name, plant in plants.items()
}


@pytest.mark.parametrize("plant", [*_ALL.values(), *HIDDEN.values()], ids=[*_ALL, *HIDDEN])
def test_what_a_plant_replaces_is_there(plant: Plant) -> None:
    """A plant whose place was moved would stop hours of looking for it, and only then."""
    assert plant
    assert [f"{owner}.{attribute}" for owner, attribute, _ in plant if not hasattr(owner, attribute)] == []

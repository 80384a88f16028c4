"""Cuts of a network, as the dice fall: into parts, one way only, again and again; and their healing in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simulation.network import Network
from simulation.world import World

# How long a part that is quick, and one that is slow, takes to notice a cut: from, to.
_QUICK: Final = (0.02, 0.1)
_SLOW: Final = (0.6, 2.5)


class Cuts:
    """Of one network. `on_changed` hears what was done, in words."""

    def __init__(self, world: World, network: Network) -> None:
        self._world = world
        self._network = network
        self.on_changed: Callable[[str], None] = _nobody_asks

    def cut(self) -> None:
        """Into three parts at most."""
        parts: list[list[int]] = [[], [], []]
        for host in self._network.hosts:
            parts[self._world.dice.randint(0, 2)].append(host)
        self.cut_into([part for part in parts if part])

    def cut_into(self, parts: Sequence[Sequence[int]]) -> None:
        self._network.cut(parts)
        self.on_changed("cut")

    def choose_windows(self, parts: Sequence[Sequence[int]]) -> None:
        """One part notices at once and the other late, or neither: what lies between is where two could act."""
        self._network.notices.clear()
        for part in parts:
            window = self._world.dice.choice((None, _QUICK, _SLOW))
            if window is not None:
                self._network.notices.update(dict.fromkeys(part, window))

    def heal(self) -> None:
        self._network.heal()
        self.on_changed("healed")

    def mend(self) -> None:
        """Two parts find together, the others stay where they are."""
        parts = self._network.parts
        if len(parts) > 1:
            one, other = self._world.dice.sample(parts, 2)
            self._network.mend(one, other)
            self.on_changed("mended")

    def lose(self) -> None:
        """One way."""
        one, other = self._world.dice.sample(list(self._network.hosts), 2)
        self._network.lose(one, other)
        self.on_changed("one way lost")

    def flap(self) -> None:
        for count in range(self._world.dice.randint(2, 6)):
            strike = self.cut if count % 2 else self.heal
            self._world.after(count * self._world.between(0.05, 0.4), strike)


def _nobody_asks(_what: str) -> None:
    """No story is told."""

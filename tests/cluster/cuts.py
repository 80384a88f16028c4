"""Cuts of a real network: cables that are dead (link state), and a switch that does not carry between certain ports,
in one direction or both (nftables). Whoever is cut off keeps its own address, and hears nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from itertools import permutations

import pytest

from heliograph.cli.dev_hosts import Network

# A connection over a way that was cut may be over at its other end for so long after the heal, until a heartbeat of
# this end is answered with a reset.
_SEEMS_WHOLE_SECONDS = 4.0

Way = tuple[int, int]
Parts = Sequence[Sequence[int]]


def require_nftables() -> None:
    """Skip with a sentence where it cannot be had; install it where we may."""
    if shutil.which("nft") is None and shutil.which("apt-get") is not None:
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "nftables"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(command, check=False, capture_output=True, env=environment, timeout=50)
    if shutil.which("nft") is None:
        pytest.skip("there is no `nft` here (Debian: apt install nftables)")


class Cuts:
    """Of one network. Hosts have numbers from 1 on; a way leads from one to another."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.hosts = tuple(range(1, len(network.hosts) + 1))
        self._dead: set[int] = set()  # cables
        self._barred: set[Way] = set()
        self._mended: dict[Way, float] = {}  # when a way was last mended
        self.story: list[tuple[float, str]] = []

    # ---- what is done to the network

    def cut_into(self, parts: Parts) -> None:
        """At one instant. Hosts of one part hear each other."""
        part_of = {host: at for at, part in enumerate(parts) for host in part}
        self._bar({way for way in permutations(self.hosts, 2) if part_of[way[0]] != part_of[way[1]]})
        self._tell("cut: " + " | ".join(" ".join(map(str, part)) for part in parts))

    def kill_cable(self, host: int) -> None:
        self._network.set_port(host, up=False)
        self._dead.add(host)
        self._tell(f"the cable of {host} is dead")

    def lose(self, source: int, target: int) -> None:
        """What one says does not reach the other."""
        self._bar(self._barred | {(source, target)})
        self._tell(f"{target} does not hear {source}")

    def heal(self) -> None:
        moment = time.monotonic()
        self._mended.update(dict.fromkeys(self._broken(), moment))
        for host in sorted(self._dead):
            self._network.set_port(host, up=True)
        self._dead.clear()
        self._bar(set())
        self._tell("healed")

    def _bar(self, ways: set[Way]) -> None:
        self._mended.update(dict.fromkeys(self._barred - ways, time.monotonic()))
        self._network.bar(sorted(ways))
        self._barred = ways

    def _tell(self, what: str) -> None:
        self.story.append((time.monotonic(), what))

    # ---- what is known of it

    @property
    def is_whole(self) -> bool:
        return not self._dead and not self._barred

    def _broken(self) -> set[Way]:
        dead = {way for way in permutations(self.hosts, 2) if self._dead & set(way)}
        return self._barred | dead

    def was_cut(self, one: int, other: int) -> bool:
        """Whether a connection between these may be over with only one of them knowing."""
        if one == other:
            return False
        now = time.monotonic()
        ways = ((one, other), (other, one))
        return any(
            way in self._broken() or now - self._mended.get(way, -_SEEMS_WHOLE_SECONDS) < _SEEMS_WHOLE_SECONDS
            for way in ways
        )

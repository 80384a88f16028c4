"""Getting the peers onto this machine: Debian's packages, when we may install them; a plain word when not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.interface import Peer

POLICY: Final = Path("/usr/sbin/policy-rc.d")
"""Debian asks this program whether an installed service may be started."""
INSTALL_SECONDS: Final = 600


@contextmanager
def _services_stay_off() -> Iterator[None]:
    """Keep freshly installed servers from starting by themselves: they would take part in the measurement."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def install(peers: Iterable[Peer]) -> None:
    """Install what is missing, if this is Debian and we are root; otherwise change nothing."""
    packages = sorted({name for peer in peers if peer.missing_programs() for name in peer.packages})
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print(f"Installing {', '.join(packages)} …", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _services_stay_off():
        for arguments in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
            subprocess.run(
                ["apt-get", *arguments],
                env=environment,
                check=False,
                stdout=subprocess.DEVNULL,
                timeout=INSTALL_SECONDS,
            )


def what_is_missing(peer: Peer) -> str | None:
    """Why this peer cannot be measured here, in a sentence; None if it can."""
    if programs := peer.missing_programs():
        packages = " ".join(peer.packages)
        return f"{', '.join(programs)} not found; as root: apt-get install {packages}"
    if modules := peer.missing_modules():
        return f"Python package {', '.join(modules)} not found; pip install 'heliograph[bench]'"
    return None

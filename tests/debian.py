"""Programs that tests need and Python does not bring. A test names them, with the Debian packages that have them:

    @pytest.mark.debian({"mosquitto_pub": "mosquitto-clients"})

A name with a slash in it is a file. As root, what the chosen tests lack is installed before the first of them begins,
so that no test's time is spent on it; otherwise they are left out, and say what to do (`tests/missing.py`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.missing import leave_out

MARKER = "debian"
INSTALL_SECONDS = 900
Needs = Mapping[str, str]
"""The Debian package that has each program or file."""


def missing_of(needs: Needs) -> dict[str, str]:
    """Those that are not here."""
    return {name: package for name, package in needs.items() if not _is_here(name)}


def _is_here(name: str) -> bool:
    return Path(name).exists() if "/" in name else shutil.which(name) is not None


def install(needs: Needs) -> None:
    """What is missing, if we may. Tests run in two processes: one installs while the other waits."""
    if not missing_of(needs) or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with Path(tempfile.gettempdir(), "heliograph-tests-install.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if missing_of(needs) and not _apt_get("install", *sorted(set(missing_of(needs).values()))):
            _apt_get("update")  # a fresh machine does not know yet what there is
            _apt_get("install", *sorted(set(missing_of(needs).values())))


def _apt_get(action: str, *packages: str) -> bool:
    """Whether it went well. Services that come with a package are not started."""
    command = ["apt-get", action, "--yes", "--quiet", "-o", f"DPkg::Lock::Timeout={INSTALL_SECONDS}"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    more = ["--no-install-recommends", *packages] if packages else []
    done = subprocess.run(
        [*command, *more], env=environment, capture_output=True, check=False, timeout=INSTALL_SECONDS
    )
    return done.returncode == 0


def skip_without(needs: Needs) -> None:
    """Says what to do about it."""
    if missing := missing_of(needs):
        packages = " ".join(sorted(set(missing.values())))
        leave_out(f"{', '.join(missing)} not found; as root: apt-get install {packages}")


def needs_of(item: pytest.Item) -> dict[str, str]:
    return {name: package for mark in item.iter_markers(MARKER) for name, package in mark.args[0].items()}

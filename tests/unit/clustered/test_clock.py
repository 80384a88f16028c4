"""Leases go by a clock that does not stand still with the machine."""

from __future__ import annotations

import time

import pytest

from heliograph.clustered.clock import lease_clock


@pytest.mark.req("H2")
@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts sleep")
def test_leases_are_measured_by_the_time_since_the_machine_was_started() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = lease_clock()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)

"""`helio cluster status`, `remove` and `override` against a cluster in parts, as a person or a script runs them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import CLEAN, ROOT
from tests.suites.cluster_in_process import url
from tests.suites.parted_cluster import PartedCluster, parted
from tests.suites.test_partition_administration import cut, send

pytestmark = [pytest.mark.req("P10"), pytest.mark.slow]


async def helio(*arguments: str) -> tuple[int, str, str]:
    """Exit code, what was said, and what was said beside it. Nobody is at the terminal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "heliograph.cli.main", "cluster", *arguments),
        cwd=ROOT,
        env=CLEAN,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def of_both(cluster: PartedCluster) -> str:
    """A URL with a client manager of each part."""
    return f"{url(cluster, 1)},{url(cluster, 3).removeprefix('helio://')}"


def test_status_shows_every_part_that_it_can_reach(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        code, out, _ = await helio("status", "--url", of_both(cluster))
        assert (code, "cluster here: 5 nodes\n" in out, "main: A, whole" in out) == (0, True, True)
        assert "1.11 leads, 1.12 follows" in out
        await send(cluster, 1, b"one", b"two")
        await cut(cluster)
        code, out, _ = await helio("status", "--url", f"{of_both(cluster)},127.0.0.1:9")
        assert code == 0
        assert "cluster here: 5 nodes in 2 parts that do not reach each other" in out
        first, second = out.partition("part 1: 1.1, 1.2 and 1.11")[2].split("part 2: 1.3 and 1.12")
        assert "main: B, unrestricted, the smaller part" in first
        assert "missing: 1.12 and 1.3" in first
        assert "held back" not in first
        assert "main: D, restricted" in second
        assert "2 messages held back: 2 from before this view wait until" in second
        assert "not whole" in second
        assert "helio://127.0.0.1:9: no server answers" in second
        _, out, _ = await helio("status", "--json", "--url", of_both(cluster))
        shown = json.loads(out)
        assert [len(part["replies"]) for part in shown["parts"]] == [3, 2]
        assert [part["asked"] for part in shown["parts"]] == [[url(cluster, 1)], [url(cluster, 3)]]
        assert shown["unreachable"] == {}

    parted(tmp_path, story)


def test_a_script_must_say_that_it_means_it(tmp_path: Path) -> None:
    async def story(cluster: PartedCluster) -> None:
        await cut(cluster)
        code, _, err = await helio("override", "--url", url(cluster, 1))
        assert (code, "[not-restricted]" in err) == (2, True)
        code, _, err = await helio("override", "--url", url(cluster, 3))
        assert (code, "[not-confirmed]" in err) == (2, True)
        assert "as if 1.11, 1.1, 1.2 were gone for good" in err
        code, _, err = await helio("remove", "1.11", "--url", url(cluster, 3))
        assert (code, "[not-confirmed]" in err) == (2, True)
        code, _, err = await helio("remove", "1.11", "--url", url(cluster, 1))
        assert (code, "[node-not-awaited]" in err) == (2, True)
        await cluster.until_state("D", 3, 12)
        cluster.crash(11)
        code, out, err = await helio("override", "--yes", "--url", url(cluster, 3))
        assert (code, "1.12 hands out everything from the next view on" in out) == (0, True)
        assert "both parts hand out the same messages" in err
        await cluster.until_state("B", 3, 12)
        code, out, _ = await helio("remove", "1.11", "--yes", "--url", url(cluster, 3))
        assert (code, "1.12 told the others that 1.11 is gone for good" in out) == (0, True)
        await cluster.until_state("A", 3, 12)

    parted(tmp_path, story)

"""The same pipeline on a standalone cluster of Spark (D6): a master and two workers from the package, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.servers import CLEAN, ROOT
from tests.spark.serving import wait_until
from tests.spark.test_exactly_once import received, send

pytestmark = [pytest.mark.req("D6"), pytest.mark.nightly]
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def spark_environment(folder: Path) -> dict[str, str]:
    """Workers need the package, and Python: as on any cluster, by what they are started with."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    return {**CLEAN, **own, "SPARK_LOG_DIR": str(folder), "SPARK_WORKER_DIR": str(folder / "work")}


@contextmanager
def daemon(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A process of Spark, from `with` to its end. Its log."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            env={**spark_environment(folder), "SPARK_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def found(log: Path, pattern: str) -> list[str]:
    return re.findall(pattern, log.read_text(errors="replace"))


@contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """A master and two workers. The address of the master, and the logs of the workers."""
    with ExitStack() as stack:
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = stack.enter_context(daemon(folder, "master", _MASTER, *here))
        wait_until(lambda: found(log, r"master at (spark://\S+)"), "the master is there", 240)
        (master,) = found(log, r"master at (spark://\S+)")
        size = ("--cores", "1", "--memory", "900m")
        logs = [
            stack.enter_context(daemon(folder, f"worker-{n}", _WORKER, *here, *size, master))
            for n in range(2)
        ]
        for each in logs:
            wait_until(partial(found, each, "Successfully registered"), "it is registered", 240)
        yield master, logs


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["queue", "feed"])
def test_the_same_pipeline_runs_on_a_master_and_two_workers(tmp_path: Path, url: str, mode: str) -> None:
    count = 20_000
    send(url, count)
    with standalone(tmp_path) as (master, logs):
        arguments = [url, mode, str(tmp_path / "checkpoint"), "8000", master]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.relay", *arguments],
            cwd=ROOT,
            env=spark_environment(tmp_path),
            capture_output=True,
            check=False,
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert all(found(each, "Launching Python|Asked to launch executor") for each in logs), "both worked"
    assert sorted(received(url, count)) == list(range(count))

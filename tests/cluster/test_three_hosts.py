"""Three hosts set up as the guide says, with the files that `helio cluster init` writes, unchanged."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.cli.dev_cluster import free_subnet
from heliograph.cli.dev_hosts import Host, Network
from heliograph.client import connect
from tests.cluster.hosts import ROOT, require_corosync, until
from tests.servers import CLEAN, play

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.crash]
NAMES = ("north", "south", "west")
PAUSE_SECONDS = 5.0


def helio(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "heliograph.cli.main", *arguments]


class Site:
    """A host with the corosync and the server that somebody installed there."""

    def __init__(self, host: Host, name: str, written: Path, folder: Path) -> None:
        self.host = host
        self._ready = folder / "ready"
        self._errors = folder / "errors"
        data = folder / "data"
        data.mkdir(parents=True)
        shutil.copy(written / "users.toml", data)
        host.run("mount", "--bind", str(written), "/etc/corosync")
        host.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib/corosync")
        with (folder / "corosync").open("wb") as out:
            self.corosync = subprocess.Popen(host.inside("corosync", "-f"), stdout=out, stderr=out)
        self._command = helio("serve", "--config", str(written / f"{name}.toml"), "--data", str(data))
        self._command += ["--ready-file", str(self._ready)]
        self.server: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """As soon as its corosync lets it in."""
        if self.server is None or self.server.poll() is not None:
            with self._errors.open("ab") as errors:
                command = self.host.inside(*self._command, folder=ROOT)
                self.server = subprocess.Popen(command, env=CLEAN, stdout=errors, stderr=errors)

    @property
    def is_ready(self) -> bool:
        self.serve()
        return self._ready.exists()

    @property
    def said(self) -> str:
        return self._errors.read_text(errors="replace") if self._errors.exists() else ""

    def lose_power(self) -> None:
        """At one moment: a bus that outlived its server would say that it left, and be gone before that holds."""
        processes = [process for process in (self.corosync, self.server) if process is not None]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    require_corosync()
    network = Network(tmp_path / "hosts", len(NAMES), subnet=free_subnet())
    try:
        network.let_us_in()
        yield network
    finally:
        network.stop()


@pytest.fixture
def sites(network: Network, tmp_path: Path) -> Iterator[list[Site]]:
    written = tmp_path / "written"
    hosts = [f"{name}={network.address(number)}" for number, name in enumerate(NAMES, 1)]
    subprocess.run(
        helio("cluster", "init", *hosts, "--output", str(written)), check=True, env=CLEAN, cwd=ROOT
    )
    add = helio("user", "add", "ann", "--role", "admin", "--password-stdin", "--data", str(written))
    subprocess.run(add, check=True, env=CLEAN, cwd=ROOT, input=b"lamp\n")
    sites = [
        Site(host, name, written, tmp_path / name) for host, name in zip(network.hosts, NAMES, strict=True)
    ]
    try:
        # Each is tried, whether another is ready or not: at the very first start all must be there.
        until(lambda: sum(site.is_ready for site in sites) == len(sites), "the servers are ready", 40)
        yield sites
    finally:
        for site in sites:
            site.lose_power()
        print("\n".join(site.said[-2000:] for site in sites))


@pytest.mark.req("M2", "M9", "M16")
def test_messages_outlive_a_host_that_loses_power(network: Network, sites: list[Site]) -> None:
    async def story() -> None:
        url = f"helio://ann:lamp@{network.address(2)}:7700"
        other = f"helio://ann:lamp@{network.address(3)}:7700"
        async with connect(url) as connection, connect(other) as elsewhere:
            producer = await connection.producer("queue:orders")
            for number in range(100):
                await producer.send_confirmed(b"%d" % number)
            sites[0].lose_power()
            began = time.monotonic()
            await producer.send_confirmed(b"100")
            pause = time.monotonic() - began
            print(f"the next was confirmed after {pause:.2f} s")
            assert pause < PAUSE_SECONDS
            consumer = await (await elsewhere.session()).consumer("queue:orders")
            for number in range(101):
                message = await consumer.receive(timeout=60)
                assert message is not None
                assert message.body == b"%d" % number

    play(story())

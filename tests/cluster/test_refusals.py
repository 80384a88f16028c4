"""Nodes that do not belong, as real processes on a real corosync: none of them serves, and each says what to do."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.bus.corosync_settings import KEY_BYTES
from heliograph.cli.dev_hosts import Host, Network
from heliograph.nodes.configuration import toml_of
from heliograph.nodes.users import UserStore
from tests.cluster.hosts import ROOT, TOKEN_MS, one_host, require_corosync, until
from tests.servers import CLEAN

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.req("M14", "M16")]


class Node:
    """`helio serve` on a host."""

    def __init__(self, host: Host, folder: Path, number: int, **settings: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._said = folder / "said"
        self._ready = folder / "ready"
        self._ready.unlink(missing_ok=True)
        (folder / "node.toml").write_text(_text(folder, number, settings))
        command = [
            sys.executable,
            "-m",
            "heliograph.cli.main",
            "serve",
            "--config",
            str(folder / "node.toml"),
        ]
        command += ["--ready-file", str(self._ready)]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                host.inside(*command, folder=ROOT), env=CLEAN, stdout=said, stderr=said
            )

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.said
        return self._ready.exists()

    @property
    def url(self) -> str:
        return f"helio://{self._ready.read_text().strip()}"

    def refused(self) -> str:
        """It has ended by itself, with an exit code that says so."""
        assert self.process.wait(20) != 0
        assert not self._ready.exists()
        return self.said

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _text(folder: Path, number: int, settings: dict[str, object]) -> str:
    given: dict[str, object] = {
        "server.port": 0,
        "server.data": str(folder / "data"),
        "identity.node": number,
        "cluster.name": "here",
        "cluster.message_managers": 1,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    sections = dict.fromkeys(name.partition(".")[0] for name in given)
    return "".join(
        f"[{section}]\n"
        + "".join(
            f"{name.partition('.')[2]} = {toml_of(value)}\n"
            for name, value in given.items()
            if name.startswith(f"{section}.")
        )
        for section in sections
    )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    require_corosync()
    with one_host(tmp_path) as host:
        until(lambda: host.answers, "its corosync takes clients")
        yield host


def test_a_node_that_does_not_belong_ends_and_says_what_to_do(host: Host, tmp_path: Path) -> None:
    foreign = Node(host, tmp_path / "foreign", 9)
    until(lambda: foreign.is_ready, "a cluster of the same name, once")
    foreign.stop()
    first = Node(host, tmp_path / "first", 1)
    until(lambda: first.is_ready, "the cluster is there")
    try:
        other = Node(host, tmp_path / "differs", 2, sessions__lease_seconds=7.0).refused()
        assert "sessions.lease_seconds is 7.0 here and 60.0 there. Change them here" in other
        assert "[settings-differ]" in other

        said = Node(host, tmp_path / "foreign", 9).refused()
        assert "data is of another cluster that is called 'here' too" in said
        assert "give it an empty folder with --data" in said.replace("\n", " ")
        assert "[data-of-another-cluster]" in said

        said = Node(host, tmp_path / "foreign", 9, cluster__name="there").refused()
        assert "has data of cluster 'here'" in said
        assert "give it another folder with --data [data-of-another-cluster]" in said

        shutil.copytree(tmp_path / "foreign" / "data", tmp_path / "copied" / "data")
        said = Node(host, tmp_path / "copied", 3).refused()
        assert "has data of node 1.9, and this is node 1.3" in said
        assert "set identity.site and identity.node as they were [data-of-another-node]" in said
        assert first.is_ready
    finally:
        first.kill()


def test_a_node_with_a_stale_users_file_is_not_refused_but_gets_the_right_one(
    host: Host, tmp_path: Path
) -> None:
    stores = [UserStore.load(tmp_path / name / "data" / "users.toml") for name in ("first", "late")]
    for store in stores:
        store.add("ann", "lamp", ["admin"])
    stores[0].add("bob", "oil", [])
    nodes = [Node(host, tmp_path / "first", 1)]
    try:
        until(lambda: nodes[0].is_ready, "the cluster is there")
        nodes.append(Node(host, tmp_path / "late", 2, cluster__role="client-manager"))
        late = nodes[1]
        until(lambda: late.is_ready and "was of version 1" in late.said, "it says what it did")
        assert "the cluster has version 2, which is there now" in late.said
        assert "what was there is users.toml.previous" in late.said
        files = [tmp_path / name / "data" / "users.toml" for name in ("first", "late")]
        assert files[0].read_text() == files[1].read_text()
        assert "version = 1\n" in files[1].with_name("users.toml.previous").read_text()
    finally:
        for node in nodes:
            node.kill()


def test_a_node_whose_host_has_another_key_never_comes_in_and_says_what_to_compare(tmp_path: Path) -> None:
    require_corosync()
    network = Network(tmp_path / "hosts", 2, subnet=f"10.{os.getpid() % 200 + 20}.7")
    right, wrong = b"k" * KEY_BYTES, b"x" * KEY_BYTES
    nodes: list[Node] = []
    try:
        for host, key in zip(network.hosts, (right, wrong), strict=True):
            host.start(network.ring, key=key, token_ms=TOKEN_MS)
        for host in network.hosts:
            until(lambda host=host: host.answers, "its corosync takes clients")  # type: ignore[misc]
        roles = ("message-manager", "client-manager")
        nodes += [
            Node(host, tmp_path / role, number, cluster__role=role)
            for number, (host, role) in enumerate(zip(network.hosts, roles, strict=True), 1)
        ]
        inside, outside = nodes
        until(lambda: inside.is_ready, "the one with the right key leads")
        until(lambda: "the keys differ" in outside.said, "the other one says what to do")
        assert "configured with host1" in outside.said
        assert f"compare `sha256sum {network.hosts[1].folder / 'key'}` on every host" in outside.said
        assert not outside.is_ready

        network.hosts[1].kill_corosync()
        network.hosts[1].start(network.ring, key=right, token_ms=TOKEN_MS)
        until(lambda: outside.is_ready, "with the right key it comes in, without being started again")
    finally:
        for node in nodes:
            node.kill()
        network.stop()

"""`helio cluster init`: what it writes, and what it refuses."""

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heliograph.cli.main import app
from heliograph.nodes.configuration import load

pytestmark = pytest.mark.req("M16")
EXPECTED = (
    "cluster_name: shop",
    "token: 1500",
    "crypto_cipher: aes256",
    "crypto_hash: sha256",
    "keyfile: /etc/corosync/authkey",
    "window_size: 256",
    "ring0_addr: 10.0.0.3",
    "nodeid: 3",
)
HOSTS = ["north=10.0.0.1", "south=10.0.0.2", "west=10.0.0.3"]


def init(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["cluster", "init", *arguments, "--output", str(folder)])
    assert result.exit_code == 0, result.output
    return result.output


def refused(folder: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["cluster", "init", *arguments, "--output", str(folder)])
    assert result.exit_code != 0
    return result.output


def test_it_writes_a_configuration_for_all_hosts_and_a_key_that_only_its_owner_can_read(
    tmp_path: Path,
) -> None:
    told = init(tmp_path / "new", *HOSTS, "--name", "shop", "--token", "1500")
    text = (tmp_path / "new" / "corosync.conf").read_text()
    for expected in EXPECTED:
        assert expected in text
    assert "netmtu:" not in text
    key = tmp_path / "new" / "authkey"
    assert len(key.read_bytes()) == 256
    assert stat.S_IMODE(key.stat().st_mode) == 0o400
    assert all(f"root@{name}" in told for name in ("north", "south", "west"))


def test_a_host_may_be_on_two_networks(tmp_path: Path) -> None:
    init(tmp_path, "north=10.0.0.1,10.1.0.1", "south=10.0.0.2,10.1.0.2")
    assert "ring1_addr: 10.1.0.2" in (tmp_path / "corosync.conf").read_text()


@pytest.mark.req("M3")
def test_several_buses_have_a_corosync_each_on_which_a_host_has_the_same_number(tmp_path: Path) -> None:
    hosts = ["north=10.0.0.1,10.1.0.1", "south=10.0.0.2,10.1.0.2"]
    told = init(tmp_path, *hosts, "--bus", "east", "--bus", "west", "--name", "shop")
    first, second = (tmp_path / name for name in ("corosync.conf", "corosync-west.conf"))
    assert "ring0_addr: 10.0.0.2" in first.read_text()
    assert "10.1.0.2" not in first.read_text()
    assert "ring0_addr: 10.1.0.2" in second.read_text()
    assert second.read_text().index("nodeid: 2") < second.read_text().index("10.1.0.2")
    assert "NetworkNamespacePath=/run/netns/west" in (tmp_path / "corosync-west.service").read_text()
    assert "ip netns add west" in told
    cluster = load(tmp_path / "south.toml").cluster
    assert (cluster.buses, cluster.bus_namespaces) == ("east, west", "west=west")
    refusal = refused(tmp_path / "other", "north=10.0.0.1", "--bus", "east", "--bus", "west")
    assert "NAME=ADDRESS,ADDRESS" in " ".join(refusal.split())


def test_a_key_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    init(tmp_path, *HOSTS)
    key = (tmp_path / "authkey").read_bytes()
    assert "is there already" in refused(tmp_path, *HOSTS)
    assert (tmp_path / "authkey").read_bytes() == key


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [
        (["north", "north"], "given twice"),
        (["north=10.0.0.1", "south=10.0.0.1"], "given twice"),
        (["north=10.0.0.1,10.1.0.1", "south=10.0.0.2"], "an address on each network"),
        (["north=10.0.0.1 }"], "a host is written NAME"),
        (["north="], "a host is written NAME"),
    ],
)
def test_hosts_that_make_no_ring_are_refused(tmp_path: Path, hosts: list[str], sentence: str) -> None:
    assert sentence in " ".join(refused(tmp_path, *hosts).split())
    assert not (tmp_path / "authkey").exists()


def warned(folder: Path, *arguments: str) -> list[str]:
    """What it warns of, which is the same in words."""
    said = init(folder / "words", *arguments)
    warnings = json.loads(init(folder / "json", *arguments, "--json"))["warnings"]
    assert said.count("warning: ") == len(warnings)
    for warning in warnings:
        assert warning in said
    found: list[str] = warnings
    return found


@pytest.mark.req("P9")
@pytest.mark.parametrize(
    ("count", "sentences"),
    [
        (1, ["only h1 keeps messages", "clients come to h1 only"]),
        (2, ["two hosts with client managers: if the one that was there first is lost"]),
        (3, []),
        (4, ["4 hosts with client managers, an even number"]),
        (5, []),
        (6, ["6 hosts with client managers, an even number"]),
    ],
)
def test_it_warns_of_too_few_hosts_and_of_an_even_number(
    tmp_path: Path, count: int, sentences: list[str]
) -> None:
    warnings = warned(tmp_path, *[f"h{number}=10.0.0.{number}" for number in range(1, count + 1)])
    assert len(warnings) == len(sentences)
    for warning, sentence in zip(warnings, sentences, strict=True):
        assert sentence in warning
        assert "three" in warning


@pytest.mark.req("P9")
def test_it_warns_of_hosts_that_have_one_kind_of_node_only(tmp_path: Path) -> None:
    roles = ["--role", "south=client-manager", "--role", "west=message-manager"]
    warnings = warned(tmp_path, *HOSTS, "east=10.0.0.4", *roles)
    assert [warning.partition(":")[0] for warning in warnings] == [
        "no message manager is on south",
        "no client manager is on west",
    ]
    assert all("accepts no messages" in warning for warning in warnings)
    settings = {name: load(tmp_path / "words" / f"{name}.toml").cluster for name in ("south", "west", "east")}
    assert {name: each.role for name, each in settings.items()} == {
        "south": "client-manager",
        "west": "message-manager",
        "east": "both",
    }
    assert all(each.message_managers == 3 for each in settings.values())
    told = init(tmp_path / "told", *HOSTS, "east=10.0.0.4", *roles)
    assert "helio://10.0.0.1:7700,10.0.0.2:7700,10.0.0.4:7700" in told


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        (["nowhere=both"], "a role is written HOST=both|client-manager|message-manager"),
        (["south=manager"], "a role is written"),
        ([f"{name}=client-manager" for name in ("north", "south", "west")], "needs a message manager"),
        ([f"{name}=message-manager" for name in ("north", "south", "west")], "needs a client manager"),
    ],
)
def test_roles_that_make_no_cluster_are_refused(tmp_path: Path, roles: list[str], sentence: str) -> None:
    given = [word for role in roles for word in ("--role", role)]
    assert sentence in " ".join(refused(tmp_path, *HOSTS, *given).split())
    assert not (tmp_path / "authkey").exists()


@pytest.mark.skipif(shutil.which("corosync") is None, reason="there is no corosync here to ask")
def test_corosync_accepts_what_is_written(tmp_path: Path) -> None:
    init(tmp_path, "here=127.0.0.1", *HOSTS)
    configuration = tmp_path / "corosync.conf"
    text = configuration.read_text().replace("/etc/corosync/authkey", str(tmp_path / "authkey"))
    configuration.write_text(text)
    checked = subprocess.run(
        ["corosync", "-t", "-c", str(configuration)], capture_output=True, text=True, check=False, timeout=20
    )
    assert checked.returncode == 0, checked.stderr

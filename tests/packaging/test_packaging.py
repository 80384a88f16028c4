"""What is installed: wheel and sdist, the service, the container's start. The long one makes a fresh environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliograph.nodes.configuration import load

pytestmark = [pytest.mark.req("X5"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"


def run(*command: str, **options: Any) -> str:
    """What it said; it must end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return str(done.stdout)


def test_the_configuration_of_the_service_can_be_read() -> None:
    configuration = load(PACKAGING / "heliograph.toml")
    assert configuration.server.data == "/var/lib/heliograph"


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    text = (PACKAGING / "heliograph.service").read_text("utf-8")
    unit = tmp_path / "heliograph.service"
    unit.write_text(text.replace("/opt/heliograph/bin/helio", "/bin/true"), "utf-8")
    done = subprocess.run(
        [tool, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    about_it = [line for line in done.stderr.splitlines() if "heliograph.service" in line]
    assert about_it == []


@pytest.mark.parametrize("script", ["install.sh", "container-start.sh"])
def test_scripts_can_be_read_by_a_shell(script: str) -> None:
    run("sh", "-n", str(PACKAGING / script))


def test_the_nodes_of_the_compose_file_are_those_of_the_cluster() -> None:
    compose = yaml.safe_load((PACKAGING / "compose.yaml").read_text("utf-8"))
    services = compose["services"]
    hosts = dict(pair.split("=") for pair in services["cluster-files"]["environment"]["HELIO_HOSTS"].split())
    assert len(hosts) == 3
    for name, address in hosts.items():
        assert services[name]["environment"]["HELIO_NODE"] == name
        assert services[name]["networks"]["bus"]["ipv4_address"] == address
        assert {each.split(":")[0] for each in services[name]["volumes"]} == {"cluster", name}
        assert {"cluster", name} <= set(compose["volumes"])


def _helio_in(folder: Path) -> dict[str, str]:
    """An environment in which `helio` is this version."""
    tool = folder / "bin" / "helio"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m heliograph.cli.main "$@"\n', "utf-8")
    tool.chmod(0o755)
    # Not to become another user: that one would have no right to these folders.
    (folder / "bin" / "id").write_text("#!/bin/sh\necho 1000\n", "utf-8")
    (folder / "bin" / "id").chmod(0o755)
    return {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}


def test_a_container_wants_a_password_and_makes_its_user_once(tmp_path: Path) -> None:
    environment = {**_helio_in(tmp_path), "HELIO_DATA": str(tmp_path / "data")}
    start = ["sh", str(PACKAGING / "container-start.sh")]
    refused = subprocess.run(start, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert "set HELIO_ADMIN_PASSWORD" in refused.stderr
    environment |= {"HELIO_ADMIN_PASSWORD": "a long one", "HELIO_PORT": "0"}
    server = subprocess.Popen(
        start, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        said = next((line for line in server.stdout if "listens on" in line), "")
        assert "listens on helio://0.0.0.0:" in said
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    assert "admin" in (tmp_path / "data" / "users.toml").read_text("utf-8")
    assert (tmp_path / "data" / "users.toml").stat().st_mode & 0o077 == 0


def test_a_cluster_of_containers_gets_its_files_once(tmp_path: Path) -> None:
    environment = {
        **_helio_in(tmp_path),
        "HELIO_CLUSTER_FILES": str(tmp_path / "cluster"),
        "HELIO_HOSTS": "one=10.77.0.11 two=10.77.0.12",
        "HELIO_ADMIN_PASSWORD": "a long one",
    }
    start = ("sh", str(PACKAGING / "container-start.sh"), "make-cluster")
    run(*start, env=environment)
    key = (tmp_path / "cluster" / "authkey").read_bytes()
    run(*start, env=environment)
    assert (tmp_path / "cluster" / "authkey").read_bytes() == key
    assert {"corosync.conf", "one.toml", "two.toml", "users.toml"} <= set(os.listdir(tmp_path / "cluster"))


def test_data_of_another_version_is_left_alone(tmp_path: Path) -> None:
    journal = tmp_path / "data" / "journal"
    journal.mkdir(parents=True)
    written = "heliograph journal\nversion 99\nstore 0123\nmore\n"
    (journal / "FORMAT").write_text(written, "utf-8")
    environment = _helio_in(tmp_path)
    started = subprocess.run(
        ["helio", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert started.returncode == 2
    assert "version 99" in started.stderr
    assert "[journal-version]" in started.stderr
    assert "upgrading" in started.stderr
    assert (journal / "FORMAT").read_text("utf-8") == written


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_wheel_and_sdist_install_into_fresh_environments(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert "heliograph/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "simulation/"))]
    with tarfile.open(sdist) as archive:
        packed = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "packaging/install.sh",
        "deploy/grafana/heliograph.json",
        "benchmarks/results/latest.md",
        "mkdocs.yml",
        "docs/index.md",
        "README.md",
        "LICENSE",
    } <= packed

    prefix = tmp_path / "root"
    environment = {**os.environ, "PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)
    said = run(str(PACKAGING / "install.sh"), "--prefix", str(prefix), "--wheel", str(wheel), env=environment)
    assert "systemctl enable --now heliograph" in said
    for path in ("etc/heliograph/heliograph.toml", "usr/lib/systemd/system/heliograph.service"):
        assert (prefix / path).exists()
    assert (prefix / "var/lib/heliograph").stat().st_mode & 0o777 == 0o700
    helio = str(prefix / "opt/heliograph/bin/helio")
    ready = tmp_path / "ready"
    command = [helio, "serve", "--port", "0", "--data", str(prefix / "var/lib/heliograph")]
    server = subprocess.Popen(
        [*command, "--ready-file", str(ready)], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.05)
        environment["HELIO_URL"] = f"helio://{ready.read_text('utf-8').strip()}"
        run(helio, "send", "queue:hello", "Hello, world", env=environment)
        assert "Hello, world" in run(helio, "receive", "queue:hello", "--bodies-only", env=environment)
    finally:
        server.terminate()
        assert server.wait(30) == 0

    # The fixtures for pytest are found by themselves.
    python = str(prefix / "opt/heliograph/bin/python")
    run(python, "-m", "pip", "install", "--quiet", "pytest", env=environment)
    (tmp_path / "test_it.py").write_text(
        "def test_it(heliograph_server): assert heliograph_server.port\n", "utf-8"
    )
    assert "1 passed" in run(python, "-m", "pytest", "-q", str(tmp_path / "test_it.py"), env=environment)

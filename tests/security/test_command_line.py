"""TLS and certificates at the command line: `helio serve` with a certificate, SIGHUP, and commands that trust
it or not."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.authority import Authority, Certificate, needs_openssl
from tests.servers import CLEAN, ROOT, ServerProcess, play, until

pytestmark = [pytest.mark.req("X2", "X4"), needs_openssl]


def test_from_the_first_user_to_a_new_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    live = tmp_path / "live"
    live.mkdir()

    def install(certificate: Certificate) -> None:
        shutil.copy(certificate.key, live / "key.pem")
        os.chmod(live / "key.pem", 0o600)
        shutil.copy(certificate.cert, live / "cert.pem")

    async def helio(
        *arguments: str, code: int = 0, told: str = "", given: Mapping[str, str] | None = None
    ) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "heliograph.cli.main", *arguments],
            cwd=ROOT,
            env={**CLEAN, **(given or {})},
            input=told,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    async def story() -> None:
        install(authority.issue("first"))
        device = authority.issue("device")
        settings = {
            "tls.certificate": str(live / "cert.pem"),
            "tls.key": str(live / "key.pem"),
            "tls.clients": "wanted",
            "tls.client_authority": authority.ca,
            "tls.required": True,
        }
        async with ServerProcess(tmp_path, settings) as server:
            await server.terminate()
            data = str(server.data)
            await helio(
                "user", "add", "ann", "--role", "admin", "--password-stdin", "--data", data, told="secret\n"
            )
            await helio("user", "add", "device", "--role", "admin", "--no-password", "--data", data)
            await server.start()
            url = f"helio://127.0.0.1:{server.port}"
            ann = {"HELIO_URL": url, "HELIO_USER": "ann", "HELIO_PASSWORD": "secret"}
            # Trusted, by option, by the environment, in the URL; and by a certificate instead of a password.
            await helio("send", "queue:q", "one", "--ca", authority.ca, given=ann)
            await helio("send", "queue:q", "two", given={**ann, "HELIO_CA": authority.ca})
            own = f"?ca={authority.ca}&cert={device.cert}&key={device.key}"
            await helio("send", "queue:q", "three", "--url", url.replace("helio:", "helios:") + own)
            received = await helio(
                "receive", "queue:q", "--count", "3", "--bodies-only", "--ca", authority.ca, given=ann
            )
            assert received.split()[:3] == ["one", "two", "three"]
            # Not trusted, not encrypted.
            said = await helio("send", "queue:q", "x", "--tls", code=3, given=ann)
            assert "--ca FILE" in said
            assert "[certificate-refused]" in said
            assert "[tls-needed]" in await helio("send", "queue:q", "x", code=2, given=ann)
            # A new one, at SIGHUP and at a command.
            install(authority.issue("second"))
            os.kill(server.pid, signal.SIGHUP)
            log = server.data / "log" / "events.jsonl"
            await until(lambda: '"subject":"second"' in log.read_text(), "the new certificate is used")
            install(authority.issue("third"))
            shown = await helio("admin", "reload-certificates", "--ca", authority.ca, given=ann)
            assert "the certificate of third is used, until" in shown
            install(authority.issue("late", expired=True))
            os.kill(server.pid, signal.SIGHUP)
            await until(lambda: "has expired" in server.errors, "it says why it does not take it")
            assert server.is_running
            await helio("send", "queue:q", "still there", "--ca", authority.ca, given=ann)

    play(story())


def test_a_server_that_others_could_reach_does_not_start_without_users(tmp_path: Path) -> None:
    """X2: no default password, and a first start that says what to do."""
    where = ["--host", "0.0.0.0", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, "-m", "heliograph.cli.main", "serve", *where],
        cwd=ROOT,
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "[open-server-refused]" in done.stderr
    assert "helio user add NAME --role admin" in done.stderr

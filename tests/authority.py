"""An authority for tests: certificates that are good, expired, another's or revoked, made with the `openssl`
command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

needs_openssl = pytest.mark.debian({"openssl": "openssl"})

_CONFIGURATION = """
[ca]
default_ca = ours
[ours]
dir = .
database = index.txt
serial = serial
crlnumber = crlnumber
certificate = ca.pem
private_key = ca.key
default_md = sha256
default_crl_days = 30
policy = any
new_certs_dir = .
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""


class Certificate(NamedTuple):
    """Files in PEM."""

    cert: str
    key: str


class Authority:
    """Signs, and revokes."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = str(folder / "ca.pem")
        self.crl = str(folder / "crl.pem")
        (folder / "openssl.cnf").write_text(_CONFIGURATION)
        (folder / "index.txt").touch()
        (folder / "serial").write_text("01\n")
        (folder / "crlnumber").write_text("01\n")
        self._run(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
            "-subj", f"/CN={name}", "-keyout", "ca.key", "-out", "ca.pem",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
        self.publish()

    def issue(
        self, name: str, *, host: str = "127.0.0.1", days: int = 10, expired: bool = False
    ) -> Certificate:
        """A certificate with this common name, for an address or several with commas between them."""
        stem = name.replace(" ", "-")
        names = ",".join(f"{'IP' if each[0].isdigit() else 'DNS'}:{each}" for each in host.split(","))
        self._run(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={names}", "-keyout", f"{stem}.key", "-out", f"{stem}.csr",
        )  # fmt: skip
        dates = (
            ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
            if expired
            else ["-days", str(days)]
        )
        self._run("ca", "-batch", "-notext", *dates, "-in", f"{stem}.csr", "-out", f"{stem}.pem")
        os.chmod(self.folder / f"{stem}.key", 0o600)
        return Certificate(str(self.folder / f"{stem}.pem"), str(self.folder / f"{stem}.key"))

    def revoke(self, certificate: Certificate) -> None:
        """It is in the list that is published next."""
        self._run("ca", "-revoke", certificate.cert)

    def publish(self) -> None:
        """Write the list of what was revoked."""
        self._run("ca", "-gencrl", "-out", "crl.pem")

    def _run(self, *arguments: str) -> None:
        command = ["openssl", *arguments]
        if arguments[0] in ("ca", "req"):
            command += ["-config", "openssl.cnf"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

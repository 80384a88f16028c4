"""The server's certificate and whom it trusts: read when it starts, and again when the files change or
somebody says so.

What is new is looked at before it is used: a certificate that has expired, or that does not fit its key, is
not taken, and what held before goes on. Connections that there are keep what they began with.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, Final

from heliograph.model.errors import ClientFault
from heliograph.nodes.configuration import TlsSettings
from heliograph.nodes.event_log import Record, ignore
from heliograph.security.certificates import why_refused

INVALID: Final = "certificate-invalid"
_SOON_SECONDS: Final = 21 * 86400


class Certificates:
    """Of one server."""

    def __init__(self, settings: TlsSettings, record: Record = ignore) -> None:
        """Raises ClientFault `certificate-invalid`, saying what is wrong with which file."""
        self._settings = settings
        self._record = record
        self._seen = self._look()
        self._has_warned = False
        self.context, self._facts = load(settings)

    @property
    def facts(self) -> dict[str, Any]:
        """For whoever asks which certificate is used: subject, names and until when it is good."""
        return self._facts

    def reload(self) -> dict[str, Any]:
        """Raises ClientFault, and everything is as it was."""
        self._seen = self._look()
        try:
            self.context, self._facts = load(self._settings)
        except ClientFault as fault:
            self._record("certificate-not-taken", sentence=fault.sentence)
            raise
        self._has_warned = False
        self._record("certificate-taken", **self._facts)
        return self._facts

    def look_again(self, now: float) -> None:
        """Take what has changed, if it is good; and say in time that it will not be for long."""
        if self._look() != self._seen:
            try:
                self.reload()
            except ClientFault:
                return  # it was recorded
        left = ssl.cert_time_to_seconds(self._facts["until"]) - now
        if left < _SOON_SECONDS and not self._has_warned:
            self._has_warned = True
            self._record("certificate-expires-soon", until=self._facts["until"], days=int(left // 86400))

    def _look(self) -> list[tuple[str, int, int]]:
        seen = []
        settings = self._settings
        for path in (settings.certificate, settings.key, settings.client_authority, settings.revoked):
            try:
                found = os.stat(path) if path else None
            except OSError:
                found = None
            seen.append((path, found.st_mtime_ns if found else 0, found.st_ino if found else 0))
        return seen


def load(settings: TlsSettings) -> tuple[ssl.SSLContext, dict[str, Any]]:
    """Raises ClientFault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if settings.minimum == "1.3" else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load_own(context, settings)
    if settings.clients != "ignored":
        if not settings.client_authority:
            raise ClientFault(
                f"tls.clients is {settings.clients!r}: name who signs their certificates in tls.client_authority",
                code=INVALID,
            )
        _load(context, settings.client_authority, "tls.client_authority", "certificates of authorities")
        context.verify_mode = ssl.CERT_REQUIRED if settings.clients == "needed" else ssl.CERT_OPTIONAL
    if settings.revoked:
        _load(context, settings.revoked, "tls.revoked", "revocation lists")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context, _inspect(context, settings)


def _load_own(context: ssl.SSLContext, settings: TlsSettings) -> None:
    key = settings.key or settings.certificate
    try:
        if os.stat(key).st_mode & 0o007:
            raise ClientFault(f"everybody can read the key: run `chmod 600 {key}`", code="key-exposed")
        # An encrypted key would ask at the terminal, where nobody is.
        context.load_cert_chain(settings.certificate, settings.key or None, password=lambda: "")
    except ssl.SSLError as fault:
        raise ClientFault(
            f"tls.certificate and tls.key do not go together, or are no PEM ({fault.reason or fault}): the first is a"
            f" certificate with those that signed it behind it ({settings.certificate}), the second its key, without"
            f" a password ({key})",
            code=INVALID,
        ) from None
    except OSError as fault:
        raise ClientFault(f"{fault.filename or key} cannot be read: {fault.strerror}", code=INVALID) from None


def _load(context: ssl.SSLContext, path: str, setting: str, what: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as fault:
        raise ClientFault(
            f"{setting} does not have {what} in PEM ({fault.reason or fault}): {path}", code=INVALID
        ) from None
    except OSError as fault:
        raise ClientFault(f"{setting} cannot be read: {path}: {fault.strerror}", code=INVALID) from None


def _inspect(context: ssl.SSLContext, settings: TlsSettings) -> dict[str, Any]:
    """What a client would see, which here trusts the certificate itself: so what is wrong with it is found now."""
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname = False
    looking.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    _load(looking, settings.certificate, "tls.certificate", "a certificate")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_own(serving, settings)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = looking.wrap_bio(to_client, to_server)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    try:
        for end in (client, server, client):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as fault:
        sentence = why_refused(fault.verify_code, fault.verify_message, "server")
        raise ClientFault(f"{settings.certificate}: {sentence}", code=INVALID) from None
    seen: dict[str, Any] = client.getpeercert() or {}
    subject = {key: value for part in seen.get("subject", ()) for key, value in part}
    names = [value for kind, value in seen.get("subjectAltName", ())]
    return {
        "subject": subject.get("commonName", ""),
        "names": ", ".join(names),
        "until": seen.get("notAfter", ""),
    }

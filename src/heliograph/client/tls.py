"""TLS as a client uses it: whom it trusts, which certificate it shows, and what went wrong, in words."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from heliograph.model.errors import ClientFault, ConnectionLost, HeliographError
from heliograph.security.certificates import is_about_own_certificate, what_alert_means, why_refused

CHOICES = ("ca", "cert", "key", "crl")
"""What can be said about TLS: files in PEM. `ca`: who may have signed the server's certificate, if not those whom the
system trusts. `cert` and `key`: what is shown to the server. `crl`: lists of revoked certificates."""


def make_context(files: Mapping[str, str]) -> ssl.SSLContext:
    """Raises ClientFault `certificate-invalid`, naming the file."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.get("ca"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(lambda: context.load_verify_locations(files["ca"]), files["ca"], "certificates of authorities")
    if files.get("crl"):
        _load(lambda: context.load_verify_locations(files["crl"]), files["crl"], "revocation lists")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if files.get("cert"):
        key = files.get("key") or None
        what = "a certificate and its key" if key is None else f"a certificate to which the key {key} belongs"
        _load(lambda: context.load_cert_chain(files["cert"], key), files["cert"], what)
    elif files.get("key"):
        raise ClientFault("a key goes with a certificate: name that, too", code="certificate-invalid")
    return context


def _load(load: object, path: str, what: str) -> None:
    assert callable(load)
    try:
        load()
    except ssl.SSLError as fault:
        raise ClientFault(
            f"{path} does not have {what} in PEM ({fault.reason or fault})", code="certificate-invalid"
        ) from None
    except OSError as fault:
        raise ClientFault(f"{path} cannot be read: {fault.strerror}", code="certificate-invalid") from None


def explained(name: str, fault: ssl.SSLError) -> HeliographError:
    """What became of TLS with the server of this name."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        sentence = why_refused(fault.verify_code, fault.verify_message, "server")
        return ConnectionLost(f"{name}: {sentence}", code="certificate-refused")
    reason = str(fault.reason or fault)
    sentence = what_alert_means(reason)
    if sentence and is_about_own_certificate(reason):
        return ConnectionLost(f"{name}: {sentence}", code="own-certificate-refused")
    return ConnectionLost(f"{name}: {sentence or f'TLS failed ({reason})'}", code="tls-failed")

"""Why a certificate was refused, and what to do about it: in words, for whoever meets it, at both ends.

Verification has numbers (X509_V_ERR_… of OpenSSL); an end that is refused by the other hears only an alert of TLS.
"""

from __future__ import annotations

from typing import Final, Literal

Whose = Literal["server", "client"]

_ISSUERS: Final = (2, 18, 19, 20, 21)
_RENEW: Final = {
    "server": "its operator has to renew it (tls.certificate); it takes effect without a restart",
    "client": "renew it and name the new one with --cert",
}
_TRUST: Final = {
    "server": "name the authority that did with --ca FILE, or ?ca=FILE in the URL",
    "client": "have one signed by an authority that is in the server's tls.client_authority",
}


def why_refused(number: int, message: str, whose: Whose) -> str:
    """Of a certificate that did not pass verification."""
    certificate = f"the {whose}'s certificate"
    if number in _ISSUERS:
        return f"nobody who is trusted here has signed {certificate}: {_TRUST[whose]}"
    match number:
        case 10:
            return f"{certificate} has expired: {_RENEW[whose]}"
        case 9:
            return f"{certificate} is not valid yet: compare the clocks of both machines, or {_RENEW[whose]}"
        case 23:
            return f"{certificate} was revoked: do not use it any more; {_RENEW[whose]}"
        case 62 | 64:
            return (
                f"{certificate} is another's ({message.rstrip('.')}): connect by a name that it has, or have one made"
                " for this name"
            )
        case 3:
            return f"there is no revocation list of whoever issued {certificate}: put it into the file with the lists"
        case 12:
            return "the revocation list is out of date: get a new one from the authority"
        case 26:
            return f"{certificate} was not made for a {whose}: get one that is"
    return f"{certificate} is refused: {message.rstrip('.')}"


_ALERTS: Final = (
    ("CERTIFICATE_EXPIRED", f"this client's certificate has expired: {_RENEW['client']}"),
    ("CERTIFICATE_REVOKED", f"this client's certificate was revoked: {_RENEW['client']}"),
    (
        "CERTIFICATE_REQUIRED",
        "the server wants a certificate: name one with --cert and --key, or ?cert=FILE&key=FILE in the URL",
    ),
    ("UNKNOWN_CA", f"the server trusts nobody who has signed this client's certificate: {_TRUST['client']}"),
    ("BAD_CERTIFICATE", "the server refuses this client's certificate: ask its operator why; its log says"),
    (
        "CERTIFICATE_UNKNOWN",
        "the server refuses this client's certificate: ask its operator why; its log says",
    ),
    ("UNSUPPORTED_CERTIFICATE", "this client's certificate was not made for a client: get one that is"),
    (
        "HANDSHAKE_FAILURE",
        "the server has no certificate, or wants one from you: connect without TLS (helio://), or with --cert and"
        " --key",
    ),
    (
        "WRONG_VERSION_NUMBER",
        "that is no server that speaks TLS: connect without it (helio://), or check the port",
    ),
    ("PROTOCOL_VERSION", "server and client have no version of TLS in common: use newer software at one end"),
)


def what_alert_means(reason: str) -> str:
    """Of a connection that the other end refused; `reason` is OpenSSL's word for it. Empty: nothing in particular."""
    return next((sentence for word, sentence in _ALERTS if word in reason), "")


_OWN_CERTIFICATE: Final = ("CERTIFICATE", "UNKNOWN_CA")


def is_about_own_certificate(reason: str) -> bool:
    """Whether the other end did not like ours."""
    return any(word in reason for word in _OWN_CERTIFICATE)

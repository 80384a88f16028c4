"""SCRAM-SHA-256 as its standards have it, what must be refused, and somebody else's library at the other end."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as some

from heliograph.model.errors import HeliographError, NotAuthenticated, ProtocolFault
from heliograph.security import scram
from heliograph.security.sasl import (
    EXTERNAL,
    PLAIN,
    SCRAM,
    WRONG,
    Challenge,
    Channel,
    CheckPassword,
    Proof,
    Proved,
    Refused,
    offered,
    plain_message,
)
from heliograph.security.saslprep import prepared

pytestmark = pytest.mark.req("X2")

# RFC 7677, section 3.
_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
_NONCE = _CLIENT_NONCE + _SERVER_NONCE
_FIRST = f"n,,n=user,r={_CLIENT_NONCE}".encode()
_CHALLENGE = f"r={_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
_PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
_FINAL = f"c=biws,r={_NONCE},p={_PROOF}".encode()
_SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
_KEYS = scram.keys_of("pencil", _SALT, 4096)
_OPEN = Channel(False)
_PRIVATE = Channel(True)


def _keys(name: str) -> scram.Keys:
    return _KEYS if name == "user" else scram.decoy(b"secret", name)


def _proof(channel: Channel = _OPEN, nonce: str = _SERVER_NONCE) -> Proof:
    return Proof(channel, keys=_keys, nonce=nonce)


def test_the_example_of_the_standard() -> None:
    proof = _proof()
    assert proof.begin(SCRAM, _FIRST) == Challenge(_CHALLENGE)
    assert proof.respond(_FINAL) == Proved("user", _SIGNATURE)

    client = scram.Client("user", "pencil", _CLIENT_NONCE)
    assert client.first == _FIRST
    assert client.challenged(_CHALLENGE) == (_SALT, 4096)
    assert client.final(scram.stretched("pencil", _SALT, 4096)) == _FINAL
    client.check(_SIGNATURE)


def test_a_mechanism_without_a_first_word_is_asked_for_it() -> None:
    proof = _proof()
    assert proof.begin(SCRAM) == Challenge(b"")
    assert proof.respond(_FIRST) == Challenge(_CHALLENGE)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=user",
        b"n,,n=user,",
        b"n,,n=user,r=",
        b"n,,n=,r=abc",
        b"n,,r=abc,n=user",
        b"n,,m=extension,n=user,r=abc",
        b"n,,n=user,r=abc,m=extension",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2cer,r=abc",
        b"n,,n=user,r=a bc",
        b"n,,n=user,r=\xc3\xa4",
        b"n,,n=us\x07er,r=abc",
        b"n,,n=us\x00er,r=abc",
        b"n,,n=\xff,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"p=tls-exporter,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b",,n=user,r=abc",
        b"n,a=,n=user,r=abc",
        b"n,,n=user,r=" + b"x" * 3000,
    ],
)
def test_a_first_message_that_is_not_one(first: bytes) -> None:
    refused = _proof().begin(SCRAM, first)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ProtocolFault)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        f"c=biws,r={_NONCE}".encode(),
        f"r={_NONCE},p={_PROOF}".encode(),
        f"c=biws,p={_PROOF}".encode(),
        f"c=biws,r={_CLIENT_NONCE},p={_PROOF}".encode(),
        f"c=biws,r={_NONCE}x,p={_PROOF}".encode(),
        f"c=biws,r={_SERVER_NONCE},p={_PROOF}".encode(),
        f"c=eSws,r={_NONCE},p={_PROOF}".encode(),  # the beginning said n, the end says y
        f"c=cD10bHMtdW5pcXVlLCw=,r={_NONCE},p={_PROOF}".encode(),
        f"c=!!,r={_NONCE},p={_PROOF}".encode(),
        f"c=biws,r={_NONCE},p={_PROOF[:-4]}".encode(),
        f"c=biws,r={_NONCE},p=".encode(),
        f"c=biws,r={_NONCE},m=x,p={_PROOF}".encode(),
        f"c=biws,r={_NONCE},p={_PROOF},x=y".encode(),
        _FINAL[:-9],
    ],
)
def test_a_last_message_that_is_not_one(final: bytes) -> None:
    proof = _proof()
    proof.begin(SCRAM, _FIRST)
    refused = proof.respond(final)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ProtocolFault)
    again = proof.respond(_FINAL)
    assert isinstance(again, Refused), "there is no second try"


def _last(bound: str) -> bytes:
    """A last message that is bound to a beginning, with its proof, as RFC 5802 has it in section 3."""
    salted = scram.stretched("pencil", _SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c={base64.b64encode(bound.encode()).decode()},r={_NONCE}"
    said = f"n=user,r={_CLIENT_NONCE},{_CHALLENGE.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("began", "ended", "is_let_in"),
    [
        ("n,,", "n,,", True),
        (
            "y,,",
            "y,,",
            True,
        ),  # it could bind itself to the channel, and believes that the server cannot: so it is
        ("y,,", "n,,", False),  # somebody between them changed what was said
        ("n,,", "y,,", False),
        ("n,a=user,", "n,,", False),
        ("n,,", "p=tls-unique,,", False),
    ],
)
def test_a_good_proof_of_another_beginning_proves_nothing(began: str, ended: str, is_let_in: bool) -> None:
    proof = _proof()
    assert isinstance(proof.begin(SCRAM, f"{began}n=user,r={_CLIENT_NONCE}".encode()), Challenge)
    outcome = proof.respond(_last(ended))
    assert isinstance(outcome, Proved if is_let_in else Refused)


def test_a_wrong_proof_and_an_unknown_user_hear_the_same() -> None:
    told = []
    for name in ("user", "nobody"):
        client = scram.Client(name, "pencil" if name == "nobody" else "pen", _CLIENT_NONCE)
        proof = _proof()
        challenge = proof.begin(SCRAM, client.first)
        assert isinstance(challenge, Challenge)
        salt, rounds = client.challenged(challenge.data)
        assert len(salt) == scram.SALT_BYTES
        refused = proof.respond(client.final(scram.stretched(client.password, salt, rounds)))
        assert isinstance(refused, Refused)
        told.append((type(refused.error), refused.error.code, refused.error.sentence))
    assert told == [(NotAuthenticated, "not-authenticated", WRONG)] * 2


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    assert scram.decoy(b"secret", "ann") == scram.decoy(b"secret", "ann")
    assert scram.decoy(b"secret", "ann").salt != scram.decoy(b"secret", "bob").salt
    assert scram.decoy(b"secret", "ann").salt != scram.decoy(b"other", "ann").salt


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=QSXCR+Q6sek8bf92QSXCRw==,i=4096",
        b"r=nonce,s=QSXCR+Q6sek8bf92QSXCRw==,i=4096",  # nothing of the server's own
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=1",  # fewer rounds: somebody wants to guess the password
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=999999999",
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=-4096",
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=10000001",
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=0000409600000",  # its beginning is sound, all of it takes minutes
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=000040960" + b"0" * 1000,
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=04096",
        b"r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=4096000000",
        "r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=\u0664\u0660\u0669\u0666".encode(),
        b"r=nonceX,s=!,i=4096",
        b"m=x,r=nonceX,s=QSXCR+Q6sek8bf92QSXCRw==,i=4096",
        b"e=other-error",
    ],
)
def test_a_server_that_cannot_be_trusted_gets_no_proof(challenge: bytes) -> None:
    client = scram.Client("user", "pencil", "nonce")
    with pytest.raises(ProtocolFault):
        client.challenged(challenge)


@pytest.mark.parametrize(
    "signature", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", _SIGNATURE[:-8] + b"AAAAAAA="]
)
def test_a_server_that_does_not_know_the_password_is_found_out(signature: bytes) -> None:
    client = scram.Client("user", "pencil", _CLIENT_NONCE)
    client.challenged(_CHALLENGE)
    client.final(scram.stretched("pencil", _SALT, 4096))
    with pytest.raises(HeliographError):
        client.check(signature)


def test_whoever_asks_for_another_name_than_it_proves_is_refused() -> None:
    refused = _proof().begin(SCRAM, f"n,a=admin,n=user,r={_CLIENT_NONCE}".encode())
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, NotAuthenticated)
    assert isinstance(_proof().begin(SCRAM, f"n,a=user,n=user,r={_CLIENT_NONCE}".encode()), Challenge)


# ---- a library that nobody here wrote


@pytest.mark.parametrize(
    ("user", "password"), [("user", "pencil"), ("a=b,c", "p,=w"), ("Jürgen", "Ⅸ\u00adgeheim")]
)
def test_our_server_and_another_client(user: str, password: str) -> None:
    keys = scram.keys_of(password, _SALT, 4096)
    other = scramp.ScramClient(["SCRAM-SHA-256"], user, password)
    ours = Proof(_OPEN, keys=lambda _: keys, nonce="of-the-server")
    challenge = ours.begin(SCRAM, other.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    other.set_server_first(challenge.data.decode())
    proved = ours.respond(other.get_client_final().encode())
    assert isinstance(proved, Proved)
    assert proved.user == prepared(user)
    other.set_server_final(proved.data.decode())


@pytest.mark.parametrize(
    ("user", "password"), [("user", "pencil"), ("a=b,c", "p,=w"), ("Jürgen", "Ⅸ\u00adgeheim")]
)
def test_our_client_and_another_server(user: str, password: str) -> None:
    mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
    salt, stored, server, rounds = mechanism.make_auth_info(password, iteration_count=4096)
    other = mechanism.make_server(lambda _: (salt, stored, server, rounds))
    ours = scram.Client(user, password, "of-the-client")
    other.set_client_first(ours.first.decode())
    salt, rounds = ours.challenged(other.get_server_first().encode())
    other.set_client_final(ours.final(scram.stretched(password, salt, rounds)).decode())
    ours.check(other.get_server_final().encode())


# ---- the other mechanisms


def test_a_password_as_it_is_only_where_nobody_listens() -> None:
    refused = _proof().begin(PLAIN, plain_message("user", "pencil"))
    assert isinstance(refused, Refused)
    assert refused.error.code == "plain-refused"
    assert "TLS" in refused.error.sentence
    proof = _proof(_PRIVATE)
    assert proof.begin(PLAIN, plain_message("user", "pencil")) == CheckPassword("user", "pencil")
    assert proof.password_checked(True) == Proved("user")
    wrong = _proof(_PRIVATE)
    wrong.begin(PLAIN, plain_message("user", "pen"))
    refused = wrong.password_checked(False)
    assert isinstance(refused, Refused)
    assert refused.error.sentence == WRONG


@pytest.mark.parametrize("message", [b"", b"user", b"\0user", b"\0a\0b\0c", b"\0user\0" + b"x" * 5000])
def test_a_plain_message_that_is_not_one(message: bytes) -> None:
    assert isinstance(_proof(_PRIVATE).begin(PLAIN, message), Refused)


def test_a_certificate_says_who_it_is() -> None:
    ann = Channel(True, "ann")
    assert _proof(ann).begin(EXTERNAL, b"") == Proved("ann")
    assert _proof(ann).begin(EXTERNAL, b"ann") == Proved("ann")
    assert isinstance(_proof(ann).begin(EXTERNAL, b"bob"), Refused)
    refused = _proof(_PRIVATE).begin(EXTERNAL, b"ann")
    assert isinstance(refused, Refused)
    assert refused.error.code == "certificate-missing"


def test_what_is_offered() -> None:
    assert offered(_OPEN, has_users=True) == [SCRAM]
    assert offered(_PRIVATE, has_users=True) == [SCRAM, PLAIN]
    assert offered(Channel(True, "ann"), has_users=True) == [EXTERNAL, SCRAM, PLAIN]
    refused = _proof().begin("DIGEST-MD5", b"")
    assert isinstance(refused, Refused)
    assert refused.error.code == "mechanism-unknown"


# ---- whatever comes


@given(some.binary(max_size=200), some.binary(max_size=200))
def test_nothing_makes_an_exception_leave(first: bytes, second: bytes) -> None:
    for mechanism in (PLAIN, SCRAM, EXTERNAL, "OTHER"):
        proof = _proof(Channel(True, "ann"))
        proof.begin(mechanism, first)
        proof.respond(second)
    proof = _proof()
    proof.begin(SCRAM, _FIRST)
    assert isinstance(proof.respond(second), Refused)


def test_keys_as_text() -> None:
    assert scram.Keys.parse(_KEYS.text) == _KEYS
    assert (
        _KEYS.stored_key
        == hashlib.sha256(
            hmac.digest(scram.stretched("pencil", _SALT, 4096), b"Client Key", "sha256")
        ).digest()
    )
    for wrong in (
        "",
        "x",
        _KEYS.text.replace("4096", "1"),
        _KEYS.text[:-5],
        _KEYS.text.replace("256", "512"),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - whichever part of it is wrong
            scram.Keys.parse(wrong)


def test_names_that_look_the_same_are_the_same() -> None:
    assert prepared("I\u00adX") == "IX"  # RFC 4013, section 3
    assert prepared("\u00aa") == "a"
    assert prepared("\u2168") == "IX"
    for wrong in ("\u0007", "\u0627\u0031"):
        with pytest.raises(ValueError, match="it "):
            prepared(wrong)

"""Every error that Heliograph raises, sorted by who must act.

    HeliographError
    ├── ClientFault          the peer broke a rule: tell it exactly how, keep serving the others
    │   ├── ProtocolFault        the bytes are not our protocol
    │   ├── NotAuthenticated     who are you?
    │   ├── NotAllowed           you may not
    │   └── InvalidName          a destination that cannot be
    ├── Unavailable          the world failed us: retry, fail over, or push back
    │   ├── StorageFull          no room on the disk
    │   ├── TransactionRolledBack    nothing of it happened: do it again
    │   ├── OrderBroken          it could only go where its order would be lost: nothing was sent
    │   ├── NotKnownToAll        nodes of an earlier version would not understand it: nothing was said
    │   └── ConnectionLost       the other end is gone
    └── CorruptJournal       stored bytes disagree with themselves: stop this node, say where

Each error carries a stable `code` (documented in docs/reference/errors.md) and a sentence for a person. A
bug is none of these: it is an `assert`.
"""

from __future__ import annotations

from typing import Final


class HeliographError(Exception):
    """The root of all errors a caller can meet."""

    default_code = "error"

    def __init__(self, sentence: str, *, code: str | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"{self.sentence} [{self.code}]"


class ClientFault(HeliographError):
    """The peer broke a rule."""

    default_code = "client-fault"


class ProtocolFault(ClientFault):
    """The bytes that arrived are not the protocol that was agreed on."""

    default_code = "protocol-fault"


class NotAuthenticated(ClientFault):
    """The peer has not said who it is, or could not prove it."""

    default_code = "not-authenticated"


class NotAllowed(ClientFault):
    """The user has no right to do this here."""

    default_code = "not-allowed"


class InvalidName(ClientFault):
    """A destination name that cannot be used."""

    default_code = "invalid-name"


class Unavailable(HeliographError):
    """The world failed us; trying again later may work."""

    default_code = "unavailable"


NO_ROOM: Final = "the disk, or the quota on it, is full"


class StorageFull(Unavailable):
    """The disk, or the quota on it, is full: nothing was stored."""

    default_code = "storage-full"


class TransactionRolledBack(Unavailable):
    """Nothing since the last commit took effect: it has to be done again."""

    default_code = "transaction-rolled-back"


class OrderBroken(Unavailable):
    """The one place that keeps the message's order cannot be used now. Nothing was sent."""

    default_code = "order-broken"


class NotKnownToAll(Unavailable):
    """Nodes of an earlier version are in the cluster, and do not know what was to be said. Nothing was."""

    default_code = "cluster-not-upgraded"


class ConnectionLost(Unavailable):
    """The connection is gone and was not, or could not be, made again."""

    default_code = "connection-lost"


class CorruptJournal(HeliographError):
    """Stored bytes disagree with themselves. The node stops rather than guess."""

    default_code = "corrupt-journal"

    def __init__(self, sentence: str, *, path: str, position: int) -> None:
        super().__init__(f"{sentence} ({path}, byte {position})")
        self.path = path
        self.position = position


_BY_CODE: dict[str, type[HeliographError]] = {
    kind.default_code: kind
    for kind in (
        ClientFault,
        ProtocolFault,
        NotAuthenticated,
        NotAllowed,
        InvalidName,
        Unavailable,
        StorageFull,
        TransactionRolledBack,
        OrderBroken,
        NotKnownToAll,
        ConnectionLost,
    )
}

# Finer codes, by the kind of error that carries them.
_FINER: dict[type[HeliographError], tuple[str, ...]] = {
    InvalidName: (
        "invalid-destination",
        "name-empty",
        "name-too-long",
        "name-reserved",
        "name-unprintable",
    ),
    ProtocolFault: (
        "not-heliograph",
        "not-greeted",
        "greeted-twice",
        "version-unknown",
        "frame-malformed",
        "frame-unknown",
        "frame-too-long",
        "control-malformed",
        "control-too-long",
        "bus-command-unknown",
        "bus-frame-damaged",
        "bus-frame-foreign",
        "bus-frame-malformed",
        "bus-version-unknown",
        "protocol-unknown",
        "tls-unknown",
        "tls-needed",
        "sasl-malformed",
    ),
    NotAuthenticated: (
        "mechanism-unknown",
        "plain-refused",
        "certificate-missing",
        "certificate-user-unknown",
        "server-not-proved",
    ),
    ClientFault: (
        "certificate-invalid",
        "key-exposed",
        "alert-invalid",
        "alert-unknown",
        "alerts-only",
        "topic-invalid",
        "argument-invalid",
        "block-malformed",
        "block-too-large",
        "browse-invalid",
        "client-id-missing",
        "command-malformed",
        "consumer-exists",
        "consumer-invalid",
        "consumer-unknown",
        "credit-invalid",
        "destination-deleted",
        "destination-distributed",
        "destination-exists",
        "destination-in-use",
        "destination-not-paused",
        "not-a-queue",
        "destination-not-empty",
        "destination-unknown",
        "lane-exists",
        "lane-invalid",
        "lane-unknown",
        "chunk-invalid",
        "large-malformed",
        "transfer-invalid",
        "upload-gap",
        "upload-incomplete",
        "upload-unknown",
        "window-exceeded",
        "pattern-invalid",
        "policy-invalid",
        "routing-unknown",
        "selector-invalid",
        "selector-too-complex",
        "sequence-gap",
        "session-number-invalid",
        "settlement-unknown",
        "subject-unknown",
        "subscription-in-use",
        "subscription-invalid",
        "subscription-unknown",
        "subscription-unnamed",
        "too-many-topics",
        "transaction-too-large",
        "header-invalid",
        "transaction-exists",
        "transaction-unknown",
        "transactions-open",
    ),
    OrderBroken: ("member-unreachable", "path-service-unreachable"),
    Unavailable: (
        "certificate-refused",
        "own-certificate-refused",
        "tls-failed",
        "bus-command-too-large",
        "bus-full",
        "bus-gap",
        "bus-lost",
        "bus-unavailable",
        "destination-full",
        "destination-paused",
        "disk-failed",
        "too-many-paths",
        "large-damaged",
        "large-gone",
        "large-unknown",
        "message-in-doubt",
        "too-many-fetches",
        "too-many-transfers",
        "too-many-uploads",
        "server-stopping",
        "session-moved",
        "session-unknown",
        "too-many-connections",
        "too-many-consumers",
        "too-many-alerts",
        "too-many-destinations",
        "too-many-logins",
        "too-many-sessions",
    ),
}
_BY_CODE.update({code: kind for kind, codes in _FINER.items() for code in codes})


def from_code(code: str, sentence: str) -> HeliographError:
    """Rebuild on the client what the server raised, so that `except NotAllowed` works on both sides."""
    return _BY_CODE.get(code, HeliographError)(sentence, code=code)

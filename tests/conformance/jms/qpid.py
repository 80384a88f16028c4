"""The suite's adapter for AMQP 1.0: Qpid JMS, which is JMS itself, in a Java process."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack, get_args

import pytest

from tests.conformance.jms import adapter
from tests.conformance.jms.adapter import (
    Account,
    Body,
    Capability,
    ConsumerOptions,
    Destination,
    IllegalState,
    InvalidClientId,
    InvalidDestination,
    InvalidSelector,
    JmsError,
    Message,
    MessageFormat,
    MessageOptions,
    Mode,
    OnCompletion,
    OnError,
    ProducerOptions,
    SecurityViolation,
    TransactionRolledBack,
)
from tests.conformance.jms.native import BY_CODE, NativeProvider
from tests.conformance.jms.qpid_bridge import Bridge, JavaError

_KINDS: dict[str, type[JmsError]] = {
    "IllegalStateException": IllegalState,
    "InvalidClientIDException": InvalidClientId,
    "InvalidDestinationException": InvalidDestination,
    "InvalidSelectorException": InvalidSelector,
    "JMSSecurityException": SecurityViolation,
    "JMSSecuritySaslException": SecurityViolation,
    "MessageFormatException": MessageFormat,
    "TransactionRolledBackException": TransactionRolledBack,
}
_MODES = {Mode.TRANSACTED: 0, Mode.AUTO: 1, Mode.CLIENT: 2, Mode.DUPS_OK: 3, Mode.INDIVIDUAL: 101}
_LONG = 3600.0
_tokens = itertools.count(1)


def translated(error: JavaError) -> JmsError:
    """As Java has it, or, where that knows no better, as our code says, which is in every description."""
    kind = _KINDS.get(error.kind)
    if kind is None:
        codes = re.findall(r"\[([a-z-]+)\]", str(error))
        kind = next((BY_CODE[code] for code in codes if code in BY_CODE), JmsError)
    return kind(f"{error.kind}: {error}")


class Thing:
    """An object over there."""

    def __init__(self, bridge: Bridge, number: int) -> None:
        self.bridge = bridge
        self.number = number

    def ask(self, what: str, **arguments: Any) -> Any:
        try:
            return self.bridge.call(what, of=self.number, **arguments)
        except JavaError as error:
            raise translated(error) from error

    def close(self) -> None:
        self.ask("close")


def _said(destination: Destination) -> dict[str, str]:
    return {"kind": destination.kind, "name": destination.name}


def _destination(said: Mapping[str, Any]) -> Destination:
    return Destination(said["kind"], said["name"])


def _coded(value: Any) -> Any:
    if isinstance(value, list | dict):
        pytest.skip("maps and streams of JMS hold simple values")
    if not isinstance(value, bool | int | float | str | bytes | None):
        raise MessageFormat(f"a value is no {type(value).__name__}")
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["float"]) if "float" in value else base64.b64decode(value["bytes"])
    return value


def _body_said(body: Body) -> list[Any]:
    if isinstance(body, bytes):
        return ["bytes", base64.b64encode(body).decode()]
    if isinstance(body, str):
        return ["text", body]
    if isinstance(body, dict):
        return ["map", [[name, _coded(value)] for name, value in body.items()]]
    if isinstance(body, list):
        return ["list", [_coded(value) for value in body]]
    raise MessageFormat(f"a body is no {type(body).__name__}")


def _body_seen(said: list[Any]) -> Any:
    kind, value = said
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "map":
        return {name: _decoded(each) for name, each in value}
    if kind == "list":
        return [_decoded(each) for each in value]
    return value


def _options_said(options: Mapping[str, Any]) -> dict[str, Any]:
    said = dict(options)
    if "reply_to" in said:
        said["reply_to"] = _said(said["reply_to"])
    for name, value in said.get("properties", {}).items():
        if not isinstance(value, bool | int | float | str | None):
            raise MessageFormat(f"property {name} is a {type(value).__name__}")
    return said


class QpidProducer(Thing, adapter.Producer):
    def send(self, body: Body, **options: Unpack[MessageOptions]) -> str:
        identity: str = self.ask("send", body=_body_said(body), options=_options_said(options))
        return identity

    def send_async(self, body: Body, on_completion: OnCompletion, **options: Unpack[MessageOptions]) -> None:
        token = next(_tokens)

        def heard(word: dict[str, Any]) -> None:
            error = JavaError(word["error"], word["text"]) if "error" in word else None
            on_completion(None if error is None else translated(error))

        self.bridge.on_event["completion", token] = heard
        self.ask("send", body=_body_said(body), options=_options_said(options), token=token)


class QpidConsumer(Thing, adapter.Consumer):
    def receive(self, timeout: float | None = None) -> Message | None:
        if timeout is None:
            return self._seen(self.ask("receive", seconds=_LONG))
        return self._seen(self.ask("receive", timeout=timeout, seconds=timeout + 40.0))

    def receive_no_wait(self) -> Message | None:
        return self._seen(self.ask("receive", timeout=0))

    def _seen(self, said: dict[str, Any] | None) -> Message | None:
        return None if said is None else _message(self.bridge, said)

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message


class QpidBrowser(Thing, adapter.Browser):
    def __iter__(self) -> Iterator[Message]:
        said = self.ask("browse", anew=True)
        while said is not None:
            yield _message(self.bridge, said)
            said = self.ask("browse")


def _message(bridge: Bridge, said: dict[str, Any]) -> Message:
    thing = Thing(bridge, said["thing"])
    return Message(
        body=_body_seen(said["body"]),
        id=said["message_id"],
        destination=_destination(said["destination"]),
        timestamp=said["timestamp"] / 1000,
        expiration=said["expiration"] / 1000,
        delivery_time=said["delivery_time"] / 1000,
        priority=said["priority"],
        persistent=said["persistent"],
        correlation_id=said["correlation_id"],
        reply_to=None if said["reply_to"] is None else _destination(said["reply_to"]),
        type=said["type"],
        redelivered=said["redelivered"],
        delivery_count=said["JMSXDeliveryCount"],
        user_id=said.get("JMSXUserID"),
        group_id=said.get("JMSXGroupID"),
        group_sequence=said.get("JMSXGroupSeq", 0),
        properties={name: _decoded(value) for name, value in said["properties"].items()},
        on_acknowledge=lambda: thing.ask("acknowledge"),
    )


class QpidSession(Thing, adapter.Session):
    def producer(self, destination: Destination, **options: Unpack[ProducerOptions]) -> QpidProducer:
        made = self.ask("producer", destination=_said(destination), options=dict(options))
        return QpidProducer(self.bridge, made)

    def consumer(self, destination: Destination, **options: Unpack[ConsumerOptions]) -> QpidConsumer:
        named = {name: options[name] for name in ("durable", "shared") if options.get(name)}
        made = self.ask(
            "consumer",
            destination=_said(destination),
            selector=options.get("selector", ""),
            no_local=options.get("no_local", False),
            **named,
        )
        return QpidConsumer(self.bridge, made)

    def browser(self, destination: Destination, *, selector: str = "") -> QpidBrowser:
        made = self.ask("browser", destination=_said(destination), selector=selector)
        return QpidBrowser(self.bridge, made)

    def temporary_queue(self) -> Destination:
        return _destination(self.ask("temporary", kind="queue"))

    def temporary_topic(self) -> Destination:
        return _destination(self.ask("temporary", kind="topic"))

    def delete_temporary(self, destination: Destination) -> None:
        self.ask("delete", name=destination.name)

    def unsubscribe(self, name: str) -> None:
        self.ask("unsubscribe", name=name)

    def recover(self) -> None:
        self.ask("recover")

    def commit(self) -> None:
        self.ask("commit")

    def rollback(self) -> None:
        self.ask("rollback")


class QpidConnection(Thing, adapter.Connection):
    def __init__(self, bridge: Bridge, number: int, user: str) -> None:
        super().__init__(bridge, number)
        self._user = user

    @property
    def user(self) -> str:
        return self._user

    def session(self, mode: Mode = Mode.AUTO) -> QpidSession:
        return QpidSession(self.bridge, self.ask("session", mode=_MODES[mode]))

    def start(self) -> None:
        self.ask("start")

    def stop(self) -> None:
        self.ask("stop")


class QpidProvider(NativeProvider):
    """The server of the native provider, reached by AMQP."""

    name: ClassVar[str] = "qpid-jms"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability)) - {
        "auto-in-hand",
        "plain-groups",
    }
    _bridge: ClassVar[Bridge | None] = None

    def __init__(self, folder: Path, accounts: Sequence[Account] = ()) -> None:
        if QpidProvider._bridge is None:  # one for all tests: starting Java takes longer than most of them
            QpidProvider._bridge = Bridge()
        super().__init__(folder, accounts)

    def connect(  # type: ignore[override]
        self,
        *,
        client_id: str = "",
        started: bool = True,
        on_error: OnError | None = None,
        account: Account | None = None,
    ) -> QpidConnection:
        bridge = QpidProvider._bridge
        assert bridge is not None
        who: dict[str, Any] = {"user": account.name, "password": account.password} if account else {}
        url = f"amqp://127.0.0.1:{self._port}?jms.validateSelector=false&amqp.idleTimeout=30000"
        try:
            number = bridge.call("connect", url=url, client_id=client_id, started=started, **who)
        except JavaError as error:
            raise translated(error) from error

        def heard(word: dict[str, Any]) -> None:
            if on_error is not None:
                on_error(translated(JavaError(word["error"], word["text"])))

        bridge.on_event["problem", number] = heard
        return QpidConnection(bridge, number, account.name if account else "guest")

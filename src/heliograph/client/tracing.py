"""Traces that go on through messages (X3): the W3C context travels as the properties `traceparent` and `tracestate`.

    async with connect(url) as connection:
        producer = await connection.producer("queue:orders")
        with tracing.publishing("queue:orders") as properties:
            await producer.send(order, properties=properties)

        async for message in await connection.consumer("queue:orders"):
            with tracing.processing(message):
                ...

Properties are kept wherever a message goes: to other protocols, to other nodes, among the dead. Spans are emitted if
the application has set OpenTelemetry up; without that, or without the package (`heliograph[tracing]`), nothing is
added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from heliograph.model.message import Property

try:
    from opentelemetry import propagate, trace
except ImportError:
    IS_HERE = False
else:
    IS_HERE = True


CONTEXT = ("traceparent", "tracestate")
_NAME = "heliograph"


class Traceable(Protocol):
    """What is needed of a message."""

    @property
    def id(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, Any]: ...


def carried(properties: Mapping[str, Property] | None = None) -> dict[str, Property]:
    """Properties with the context of the span that is current, if there is one."""
    found: dict[str, Property] = dict(properties or {})
    if IS_HERE:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        found.update({name: value for name, value in carrier.items() if name in CONTEXT})
    return found


@contextmanager
def publishing(
    destination: str, properties: Mapping[str, Property] | None = None
) -> Iterator[dict[str, Property]]:
    """A span for sending, and the properties to send with."""
    if not IS_HERE:
        yield dict(properties or {})
        return
    attributes = _attributes(destination, "publish")
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span(
        f"{destination} publish", kind=trace.SpanKind.PRODUCER, attributes=attributes
    ):
        yield carried(properties)


@contextmanager
def processing(message: Traceable, destination: str = "") -> Iterator[None]:
    """A span for what is done with a message: a child of the one that it was sent in."""
    if not IS_HERE:
        yield
        return
    said = {name: value for name in CONTEXT if isinstance(value := message.properties.get(name), str)}
    where = destination or getattr(message, "destination", "") or "message"
    attributes = {**_attributes(str(where), "process"), "messaging.message.id": message.id}
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span(
        f"{where} process",
        context=propagate.extract(said),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ):
        yield


def _attributes(destination: str, operation: str) -> dict[str, str]:
    """As the semantic conventions for messaging call them."""
    return {
        "messaging.system": _NAME,
        "messaging.destination.name": destination,
        "messaging.operation.type": operation,
    }

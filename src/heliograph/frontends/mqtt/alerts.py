"""Alerts over MQTT: what a filter for a channel asks for, and how an alert goes to a client.

    $alerts/ops/TAG:disk,net;USER:anna   alerts of alerts:ops for these topics, in both versions
    $acknowledgements/ops/TAG:disk       acknowledgements of such alerts
    $alerts/ops                          in version 5, with the user properties `topics`, `acknowledgements`, or both

Alerts come with quality 1 at most, under the topic that is the filter. PUBACK takes one; at quality 0 it is taken
when the network has it. What is sent to a channel is the business of `frontends/alert_desk.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from heliograph.frontends.alert_consumer import check_wishes
from heliograph.frontends.alert_messages import DESTINATION, as_message
from heliograph.frontends.mqtt.messages import Outgoing, prepared
from heliograph.frontends.mqtt.packets import Filter, Publish
from heliograph.frontends.mqtt.topics import ChannelFilter
from heliograph.frontends.prepared import Prepared, head_of
from heliograph.model.alert import AlertFault, AlertView
from heliograph.model.errors import ClientFault
from heliograph.model.message import Property, encode_head

MOST_QUALITY: Final = 1
_MILLISECOND: Final = 1000


class Wishes(msgspec.Struct, frozen=True):
    """Which alerts a subscription wants, and the name under which it outlives the connection, if it does."""

    topics: str
    acknowledgements: str
    name: str


def wishes_of(wanted: Filter, channel: ChannelFilter, said: Mapping[str, str]) -> Wishes:
    """`said`: the user properties. Raises ClientFault."""
    if wanted.no_local:
        raise ClientFault("alerts come to who asks for them, also their own", code="alerts-only")
    topics, acknowledgements = said.get("topics", ""), said.get("acknowledgements", "")
    if channel.topics and (topics or acknowledgements):
        raise ClientFault(
            "which alerts are wanted is said in the filter or with user properties, not both",
            code="topic-invalid",
        )
    if channel.topics:
        topics, acknowledgements = (
            ("", channel.topics) if channel.of_acknowledgements else (channel.topics, "")
        )
    check_wishes(topics, acknowledgements)
    return Wishes(topics, acknowledgements, said.get("subscription-name", ""))


def prepared_alert(packet: Publish, destination: str, now: int) -> Prepared:
    """A message to a channel. `destination`: whom the alert is for, as its topic says. Raises ClientFault."""
    if packet.retain:
        raise ClientFault("alerts are not retained: they are live until they end", code="alerts-only")
    return addressed(prepared(packet, now), destination)


def addressed(message: Prepared, destination: str) -> Prepared:
    """The same, for whom its topic says. Raises AlertFault."""
    if not destination:
        return message
    head = head_of(message)
    if head.properties.get(DESTINATION, destination) != destination:
        raise AlertFault(f"the topic names another destination than {DESTINATION}")
    head.properties[DESTINATION] = destination
    return msgspec.structs.replace(message, head=encode_head(head))


def outgoing_alert(view: AlertView, *, version: int, now: int) -> Outgoing:
    """An alert as it goes to a client. Of what is said of it, version 3.1.1 has words for nothing."""
    said: dict[str, Property] = {"alert_user": view.user, "alert_arrived": view.arrived // _MILLISECOND}
    if view.again:
        said["alert_redelivered"] = True
    # It may have arrived later than what was last heard from the client.
    message = Outgoing(as_message(view, **said), 0, version=version, now=max(now, view.arrived))
    message.qos = MOST_QUALITY
    return message

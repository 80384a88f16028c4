"""The log of all nodes: which of their events are the last."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.bus.commands import Happened
from heliograph.model.limits import EVENTS_PER_ANSWER
from heliograph.nodes.event_log import Event
from heliograph.nodes.log_relay import LogRelay

pytestmark = pytest.mark.req("M15")


def ignore(_: object) -> None:
    """Nobody watches."""


def test_what_a_node_had_to_wait_with_does_not_hide_what_happened_later() -> None:
    """Another waited for somebody to lead, and tells of more than fits an answer when all is over."""
    loop = asyncio.new_event_loop()
    relay = LogRelay(loop=loop, say=ignore, may_speak=lambda: True, publish=ignore)
    late: Event = {"time": 9.0, "node": "1.1", "event": "disk-full"}
    early: list[Event] = [
        {"time": 1.0 + at / 1000, "node": "1.2", "event": "noise"} for at in range(EVENTS_PER_ANSWER)
    ]
    relay.on_command(Happened([late]))
    relay.on_command(Happened(early))
    told = relay.ask({}).body["events"]
    assert told == [*early[1:], late]
    loop.close()

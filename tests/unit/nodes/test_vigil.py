"""Who is about to hear from the other end stays awake for it, and nobody else (HOTPATH: a lone message)."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.client import wakeful
from heliograph.client.wakeful import Wakeful
from heliograph.nodes import vigil
from heliograph.nodes.vigil import Vigil


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make a quick answer a slow one."""
    monkeypatch.setattr(vigil, "VIGIL_SECONDS", 5.0)
    monkeypatch.setattr(wakeful, "WAKEFUL_SECONDS", 5.0)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_server_stays_awake_for_a_client_that_answers_each_confirmation_with_a_message() -> None:
    async def story() -> None:
        watch = Vigil(asyncio.get_running_loop())
        watch.heard_lone()
        watch.answered()
        assert not watch.is_awake, "nobody knows yet whether it goes on like this"
        watch.heard_lone()
        watch.answered()
        await turns(3)
        assert watch.is_awake
        watch.heard_more()
        await turns(2)
        assert not watch.is_awake, "somebody sends who does not wait"

    asyncio.run(story())


def test_a_server_sleeps_when_the_next_message_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        watch = Vigil(asyncio.get_running_loop())
        for _ in range(2):
            watch.heard_lone()
            watch.answered()
        assert watch.is_awake
        watch.heard_lone()
        monkeypatch.setattr(vigil, "VIGIL_SECONDS", 0.0)
        watch.answered()
        await turns(2)
        assert not watch.is_awake
        watch.heard_lone()
        watch.answered()
        assert not watch.is_awake, "it took its time"

    asyncio.run(story())


def test_a_client_stays_awake_for_a_confirmation_if_the_last_one_was_quick() -> None:
    async def story() -> None:
        waiting = Wakeful(asyncio.get_running_loop())
        waiting.asked()
        assert not waiting.is_awake
        waiting.answered()
        waiting.asked()
        await turns(3)
        assert waiting.is_awake
        waiting.answered()
        await turns(2)
        assert not waiting.is_awake

    asyncio.run(story())


def test_a_client_sleeps_if_the_last_confirmation_took_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(wakeful, "WAKEFUL_SECONDS", 0.0)
        waiting = Wakeful(asyncio.get_running_loop())
        waiting.asked()
        waiting.answered()
        waiting.asked()
        assert not waiting.is_awake

    asyncio.run(story())

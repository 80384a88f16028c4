"""The end of a loop iteration: what was handed out is written down before it leaves."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from heliograph.nodes.tick import Tick


def run(story: Callable[[Tick, list[str]], None]) -> list[str]:
    """What happened, in order, until nobody asks any more."""
    happened: list[str] = []

    async def play() -> None:
        tick = Tick(asyncio.get_running_loop(), lambda bug: happened.append(f"stopped: {bug}"))
        story(tick, happened)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(play())
    return happened


def test_journals_write_before_connections_send_once_for_all_who_asked() -> None:
    def story(tick: Tick, happened: list[str]) -> None:
        tick.add_send(lambda: happened.append("send"))
        tick.add_write(lambda: happened.append("write"))
        tick.ask()
        tick.ask()
        happened.append("asked twice")

    assert run(story) == ["asked twice", "write", "send"]


def test_what_a_journal_asks_for_while_it_writes_is_done_in_the_same_tick() -> None:
    def story(tick: Tick, happened: list[str]) -> None:
        tick.add_write(tick.ask)
        tick.add_send(lambda: happened.append("send"))
        tick.ask()

    assert run(story) == ["send"]


def test_what_a_connection_asks_for_while_it_sends_comes_with_the_next_tick() -> None:
    def story(tick: Tick, happened: list[str]) -> None:
        def send() -> None:
            happened.append("send")
            if len(happened) == 1:
                tick.ask()

        tick.add_send(send)
        tick.ask()

    assert run(story) == ["send", "send"]


def test_confirmations_leave_early_when_every_journal_has_written() -> None:
    def story(tick: Tick, happened: list[str]) -> None:
        def write(name: str) -> None:
            happened.append(f"{name} writes")
            tick.send_early()
            happened.append(f"{name} hands out")

        tick.add_write(partial(write, "one"))
        tick.add_write(partial(write, "another"))
        tick.add_send(lambda: happened.append("send"))
        tick.ask()

    assert run(story) == [
        "one writes",
        "one hands out",
        "another writes",
        "send",
        "another hands out",
        "send",
    ]


def test_nothing_leaves_early_while_something_may_be_unwritten() -> None:
    def story(tick: Tick, happened: list[str]) -> None:
        tick.add_write(lambda: happened.append("write"))
        tick.add_send(lambda: happened.append("send"))
        tick.send_early()  # nobody has asked: nothing is unwritten
        tick.ask()
        tick.send_early()

    assert run(story) == ["send", "write", "send"]


def test_a_step_that_fails_stops_the_server_before_anything_is_sent() -> None:
    def fail() -> None:
        raise ValueError("a bug")

    def story(tick: Tick, happened: list[str]) -> None:
        tick.add_write(fail)
        tick.add_send(lambda: happened.append("send"))
        with pytest.raises(ValueError, match="a bug"):
            tick.run()

    assert run(story) == ["stopped: a bug"]

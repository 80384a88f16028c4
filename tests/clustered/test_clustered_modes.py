"""Every mode on every middleware: each message is processed once, and what came of it is told to the others (H3, H4).

Members are in the test's own loop. Left to the night are Kafka, a Heliograph queue, and copies that their owner
acknowledges: that is the mode of the day's other tests (`test_clustered.py`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from heliograph.clustered import Acknowledge, ClusteredConsumer, ClusteredMessage, Terms
from heliograph.clustered.hashing import VALUES
from heliograph.clustered.working import Handler
from tests.clustered.middleware import ALL, body_of, needs
from tests.servers import play, until

TERMS = Terms(lease_seconds=4.0, skew_seconds=0.1)
MESSAGES = 60
AT_NIGHT = ("heliograph-queue", "kafka")


def _modes(key: str) -> list[Acknowledge]:
    """Copies that are not delivered again need no acknowledgement, and take none."""
    return [Acknowledge.OWNER, Acknowledge.ALL] if ALL[key].redelivers else [Acknowledge.NONE]


def _is_for_the_night(key: str, mode: Acknowledge) -> bool:
    return key in AT_NIGHT or mode is Acknowledge.OWNER


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.req("H1", "H3", "H4")
@pytest.mark.parametrize(
    ("key", "acknowledge"),
    [
        pytest.param(
            key,
            mode,
            marks=[needs(key), *([pytest.mark.nightly] if _is_for_the_night(key, mode) else [])],
            id=f"{key}-{mode.value}",
        )
        for key in ALL
        for mode in _modes(key)
    ],
)
def test_each_message_is_processed_once_and_its_result_is_told_to_the_others(
    key: str, acknowledge: Acknowledge, tmp_path: Path
) -> None:
    middleware = ALL[key]
    done: dict[str, Counter[bytes]] = {"ada": Counter(), "bob": Counter()}
    heard: dict[str, Counter[bytes]] = {"ada": Counter(), "bob": Counter()}

    def handler_of(name: str) -> Handler:
        async def handle(message: ClusteredMessage) -> bytes:
            done[name][message.body] += 1
            return message.body

        return handle

    async def story() -> None:
        async with middleware.running(tmp_path) as url, AsyncExitStack() as stack:

            async def member(name: str) -> ClusteredConsumer:
                return await stack.enter_async_context(
                    ClusteredConsumer(
                        lambda: middleware.adapter(url),
                        cluster="billing",
                        name=name,
                        handler=handler_of(name),
                        fields=middleware.fields,
                        acknowledge=acknowledge,
                        shares_results=True,
                        on_result=lambda _identity, result: heard[name].update([result]),
                        terms=TERMS,
                    )
                )

            consumers = [await member(name) for name in done]
            await until(
                lambda: (
                    all(each.ranges for each in consumers)
                    and sum(each.ranges.size for each in consumers) == VALUES
                ),
                "each owns something, and both everything",
                60,
            )
            await middleware.publish(url, 0, MESSAGES)
            await until(lambda: (done["ada"] + done["bob"]).total() >= MESSAGES, "all are done", 40)
            await until(lambda: not any(each.held for each in consumers), "everybody knows of it", 20)
            await until(lambda: heard["ada"] == done["bob"], "ada has heard what bob did", 20)
            await until(lambda: heard["bob"] == done["ada"], "bob has heard what ada did", 20)
            assert [each.figures.incarnations for each in consumers] == [1, 1]

    play(story(), 110)
    assert done["ada"] + done["bob"] == Counter(body_of(number) for number in range(MESSAGES))
    assert done["ada"]
    assert done["bob"]

"""The example of the guide does what the guide says, on Heliograph and on RabbitMQ."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clustered.middleware import ALL, each_of
from tests.servers import CLEAN, ROOT, play


@pytest.mark.nightly
@pytest.mark.timeout(120)
@pytest.mark.parametrize("key", each_of(["heliograph", "rabbitmq"]))
def test_one_of_five_is_killed_and_each_order_is_in_the_books_once(key: str, tmp_path: Path) -> None:
    middleware = ALL[key]

    async def story() -> str:
        async with middleware.running(tmp_path) as url:
            command = [sys.executable, "examples/clustered_consumers.py", url]
            ended = await asyncio.to_thread(
                subprocess.run, command, cwd=ROOT, env=CLEAN, capture_output=True, text=True, check=False
            )
            assert ended.returncode == 0, ended.stderr
            return str(ended.stdout)

    said = play(story(), 110)
    assert "cleo was killed" in said
    assert "5000 of 5000 orders are in the books, each once" in said
    found = re.search(r"(\d+) came again, (\d+) marked", said)
    assert found is not None
    assert found[1] == found[2]

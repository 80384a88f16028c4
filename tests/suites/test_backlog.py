"""A deep backlog costs little memory, does not hold up a restart, and is drained as quickly as live messages.

`python -m tests.suites.backlog` measures the same by hand.
"""

from pathlib import Path

import pytest

from tests.servers import play
from tests.suites.backlog import measure

pytestmark = [pytest.mark.slow, pytest.mark.req("M7")]

MESSAGES = 500_000
NIGHTLY_MESSAGES = 5_000_000


def check(folder: Path, messages: int, *, lone: bool, seconds: float) -> None:
    figures = play(measure(folder, messages=messages, lone=lone), seconds)
    print("\n" + figures.table())
    assert not figures.faults()


@pytest.mark.alone
def test_half_a_million_messages_in_blocks_wait(tmp_path: Path) -> None:
    check(tmp_path, MESSAGES, lone=False, seconds=170)


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_half_a_million_messages_sent_one_by_one_wait(tmp_path: Path) -> None:
    check(tmp_path, MESSAGES, lone=True, seconds=230)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lone", [False, True], ids=["in blocks", "one by one"])
def test_five_million_messages_wait(tmp_path: Path, lone: bool) -> None:
    check(tmp_path, NIGHTLY_MESSAGES, lone=lone, seconds=1190)

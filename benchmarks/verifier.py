"""What a message verifier costs: one message at a time, and a block at once.

    python -m benchmarks.verifier [--json]

Each figure comes with the bar it has to meet, for each field that is hashed (H1). Messages have ids as
Heliograph issues them; a block has 8,192.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from heliograph.clustered import MessageVerifier, even
from heliograph.clustered.adapter import Delivery
from heliograph.clustered.hashing_blocks import chosen, values_of_texts

MESSAGES: Final = 100_000
BLOCK: Final = 8_192
ROUNDS: Final = 7
ONE_NANOSECONDS: Final = 1_000.0
BLOCK_NANOSECONDS: Final = 50.0


def _best(work: Callable[[], Any], count: int) -> float:
    """Nanoseconds of processor time for each of so many, in the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best / count * 1e9


def _ask(is_mine: Callable[[Delivery], bool], messages: list[Delivery]) -> None:
    for message in messages:
        is_mine(message)


def figures() -> dict[str, float]:
    ids = [f"1.2.19a5b3c4d5e.{number % 7}/1-{number}" for number in range(MESSAGES)]
    messages = [Delivery(id=identity, body=b"", properties={"city": "Zürich"}) for identity in ids]
    mine = even(["ada", "bob", "cyd", "dan", "eve"]).of("cyd")
    found = {}
    for fields in (["id"], ["property:city"], ["destination", "priority", "id"]):
        is_mine = MessageVerifier(fields, mine).is_mine
        found["one by " + ", ".join(fields)] = _best(partial(_ask, is_mine, messages), MESSAGES)
    raw = [identity.encode() for identity in ids[:BLOCK]]
    buffer, offsets = b"".join(raw), np.cumsum([0, *map(len, raw)], dtype=np.int64)
    found["block by id"] = _best(lambda: chosen(values_of_texts(buffer, offsets), mine.bounds), BLOCK)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    found = figures()
    if parser.parse_args().json:
        print(json.dumps(found))
        return
    for name, nanoseconds in found.items():
        bar = BLOCK_NANOSECONDS if name.startswith("block") else ONE_NANOSECONDS * (name.count(",") + 1)
        print(f"{name:<40} {nanoseconds:8.1f} ns a message (bar {bar:g})")


if __name__ == "__main__":
    main()

"""The corpus of the fuzzer, and what is near it, in every run: bytes changed, cut, doubled and mixed. `make fuzz`
looks further."""

from __future__ import annotations

import random
import time

import pytest

from fuzz.__main__ import CORPUS
from fuzz.targets import TARGETS

MUTATIONS = 1500
SECONDS = 1.5


def mutated(chance: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 4)):
        place = chance.randint(0, len(data))
        match chance.randint(0, 4):
            case 0:
                data[place : place + 1] = bytes((chance.randint(0, 255),))
            case 1:
                data[place : place + chance.randint(1, 8)] = b""
            case 2:
                data[place:place] = chance.randbytes(chance.randint(1, 4))
            case 3:
                other = chance.choice(seeds)
                start = chance.randint(0, len(other))
                data[place:] = other[start:]
            case _:
                data[place:place] = data[place : place + chance.randint(1, 40)]
    return bytes(data)


@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.req("X2")
def test_nothing_near_the_corpus_breaks_a_parser(name: str) -> None:
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert seeds, "a target has something to begin with"
    for seed in (b"", *seeds):
        TARGETS[name](seed)
    chance = random.Random(name)
    by = time.monotonic() + SECONDS
    for _ in range(MUTATIONS):
        TARGETS[name](mutated(chance, seeds))
        if time.monotonic() > by:
            break

"""A cluster of real processes on real middleware, and the judgement of what they did."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clustered.middleware import UNITS, Middleware
from tests.servers import CLEAN, ROOT, until

# Looking means reading files; members need the processors more.
_POLL_SECONDS = 0.1


@dataclass
class Effect:
    """One line of one member."""

    number: int
    token: int
    is_marked: bool
    member: str
    was_cut_short: bool = False
    """Its member was killed before it had heard itself tell the others: whoever took over could not know."""


@dataclass(frozen=True)
class Life:
    """Of one process, when it was over: how many lines its member had written, and how many it had told, in all its
    lives."""

    effects: int
    told: int
    was_killed: bool


@dataclass
class Cluster:
    """Members of one clustered consumer, by name. Everything started ends here."""

    middleware: Middleware
    url: str
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lives: dict[str, list[Life]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def start(self, name: str) -> None:
        path = self.folder / f"{name}.effects"
        (self.folder / f"{name}.effects.status").unlink(missing_ok=True)  # of an earlier life
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.clustered.member"),
                    *(self.middleware.key, self.url, name, str(path), json.dumps(self.options)),
                ],
                cwd=ROOT,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._is_over(name, was_killed=True)

    def _is_over(self, name: str, *, was_killed: bool) -> None:
        written = len(self._lines(name, "effects"))
        life = Life(written, len(self._lines(name, "effects.told")), was_killed)
        self.lives.setdefault(name, []).append(life)

    def _lines(self, name: str, what: str) -> list[str]:
        path = self.folder / f"{name}.{what}"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def stop(self, name: str) -> None:
        """It does nothing any more, not even listen, until it goes on; and knows nothing of it."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    async def leave(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None, f"{name} has left", 60)
        assert process.returncode == 0, self.words_of(name)
        self._is_over(name, was_killed=False)
        self.left.append(name)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def status(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}.effects.status"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def words_of(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text(errors="replace")[-3000:]

    async def is_whole(self, seconds: float = 40.0) -> None:
        """Everybody who runs is in, complete, and owns something."""
        names = sorted(self.processes)

        def whole() -> bool:
            return all(
                sorted(status.get("members", ())) == names and status["complete"] and status["acting"]
                for status in map(self.status, names)
            )

        deadline = asyncio.get_running_loop().time() + seconds
        while not whole():
            states = [self.status(name) for name in names]
            assert asyncio.get_running_loop().time() < deadline, f"{names} are not one: {states}"
            await asyncio.sleep(_POLL_SECONDS)

    async def has_processed(self, numbers: Iterable[int], seconds: float = 60.0) -> None:
        wanted = set(numbers)

        def missing() -> int:
            return len(wanted - {effect.number for effect in self.effects()})

        deadline = asyncio.get_running_loop().time() + seconds
        while (rest := missing()) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.2)
        if rest:
            states = {name: self.status(name) for name in self.processes}
            words = {name: self.words_of(name) for name in self.processes}
            raise AssertionError(f"{rest} messages were not processed in {seconds:g} s: {states} {words}")

    async def is_idle(self, seconds: float) -> None:
        """Nothing more is processed."""
        deadline = asyncio.get_running_loop().time() + seconds
        before = -1
        while before != (count := len(self.effects())) and asyncio.get_running_loop().time() < deadline:
            before = count
            await asyncio.sleep(8)

    async def holds_nothing(self, seconds: float) -> None:
        """Everybody has heard that everything is done: what would come again has come."""

        def held() -> dict[str, int]:
            return {name: self.status(name).get("held", -1) for name in self.processes}

        deadline = asyncio.get_running_loop().time() + seconds
        while any(count != 0 for count in held().values()):
            assert asyncio.get_running_loop().time() < deadline, f"still held: {held()}"
            await asyncio.sleep(_POLL_SECONDS)

    def effects(self) -> list[Effect]:
        """What every member did, in the order of each."""
        found = []
        for path in sorted(self.folder.glob("*.effects")):
            effects = [_effect(line) for line in self._lines(path.stem, "effects")]
            told = self._lines(path.stem, "effects.told")
            began = Life(0, 0, was_killed=False)
            for life in self.lives.get(path.stem, ()):
                known = {int(line) for line in told[began.told : life.told]}
                for effect in effects[began.effects : life.effects]:
                    effect.was_cut_short = life.was_killed and effect.number not in known
                began = life
            found += effects
        return found


def _effect(line: str) -> Effect:
    body, token, marked, member = line.split()
    return Effect(int(body[2:]), int(token), marked == "1", member)


@dataclass
class Verdict:
    """What became of so many messages."""

    lost: list[int]
    repeated: list[int]
    unmarked: list[int]
    """Repeated without a mark on the later one: that with the higher token."""
    repeated_without_need: list[int]
    """Repeated although whoever did it before had told the others, or was not killed."""
    out_of_order: int


def judge(effects: list[Effect], numbers: range) -> Verdict:
    by_number: dict[int, list[Effect]] = {}
    for effect in sorted(effects, key=lambda each: each.token):  # of one token, as its member did it
        by_number.setdefault(effect.number, []).append(effect)
    repeated = [number for number, found in by_number.items() if len(found) > 1]
    return Verdict(
        lost=[number for number in numbers if number not in by_number],
        repeated=repeated,
        unmarked=[n for n in repeated if not all(each.is_marked for each in by_number[n][1:])],
        repeated_without_need=[n for n in repeated if not all(e.was_cut_short for e in by_number[n][:-1])],
        out_of_order=_out_of_order(effects),
    )


def _out_of_order(effects: list[Effect]) -> int:
    """How often a message of a unit was processed after a later one, by whomever, neither being marked. Whoever has
    the higher token came later."""
    last: dict[int, int] = {}
    count = 0
    for effect in sorted(effects, key=lambda each: each.token):
        if effect.is_marked:
            continue
        unit = effect.number % UNITS
        count += effect.number < last.get(unit, -1)
        last[unit] = max(last.get(unit, -1), effect.number)
    return count

"""Other protocols side by side: the same client through Heliograph and through other servers that speak them.

    python -m benchmarks.protocols [--rounds 5] [--seconds 3] [MQTT STOMP AMQP]
    python -m benchmarks.protocols --quick --out /tmp/tried      does it run? its figures mean nothing

It ends with 1 if a bar falls short or could not be measured, so that a server that is not there passes for nothing.

The servers of a protocol run beside each other, and are idle but for the one whose turn it is; each was warmed up
before. In every round each has its turn, and the ratio is that of the round, so that a machine that gets slower or
faster during the run does so for everybody. The clients are Python and need most of the time there is, so what a
message costs the server is told too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import artemis_jars
from benchmarks.__main__ import _data_folder, _stop_on_signal
from benchmarks.packages import install, what_is_missing
from benchmarks.peers import protocol_peers
from benchmarks.peers.interface import Peer
from benchmarks.processes import BenchmarkError, Server, free_port
from benchmarks.report import machine, number, table
from benchmarks.rounds import describe
from benchmarks.runner import measure
from benchmarks.workloads import WORKLOADS, Figures

WORKLOAD: Final = WORKLOADS[0]
TRIAL_MESSAGES: Final = 3_000
QUICK_MESSAGES: Final = 300
WARM_UP_SECONDS: Final = 4.0
"""Java compiles what is used often, and has not done with it after a second or two."""
BAR: Final = 1.0
OURS: Final = "heliograph"
PREAMBLE: Final = """\
# Other protocols, side by side

`make bench-protocols`. The same client, unchanged, through Heliograph and through servers that speak its protocol
too: persistent messages of {size} B to one queue (MQTT: a topic with one subscriber whose session outlives its
connection), quality of service 1, a receipt or an accepting disposition for each, awaited in a window; one
consumer, in a process of its own, acknowledges. All servers of a protocol ran on this machine at the same time,
idle but for the one whose turn it was, and warmed up before. Rounds: {rounds}; rates are their medians, and the
ratio is the median of each round's ratio, Heliograph's rate against the peer's; a server that does not sync is
compared with ours when it does not sync either (`journal.durability: write`, which outlives a killed server). The
clients are Python: they need most of the time there is, therefore the processor time of the server for a message is
told beside it. Debian's ActiveMQ does not speak AMQP. All figures are in `protocols.json`.
"""


@dataclass(slots=True, eq=False)
class Runner:
    """A server with its turns."""

    peer: Peer
    server: Server
    port: int
    folder: Path
    is_quick: bool
    runs: list[Figures] = field(default_factory=list)
    _rate: float = 0.0

    def warm_up(self) -> None:
        """Find out how fast it is, and let it become so."""
        for count in (QUICK_MESSAGES,) if self.is_quick else (TRIAL_MESSAGES, 0):
            figures = self._measure(count or int(self._rate * WARM_UP_SECONDS))
            self._rate = figures.messages_per_second or self._rate

    def take_turn(self, seconds: float) -> None:
        try:
            count = QUICK_MESSAGES if self.is_quick else max(TRIAL_MESSAGES, int(self._rate * seconds))
            figures = self._measure(count)
            self._rate = figures.messages_per_second or self._rate
        except (BenchmarkError, subprocess.TimeoutExpired) as error:
            figures = Figures(messages=0, error=str(error))
        self.runs.append(figures)
        print(f"    {self.peer.title:24} {describe(figures)}", flush=True)

    def _measure(self, messages: int) -> Figures:
        return measure(self.peer, self.server, WORKLOAD, self.port, self.folder, messages)

    def middle(self, what: str) -> float | None:
        known = [value for run in self.runs if (value := getattr(run, what)) is not None]
        return median(known) if known else None


@dataclass(frozen=True, slots=True)
class Bar:
    """What was promised of a pair. `is_like`: both promise the same with a confirmation, so it has to hold."""

    promise: str
    ratio: float | None
    is_like: bool

    @property
    def verdict(self) -> str:
        return verdict_on(self.ratio) + ("" if self.is_like else ", and ours syncs")

    @property
    def row(self) -> list[str]:
        return [self.promise, f"{number(self.ratio, 2)} times", f"**{self.verdict}**"]

    def holds(self, *, is_quick: bool) -> bool:
        """Of a quick run it is only asked that there is a figure."""
        return not self.is_like or (self.ratio is not None and (is_quick or self.ratio >= BAR))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One protocol, as it came out. `peers`: all that should have been measured."""

    protocol: str
    peers: list[Peer]
    runners: list[Runner]
    skipped: dict[str, str]

    def ours(self) -> list[Runner]:
        return [each for each in self.runners if each.peer.key.startswith(OURS)]

    def theirs(self) -> list[Runner]:
        return [each for each in self.runners if not each.peer.key.startswith(OURS)]

    def like(self, other: Runner) -> Runner | None:
        """Ours that promises as much with a confirmation: what is synced is not compared with what is not."""
        promised = other.peer.synced(WORKLOAD.kind)
        return next((each for each in self.ours() if each.peer.synced(WORKLOAD.kind) == promised), None)

    def bars(self) -> list[Bar]:
        """Also of a server that is missing: it was not beaten."""
        ours = [each for each in self.peers if each.key.startswith(OURS)]
        return [bar for other in self.peers if other not in ours for bar in self._bars_of(other, ours)]

    def _bars_of(self, other: Peer, ours: list[Peer]) -> list[Bar]:
        promised = other.synced(WORKLOAD.kind)
        like = next((each for each in ours if each.synced(WORKLOAD.kind) == promised), None)
        if like is None:
            return [Bar(f"nothing of ours promises what {other.title} does", None, is_like=True)]
        return [
            Bar(
                f"{mine.title}: at least {other.title}",
                ratio_of(self._runner(mine), self._runner(other)),
                is_like=mine is like,
            )
            for mine in ours
            if mine is like or promised == "no"
        ]

    def _runner(self, peer: Peer) -> Runner | None:
        return next((each for each in self.runners if each.peer is peer), None)

    def rows(self) -> list[list[str]]:
        measured = [
            [
                f"**{each.peer.title}**" if each in self.ours() else each.peer.title,
                each.peer.synced(WORKLOAD.kind),
                number(each.middle("messages_per_second")),
                number(each.middle("server_cpu_us_per_message"), 1),
                number(each.middle("server_rss_mb")),
                "1" if each in self.ours() else number(ratio_of(self.like(each), each), 2),
            ]
            for each in self.runners
        ]
        return measured + [
            [title, f"not measured: {why}", "–", "–", "–", "–"] for title, why in self.skipped.items()
        ]


def ratio_of(mine: Runner | None, other: Runner | None) -> float | None:
    """The median of all rounds in which both have a figure."""
    pairs = zip(mine.runs if mine else [], other.runs if other else [], strict=False)
    rates = [(one.messages_per_second, another.messages_per_second) for one, another in pairs]
    ratios = [one / another for one, another in rates if one and another]
    return median(ratios) if ratios else None


def verdict_on(ratio: float | None) -> str:
    return "NOT MEASURED" if ratio is None else "PASS" if ratio >= BAR else "FALLS SHORT"


def compare(protocol: str, rounds: int, seconds: float, data: Path, *, is_quick: bool = False) -> Comparison:
    """All servers of a protocol, in turns."""
    skipped = {peer.title: why for peer in protocol_peers()[protocol] if (why := _missing(peer)) is not None}
    with ExitStack() as running:
        runners: list[Runner] = []
        for peer in protocol_peers()[protocol]:
            if peer.title in skipped:
                continue
            folder = Path(tempfile.mkdtemp(dir=data))
            running.callback(shutil.rmtree, folder, ignore_errors=True)
            port = free_port()
            try:
                server = running.enter_context(peer.start(folder, port))
            except BenchmarkError as error:
                skipped[peer.title] = str(error)
                continue
            runners.append(Runner(peer, server, port, folder, is_quick))
        for runner in list(runners):
            try:
                runner.warm_up()
            except BenchmarkError as error:
                skipped[runner.peer.title] = str(error)
                runners.remove(runner)
        for turn in range(1, rounds + 1):
            print(f"  {protocol}, round {turn} of {rounds}", flush=True)
            for runner in runners:
                runner.take_turn(seconds)
    return Comparison(protocol, protocol_peers()[protocol], runners, skipped)


def _missing(peer: Peer) -> str | None:
    if "artemis" in peer.key and not artemis_jars.are_there():
        return f"Artemis cannot be got from {artemis_jars.CENTRAL}"
    return what_is_missing(peer)


def page(comparisons: Sequence[Comparison], rounds: int, data: Path) -> str:
    bars = [bar.row for comparison in comparisons for bar in comparison.bars()]
    parts = [
        PREAMBLE.format(size=WORKLOAD.size, rounds=rounds),
        table(["", ""], [[name, value] for name, value in machine(data).items()]),
        "## The bars\n",
        table(["bar", "figure", "verdict"], bars),
    ]
    head = ["system", "on disk at confirm", "messages/s", "server µs/msg", "server MB", "ratio"]
    for comparison in comparisons:
        client = comparison.peers[0].client_version()
        parts += [f"## {comparison.protocol}, {client}\n", table(head, comparison.rows())]
    systems = [
        [each.peer.title, each.peer.server_version(), each.peer.durability]
        for comparison in comparisons
        for each in comparison.runners
    ]
    return "\n".join(
        [*parts, "## The systems\n", table(["system", "server", "what a confirmation means"], systems)]
    )


def raw(comparisons: Sequence[Comparison], data: Path) -> dict[str, object]:
    return {
        "machine": machine(data),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "protocols": {
            comparison.protocol: {
                each.peer.key: {
                    "server": each.peer.server_version(),
                    "client": each.peer.client_version(),
                    "ratio": ratio_of(comparison.like(each), each),
                    "runs": [asdict(run) for run in each.runs],
                }
                for each in comparison.runners
            }
            for comparison in comparisons
        },
    }


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure, then report. 1: a bar does not hold, or nobody knows whether it does."""
    names = list(protocol_peers())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.protocols", description="Other protocols, side by side."
    )
    parser.add_argument("protocols", nargs="*", metavar="PROTOCOL", help=f"which of {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=5, help="medians are reported (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn (default 3)")
    parser.add_argument(
        "--quick", action="store_true", help="one round of few messages: whether it runs, not how fast"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the results go")
    parser.add_argument("--data", type=Path, default=None, help="where all servers keep their data")
    parser.add_argument(
        "--no-install",
        action="store_true",
        help="install nothing; the bars of what is missing are not measured",
    )
    arguments = parser.parse_args(command_line)
    unknown = [name for name in arguments.protocols if name not in names]
    if unknown:
        parser.error(f"there is no protocol {unknown[0]}")
    signal.signal(signal.SIGTERM, _stop_on_signal)
    if arguments.quick and arguments.out == parser.get_default("out"):
        parser.error("--quick goes with --out: its figures are not for keeping")
    if not arguments.no_install:
        _get_ready()
    rounds = 1 if arguments.quick else arguments.rounds
    with _data_folder(arguments.data) as data:
        comparisons = [
            compare(protocol, rounds, arguments.seconds, data, is_quick=arguments.quick)
            for protocol in arguments.protocols or names
        ]
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "protocols.md").write_text(page(comparisons, rounds, data))
        text = json.dumps(raw(comparisons, data), indent=1, ensure_ascii=False)
        (arguments.out / "protocols.json").write_text(text + "\n")
    bars = [bar for comparison in comparisons for bar in comparison.bars()]
    for bar in bars:
        print(f"{bar.verdict:12} {bar.promise}: {number(bar.ratio, 2)} times")
    return 0 if all(bar.holds(is_quick=arguments.quick) for bar in bars) else 1


def _get_ready() -> None:
    install([peer for peers in protocol_peers().values() for peer in peers])
    try:
        artemis_jars.fetch()
    except OSError as error:
        print(f"Artemis cannot be got: {error}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

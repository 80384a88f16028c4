"""The command: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from benchmarks import heliograph
from benchmarks.packages import install, what_is_missing
from benchmarks.peers import all_peers
from benchmarks.peers.interface import Peer
from benchmarks.plot import draw
from benchmarks.report import Report, System, file_system, ours_as_system
from benchmarks.rounds import Rounds
from benchmarks.summary import judge, summarise
from benchmarks.workloads import WORKLOADS

SECONDS_PER_MEASUREMENT: Final = 2.5
"""With three rounds of everything, this keeps the whole run under ten minutes."""


def _arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    workloads, systems = [workload.key for workload in WORKLOADS], [heliograph.KEY, *all_peers()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Heliograph and its peers, side by side."
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds; medians are reported (default 3)")
    parser.add_argument(
        "--workloads",
        nargs="+",
        choices=workloads,
        default=workloads,
        metavar="WORKLOAD",
        help=f"which of {', '.join(workloads)} (default: all)",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=systems,
        default=systems,
        metavar="SYSTEM",
        help=f"which of {', '.join(systems)} (default: all)",
    )
    parser.add_argument(
        "--messages-scale",
        type=float,
        default=1.0,
        metavar="F",
        help=f"more or fewer messages: 1 fills about {SECONDS_PER_MEASUREMENT} s each",
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="where the results go")
    parser.add_argument(
        "--data",
        type=Path,
        default=None,
        help="where all servers keep their data (default: a temporary folder on a disk)",
    )
    parser.add_argument("--no-install", action="store_true", help="install nothing, skip what is missing")
    return parser.parse_args(command_line)


@contextmanager
def _data_folder(wanted: Path | None) -> Iterator[Path]:
    """A folder on a real disk: on tmpfs a sync costs nothing, and every durability figure would be a lie."""
    candidates = (
        [wanted] if wanted is not None else [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
    )
    on_disk = [place for place in candidates if file_system(place) not in ("tmpfs", "ramfs")]
    if not on_disk:
        sys.exit(f"{candidates[0]} is in memory, not on a disk: name a folder on a disk with --data")
    with tempfile.TemporaryDirectory(
        prefix="helio-bench-", dir=on_disk[0], ignore_cleanup_errors=True
    ) as folder:
        # Mosquitto, started by root, becomes another user and must be able to reach its part.
        Path(folder).chmod(0o755)
        yield Path(folder)


def _stop_on_signal(number: int, _frame: object) -> NoReturn:
    """Leave through every `finally`, so that no server is left behind."""
    sys.exit(128 + number)


def _system(peer: Peer, skipped: str | None) -> System:
    return System(
        key=peer.key,
        title=peer.title,
        version="–" if skipped else peer.server_version(),
        client=peer.client_version(),
        synced={workload.key: peer.synced(workload.kind) for workload in WORKLOADS},
        durability=peer.durability,
        skipped=skipped,
        is_limit=peer.is_limit,
    )


def main(command_line: Sequence[str] | None = None) -> None:
    """Measure, then report."""
    arguments = _arguments(command_line)
    signal.signal(signal.SIGTERM, _stop_on_signal)
    began = time.monotonic()
    wanted = [peer for key, peer in all_peers().items() if key in arguments.peers]
    if not arguments.no_install:
        install(wanted)
    systems = {peer.key: _system(peer, what_is_missing(peer)) for peer in wanted}
    for system in systems.values():
        print(
            f"{system.title:40} {f'skipped: {system.skipped}' if system.skipped else system.version}",
            flush=True,
        )
    workloads = [workload for workload in WORKLOADS if workload.key in arguments.workloads]
    with _data_folder(arguments.data) as data:
        rounds = Rounds(
            workloads=workloads,
            peers=[peer for peer in wanted if not systems[peer.key].skipped],
            with_heliograph=heliograph.KEY in arguments.peers,
            seconds=SECONDS_PER_MEASUREMENT * arguments.messages_scale,
            data=data,
        )
        results = rounds.run(arguments.runs)
        summaries = summarise(results)
        report = Report(
            systems=[ours_as_system(heliograph.own_version(), results), *systems.values()],
            workloads=workloads,
            results=results,
            summaries=summaries,
            bars=judge(summaries),
            rounds=arguments.runs,
            data=data,
        )
        report.write(arguments.out)
        drawn = draw(report, arguments.out / "latest.png")
    print()
    for bar in report.bars:
        print(f"{bar.verdict:12} {bar.promise}: {bar.figure}")
    written = ["latest.md", "latest.json", *(["latest.png"] if drawn else [])]
    print(f"\n{time.monotonic() - began:.0f} s. Written to {arguments.out}: {', '.join(written)}")
    if not drawn:
        print("No plot: matplotlib is not installed (pip install 'heliograph[bench]').")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nInterrupted: all servers are stopped, nothing was written.")

"""How `helio demo partition` looks: a table that changes in place in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import typer

from heliograph.cli.cluster_status import Part
from heliograph.cli.partition_play import Moment, Outcome, Play
from heliograph.cli.partition_stage import Stage, stage_in
from heliograph.cli.presentation import count_of

_ACTS: Final = {
    "whole": "The network is whole. Three clients send, three receive, a little more slowly.",
    "cut": (
        "The network is cut in two. In each part a new client begins to send.\n"
        "One part goes on with everything. The other cannot know what that hands out: it accepts all, hands out\n"
        "what is new, and holds back what was there before the cut and what is behind it."
    ),
    "healed": "The network is healed. Nobody sends any more; what waited is handed out.",
}
_COLOURS: Final = {"A": "green", "B": "yellow", "C": "yellow", "D": "red"}
_UP: Final = "\x1b[{lines}F\x1b[0J"
# Where the output is no terminal, every so many looks are enough.
_LOOKS_A_LINE: Final = 4


async def show(folder: Path, *, in_process: bool, as_json: bool) -> None:
    """Raises HeliographError."""
    stage = stage_in(folder, in_process=in_process)
    board = Board(sys.stdout.isatty()) if not as_json else None
    if board is not None:
        typer.echo(f"Starting {stage.words} …")
    try:
        await stage.start()
        outcome = await Play(stage, board.tell if board is not None else _say_nothing).run()
        if as_json:
            typer.echo(json.dumps(figures(stage, outcome)))
        else:
            _sum_up(outcome)
    finally:
        await stage.stop()


def _say_nothing(_moment: Moment) -> None:
    """For programs, all is said at the end."""


def figures(stage: Stage, outcome: Outcome) -> dict[str, Any]:
    tally = outcome.tally
    return {
        "stage": stage.words,
        "accepted": tally.accepted,
        "handed_out": tally.handed_out,
        "lost": tally.lost,
        "doubled": tally.doubled,
        "redelivered": tally.marked,
        "out_of_order": tally.disordered,
        "healed_seconds": round(outcome.healed_seconds, 3),
        "events": outcome.events,
    }


class Board:
    """What the audience sees while it is played."""

    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._act = ""
        self._lines = 0
        self._looks = 0

    def tell(self, moment: Moment) -> None:
        if moment.act != self._act:
            self._act, self._lines, self._looks = moment.act, 0, 0
            typer.secho(f"\n{_ACTS[moment.act]}\n", bold=True)
        lines = lines_of(moment)
        if self._is_terminal:
            if self._lines:
                typer.echo(_UP.format(lines=self._lines), nl=False)
            self._lines = len(lines)
        elif self._looks % _LOOKS_A_LINE:
            self._looks += 1
            return
        self._looks += 1
        for line in lines:
            typer.echo(line)
        sys.stdout.flush()


def lines_of(moment: Moment) -> list[str]:
    tally = moment.tally
    total = f"{tally.accepted:,} confirmed to senders, {tally.handed_out:,} received"
    told = [f"  {moment.seconds:5.1f} s  {total}"]
    for part in moment.parts:
        view = part.partitions.get("main", {})
        managers = part.managers("main").values()
        held = sum(manager.get("held_back", 0) for manager in managers)
        state = typer.style(f"{_state(part):<36}", fg=_COLOURS.get(view.get("state", "")))
        told.append(f"           {', '.join(part.answers):<36} {state} {_who(view)}{_held(held)}")
    return told


def _state(part: Part) -> str:
    view = part.partitions.get("main", {})
    if not view:
        return "agrees on who is here"
    waits = view["state"] != "D" and not view["in_force"]
    return f"{view['state']}, {view['title']}" + (" (not in force yet)" if waits else "")


def _who(view: dict[str, Any]) -> str:
    return f"{view['leads']} leads" if view.get("leads") else "nobody leads"


def _held(count: int) -> str:
    return f", holds back {count:,}" if count else ""


def _sum_up(outcome: Outcome) -> None:
    tally = outcome.tally
    typer.secho("\nReconciliation\n", bold=True)
    for event in outcome.events:
        if event["event"] == "branch-taken-in":
            taken = count_of(event["messages"], "message")
            typer.echo(
                f"  {event['node']} took in the log of the other part, which had {taken} that it had not"
            )
        else:
            typer.echo(f"  {event['node']} set the log of its part aside, and took over the one that goes on")
    rows = (
        ("confirmed to senders", tally.accepted, False),
        ("received", tally.handed_out, tally.handed_out < tally.accepted),
        ("lost", tally.lost, tally.lost > 0),
        ("received twice", tally.doubled, tally.doubled > 0),
        ("received again, marked as redelivered", tally.marked, False),
        ("received out of order", tally.disordered, tally.disordered > 0),
    )
    typer.echo("")
    for words, count, is_wrong in rows:
        typer.secho(f"  {words:<40} {count:>6,}", fg="red" if is_wrong else None)
    typer.echo(f"\n  All was received {outcome.healed_seconds:.1f} s after the network was healed.")
    typer.echo("  docs/guides/partitions.md says what is promised, and what is not.")

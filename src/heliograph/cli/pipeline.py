"""`helio pipeline`: archive, audit, replay, dead letters and composite events, on Spark (D4, D5)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.presentation import count_of, harmless

app = typer.Typer(help="Data pipelines on Spark.", no_args_is_help=True)

VIOLATIONS = 4
"""The exit code of an audit that found something."""
LEFT_OUT = 4
"""The exit code where something that was asked for could not be sent."""

Master = Annotated[
    str,
    typer.Option(
        "--master",
        help="Where Spark runs: local[*], or spark://HOST:PORT of a cluster.",
        rich_help_panel="Spark",
    ),
]
Once = Annotated[
    bool, typer.Option("--once", help="Work through what there is and end, instead of going on.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Where the pipeline notes how far it has come.",
        show_default=False,
        rich_help_panel="Spark",
    ),
]
Partitions = Annotated[
    int,
    typer.Option(
        "--partitions", min=0, help="Tasks that read at a time; 0: one a core.", rich_help_panel="Spark"
    ),
]


@app.command("archive")
@at_server
def archive(
    server: Server,
    folder: Annotated[
        Path, typer.Argument(help="The archive: a folder of Parquet files by day and destination.")
    ],
    destination: Annotated[
        str,
        typer.Option(
            "--destination", "-d", help="What to archive: queue:NAME, topic:NAME, or a pattern with *."
        ),
    ] = "*",
    start: Annotated[
        str, typer.Option("--from", help="Where a new archive begins: earliest, latest, or a position.")
    ] = "earliest",
    once: Once = False,
    checkpoint: Checkpoint = None,
    partitions: Partitions = 0,
    master: Master = "local[*]",
) -> None:
    """Write the history of destinations to Parquet, each message once, and go on with it."""
    spark = _start("archive", master)
    from heliograph.spark.pipelines import archive as work

    options = {
        **_options(server),
        "destination": destination,
        "startingOffset": start,
        "partitions": partitions,
    }
    rows = work.run(
        spark,
        options,
        folder,
        checkpoint or folder / "_checkpoint",
        _progress(server),
        once=once,
        stopped=_stopper(),
    )
    server.tell({"rows": rows, "archive": str(folder)}, f"{count_of(rows, 'message')} archived in {folder}")


@app.command("audit")
@at_server
def audit(
    server: Server,
    report: Annotated[Path, typer.Option("--report", help="The report, one file of HTML.")] = Path(
        "audit.html"
    ),
    result: Annotated[
        Path | None, typer.Option("--result", help="Write violations as Parquet, too.", show_default=False)
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="Where to begin: earliest, or a position.")
    ] = "earliest",
    lanes: Annotated[
        bool,
        typer.Option(
            "--lanes/--no-lanes", help="Hold the order of senders against queues without units of order, too."
        ),
    ] = True,
    sub_cluster: Annotated[
        str, typer.Option(help="Of a cluster that has several, the one to look at.", show_default=False)
    ] = "",
    partitions: Partitions = 0,
    master: Master = "local[*]",
) -> None:
    """Reconcile what was sent, handed out, acknowledged and buried, and report what was lost, doubled or out of
    order.

    Ends with exit code 4 if anything was."""
    spark = _start("audit", master)
    from heliograph.spark.pipelines import audit as work
    from heliograph.spark.pipelines.report import write_report

    everything = f"*@{sub_cluster}" if sub_cluster else "*"
    options = {
        **_options(server),
        "destination": everything,
        "startingOffset": start,
        "partitions": partitions,
    }
    findings = work.run(spark, options, result, _progress(server), lanes=lanes)
    write_report(findings, report, title="Heliograph audit")
    found = [{**violation, "number": int(violation["number"])} for violation in findings.violations]
    server.tell(
        {
            "violations": found,
            "removed": _counted(findings.removed, "reason"),
            "untimed": _counted(findings.untimed, "kind"),
            "report": str(report),
        },
        lambda body: _show_violations(body["violations"], report),
    )
    if found:
        raise typer.Exit(VIOLATIONS)


def _counted(frame: Any, by: str) -> dict[str, int]:
    return {str(name): int(count) for name, count in zip(frame[by], frame["messages"], strict=True)}


def _show_violations(violations: list[dict[str, Any]], report: Path) -> None:
    for each in violations[:20]:
        typer.secho(f"{each['violation']:<13}", fg="red", nl=False)
        typer.echo(
            f" {harmless(each['destination'])}  {harmless(str(each['id']))}  {harmless(each['detail'])}"
        )
    if not violations:
        typer.secho("Nothing was lost, doubled or out of order.", fg="green")
    typer.echo(f"{count_of(len(violations), 'violation')}; the report is in {report}")


@app.command("replay")
@at_server
def replay(
    server: Server,
    folder: Annotated[Path, typer.Argument(help="The archive to replay from.")],
    destination: Annotated[str, typer.Argument(help="Where to: queue:NAME or topic:NAME.")],
    where: Annotated[
        str,
        typer.Option(
            "--where",
            help="Only messages for which this SQL is true: \"type = 'order'\".",
            show_default=False,
        ),
    ] = "",
    origin: Annotated[
        str,
        typer.Option(
            "--origin", help="Only messages that were sent to this destination.", show_default=False
        ),
    ] = "",
    since: Annotated[
        str, typer.Option("--since", help="Only messages from this time on.", show_default=False)
    ] = "",
    until: Annotated[
        str, typer.Option("--until", help="Only messages before this time.", show_default=False)
    ] = "",
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Messages a second at most; 0: no limit.")
    ] = 0.0,
    name: Annotated[
        str,
        typer.Option("--name", help="Go on with a replay of this name that was cut off.", show_default=False),
    ] = "",
    master: Master = "local[*]",
) -> None:
    """Send messages of an archive again, as new ones that say which they were."""
    spark = _start("replay", master)
    from heliograph.spark.pipelines import replay as work

    options = {**_options(server), "destination": destination}
    sent = work.run(
        spark,
        folder,
        options,
        _progress(server),
        where=where,
        origin=origin,
        since=since,
        until=until,
        rate=rate,
        name=name,
    )
    told = f"{count_of(sent.messages, 'message')} sent to {destination}"
    if sent.left_out:
        told += f"; {count_of(sent.left_out, 'large message')} left out: an archive has no content of them"
    server.tell({"messages": sent.messages, "left_out": sent.left_out}, told)
    if sent.left_out:
        raise typer.Exit(LEFT_OUT)


@app.command("dead-letters")
@at_server
def dead_letters(
    server: Server,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Send what is chosen back to where it came from.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="Only those that died of this.", show_default=False)
    ] = "",
    origin: Annotated[
        str,
        typer.Option("--origin", help="Only those that were sent to this destination.", show_default=False),
    ] = "",
    where: Annotated[
        str, typer.Option("--selector", "-s", help="Only those that this selects.", show_default=False)
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Go on with a redrive of this name that was cut off.", show_default=False
        ),
    ] = "",
    sub_cluster: Annotated[
        str,
        typer.Option(help="Of a cluster that has several, only the dead of this one.", show_default=False),
    ] = "",
    master: Master = "local[*]",
) -> None:
    """Sort the dead by reason, and send them back."""
    check_pipelines()
    from heliograph.spark.pipelines import dead_letters as work

    options = _options(server)
    chosen = {"reason": reason, "origin": origin, "where": where, "sub_cluster": sub_cluster}
    if not redrive:
        found = work.triage(options, **chosen)
        rows = [{**group._asdict(), "first": str(group.first), "last": str(group.last)} for group in found]
        server.tell({"reasons": rows}, lambda body: _show_reasons(body["reasons"]))
        return
    sent = work.redrive(_start("dead letters", master), options, _progress(server), **chosen, name=name)
    told = f"{count_of(sent.messages, 'message')} sent back"
    if sent.left_out:
        told += f"; {count_of(sent.left_out, 'large message')} left: `helio dmq redrive` sends such"
    server.tell({"messages": sent.messages, "left_out": sent.left_out}, told)
    if sent.left_out:
        raise typer.Exit(LEFT_OUT)


def _show_reasons(rows: list[dict[str, Any]]) -> None:
    if not rows:
        typer.echo("nothing is dead")
    for row in rows:
        typer.echo(
            f"{row['messages']:>8}  {harmless(str(row['reason'])):<20} {harmless(str(row['origin']))}",
            nl=False,
        )
        typer.echo(f"  {row['first']} to {row['last']}")


@app.command("events")
@at_server
def events(
    server: Server,
    rules: Annotated[Path, typer.Argument(help="The rules, a file in TOML.")],
    destination: Annotated[
        str,
        typer.Option(
            "--destination", "-d", help="What to watch: queue:NAME, topic:NAME, or a pattern with *."
        ),
    ] = "*",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say in words what the rules do, and end.")
    ] = False,
    start: Annotated[
        str, typer.Option("--from", help="Where to begin: earliest, latest, or a position.")
    ] = "latest",
    once: Once = False,
    checkpoint: Checkpoint = None,
    partitions: Partitions = 0,
    master: Master = "local[*]",
) -> None:
    """Watch for composite events by rules, and send a message, or raise an alert, for each."""
    from heliograph.spark.pipelines.rules import explained, read_rules

    known = read_rules(rules)
    if explain:
        told = explained(known)
        server.tell({"rules": told}, "\n\n".join(told))
        return
    spark = _start("events", master)
    from heliograph.spark.pipelines import events as work

    options = {
        **_options(server),
        "destination": destination,
        "startingOffset": start,
        "partitions": partitions,
    }
    place = checkpoint or rules.with_suffix(".checkpoint")
    rows = work.run(spark, options, known, place, _progress(server), once=once, stopped=_stopper())
    server.tell({"rows": rows}, f"{count_of(rows, 'message')} looked at")


# ---- what all of them need


def check_pipelines() -> None:
    """Raises ClientFault with what to do where Spark or Java is missing."""
    from importlib.util import find_spec

    from heliograph.model.errors import ClientFault

    needed = ("pyspark", "pyarrow", "pandas", "numpy", "matplotlib")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ClientFault(
            f"pipelines need Spark ({missing[0]} is missing): pip install 'heliograph[spark]'",
            code="spark-missing",
        )
    from heliograph.spark.pipelines.running import check_java

    check_java()


def _start(name: str, master: str) -> Any:
    """Raises ClientFault."""
    check_pipelines()
    from heliograph.spark.pipelines.running import start_spark

    return start_spark(name, master)


def _options(server: Server) -> dict[str, Any]:
    address = server.address
    return {"url": address.url, "user": address.user or "", "password": address.password or ""}


def _progress(server: Server) -> Any:
    return (lambda _: None) if server.as_json else lambda line: typer.secho(line, dim=True, err=True)


def _stopper() -> Any:
    """The first Ctrl-C, or a polite kill, lets the batch under way end."""
    asked: list[int] = []

    def stop(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    return lambda: bool(asked)

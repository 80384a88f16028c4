"""`helio alerts`: publish, subscribe, cancel, list, audit and watch alerts of a channel."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import FOLLOW_SECONDS, connected
from heliograph.cli.presentation import count_of, harmless
from heliograph.model.errors import ClientFault

if TYPE_CHECKING:
    from heliograph.client.alert import Alert
    from heliograph.client.alerts import AlertChannel

app = typer.Typer(
    help="Alerts: urgent news that are live until they end or are cancelled.", no_args_is_help=True
)

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel, NAME or alerts:NAME.")]
Topics = Annotated[
    str,
    typer.Argument(metavar="TOPICS", help="What to listen to, as in 'TAG:^db,disk;USER:ann'."),
]
Identity = Annotated[str, typer.Argument(metavar="ID", help="The alert's id, as publish and list print it.")]
Acknowledgements = Annotated[
    str,
    typer.Option("--acknowledgements", "-a", metavar="TOPICS", help="Acknowledgements to listen to, too."),
]
# From 10 down: what wakes somebody up, what is for today, what can wait.
_COLOURS = {
    10: "bright_white on red",
    9: "bold red",
    8: "red",
    7: "bold yellow",
    6: "yellow",
    5: "bold cyan",
    4: "cyan",
    3: "green",
    2: "blue",
    1: "bright_black",
}


def _run(server: Server, channel: str, purpose: str, work: Callable[[AlertChannel], Awaitable[Any]]) -> Any:
    import uvloop

    reconnect = FOLLOW_SECONDS if purpose in ("subscribe", "watch") else 0.0

    async def run() -> Any:
        async with connected(
            server.address, purpose=f"alerts {purpose}", reconnect_seconds=reconnect
        ) as connection:
            return await work(connection.alerts(channel))

    return uvloop.run(run())


@app.command("publish")
@at_server
def publish(
    server: Server,
    channel: Channel,
    destination: Annotated[str, typer.Argument(metavar="DEST", help="TAG:TEXT, PROFILE:NAME or USER:NAME.")],
    body: Annotated[
        str, typer.Argument(metavar="TEXT", help="What there is to say; - reads it from stdin.")
    ] = "",
    priority: Annotated[
        int, typer.Option("--priority", "-p", min=1, max=10, help="10 is the most urgent.")
    ] = 5,
    duration: Annotated[
        float, typer.Option("--duration", "-d", min=0.0, help="Seconds; 0: until it is cancelled.")
    ] = 0.0,
    fleeting: Annotated[bool, typer.Option("--fleeting", help="It may be lost with the server.")] = False,
    classification: Annotated[
        str, typer.Option("--classification", help="unclassified, confidential, secret or top-secret.")
    ] = "unclassified",
    cancel: Annotated[
        str, typer.Option("--cancel", help="Who may cancel it: originator or any.")
    ] = "originator",
    acknowledge: Annotated[
        str, typer.Option("--acknowledge", help="What is wanted of who gets it: none, client or receipt.")
    ] = "none",
) -> None:
    """Publish an alert and print its id."""
    text = sys.stdin.read() if body == "-" else body

    async def work(alerts: AlertChannel) -> str:
        return await alerts.publish(
            destination,
            text,
            priority=priority,
            duration=duration,
            persistent=not fleeting,
            classification=classification,  # type: ignore[arg-type]  # the library looks at it
            cancel=cancel,  # type: ignore[arg-type]
            acknowledge=acknowledge,  # type: ignore[arg-type]
        )

    identity = _run(server, channel, "publish", work)
    server.tell({"id": identity}, identity)


@app.command("subscribe")
@at_server
def subscribe(
    server: Server,
    channel: Channel,
    topics: Topics = "TAG:.*",
    acknowledgements: Acknowledgements = "",
    name: Annotated[
        str, typer.Option("--name", help="Alerts are kept under this name, and none comes twice.")
    ] = "",
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="End after this many alerts.", show_default=False),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", "-t", min=0.0, help="End when none came for so long.", show_default=False),
    ] = None,
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="Acknowledge each alert that asks for it.")
    ] = False,
) -> None:
    """Print alerts as they come, those that are live first, the most urgent first."""
    form = _as_json_line if server.as_json else _for_people()

    async def work(alerts: AlertChannel) -> int:
        shown = 0
        async with await alerts.subscribe(topics, acknowledgements=acknowledgements, name=name) as consumer:
            while shown != count and (alert := await consumer.receive(timeout)) is not None:
                typer.echo(form(alert))
                sys.stdout.flush()
                if acknowledge and alert.acknowledge_policy == "client":
                    await alert.acknowledge()
                shown += 1
        return shown

    received = _run(server, channel, "subscribe", work)
    if not server.as_json:
        typer.echo(count_of(received, "alert"), err=True)


@app.command("cancel")
@at_server
def cancel(server: Server, channel: Channel, identity: Identity) -> None:
    """Withdraw an alert. When this ends, nobody receives it any more."""
    _run(server, channel, "cancel", lambda alerts: alerts.cancel(identity))
    server.tell({"id": identity}, f"{harmless(identity)} is cancelled")


@app.command("list")
@at_server
def list_alerts(
    server: Server,
    channel: Channel,
    topics: Annotated[
        str, typer.Argument(metavar="TOPICS", help="Only those that match, as in 'TAG:^db;USER:ann'.")
    ] = "",
) -> None:
    """List the live alerts that you may see, the most urgent first."""
    found = _run(server, channel, "list", lambda alerts: alerts.list(topics))
    server.tell({"alerts": found}, lambda body: _show_list(body["alerts"]))


@app.command("audit")
@at_server
def audit(server: Server, channel: Channel, identity: Identity) -> None:
    """Print the life of an alert: published, delivered to whom, acknowledged, receipts, how it ended."""
    server.tell(_run(server, channel, "audit", lambda alerts: alerts.audit(identity)), _show_life)


@app.command("watch")
@at_server
def watch(server: Server, channel: Channel, topics: Topics = "TAG:.*") -> None:
    """Show alerts on the whole screen as they come and go, coloured by priority. Ctrl-C ends it."""
    if server.as_json:
        raise ClientFault(
            "watch is for people; `helio alerts subscribe --json` is for programs", code="usage"
        )
    from heliograph.cli.alerts_watch import watching

    _run(server, channel, "watch", lambda alerts: watching(alerts, topics))


# ---- how they look


def _as_json_line(alert: Alert) -> str:
    return json.dumps(
        {
            "id": alert.id,
            "channel": alert.channel,
            "destination": alert.destination,
            "priority": alert.priority,
            "text": alert.text,
            "user": alert.user,
            "time": alert.time.isoformat(),
            "duration": alert.duration,
            "classification": alert.classification,
            "acknowledgement_of": alert.correlation_id,
            "acknowledge": alert.acknowledge_policy,
            "redelivered": alert.redelivered,
        }
    )


def _for_people() -> Callable[[Alert], str]:
    def shown(alert: Alert) -> str:
        head = coloured(f"{alert.priority:>2}", alert.priority)
        kind = f"  acknowledges {alert.correlation_id}" if alert.is_acknowledgement else ""
        again = "  (again?)" if alert.redelivered else ""
        line = f"{head}  {alert.time:%H:%M:%S}  {alert.id}  {harmless(alert.destination)}  {alert.user}"
        text = f"\n      {harmless(alert.text)}" if alert.body else ""
        return f"{line}{kind}{again}{text}"

    return shown


def coloured(text: str, priority: int) -> str:
    """For a terminal; typer takes the colour out where there is none."""
    style = _COLOURS[priority]
    background = "red" if style.endswith("on red") else None
    return typer.style(text, fg=style.split()[-3 if background else -1], bg=background, bold="bold" in style)


def colour_of(priority: int) -> str:
    return _COLOURS[priority]


def _show_list(alerts: list[dict[str, Any]]) -> None:
    from datetime import datetime

    for each in alerts:
        arrived = datetime.fromtimestamp(each["arrived"])
        until = (
            f"until {datetime.fromtimestamp(each['expires']):%H:%M:%S}" if each["expires"] else "without end"
        )
        secret = "" if each["classification"] == "unclassified" else f"  {each['classification']}"
        priority = coloured(f"{each['priority']:>2}", each["priority"])
        typer.echo(
            f"{priority}  {arrived:%Y-%m-%d %H:%M:%S}  {each['id']}"
            f"  {harmless(each['destination'])}  {harmless(each['user'])}  {until},"
            f" delivered {each['delivered']}, acknowledged {each['acknowledged']}{secret}"
        )
        if each.get("beginning"):
            typer.echo(f"      {harmless(' '.join(each['beginning'].split()))}")
    typer.echo(count_of(len(alerts), "live alert"), err=True)


def _show_life(body: dict[str, Any]) -> None:
    from datetime import datetime

    state = "live" if body["live"] else "ended"
    typer.echo(f"{body['id']}  {harmless(body['destination'])}  priority {body['priority']}  {state}")
    for entry in body["entries"]:
        moment = datetime.fromtimestamp(entry["at"])
        identity = f"  {entry['id']}" if entry["id"] else ""
        who = f"  {harmless(entry['who'])}" if entry["who"] else ""
        typer.echo(f"  {moment:%Y-%m-%d %H:%M:%S.%f}  {entry['what']:<22}{who}{identity}")
    if body["left_out"]:
        typer.echo(f"  {body['left_out']:,} entries in between are left out", err=True)

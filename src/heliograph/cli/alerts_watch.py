"""`helio alerts watch`: live alerts on the whole screen, the most urgent on top, coloured by priority."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import datetime
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from heliograph.cli.alerts import colour_of
from heliograph.cli.presentation import duration_of, harmless
from heliograph.client.alert_consumer import AlertConsumer
from heliograph.client.alerts import AlertChannel

# How often what is live is asked for: others cancel, and time passes.
_REFRESH_SECONDS = 1.0
# Lines that fit a screen; there is no use in more.
_LINES = 100


async def watching(alerts: AlertChannel, topics: str) -> None:
    """Until somebody has seen enough."""
    async with await alerts.subscribe(topics) as consumer:
        news = asyncio.Event()
        listening = asyncio.create_task(_listen(consumer, news))
        try:
            with Live(auto_refresh=False, screen=True) as screen:
                while True:
                    screen.update(_table(alerts.address, await alerts.list(topics)), refresh=True)
                    news.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_REFRESH_SECONDS):
                            await news.wait()
        finally:
            listening.cancel()


async def _listen(consumer: AlertConsumer, news: asyncio.Event) -> None:
    """An alert that comes is on the screen at once."""
    async for _ in consumer:
        news.set()


def _table(channel: str, alerts: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{channel}: {len(alerts):,} live", expand=True)
    for column in ("", "since", "destination", "by", "ends", "delivered", "id"):
        table.add_column(column)
    for each in alerts[:_LINES]:
        left = each["expires"] - time.time()
        table.add_row(
            Text(f" {each['priority']:>2} ", style=colour_of(each["priority"])),
            f"{datetime.fromtimestamp(each['arrived']):%H:%M:%S}",
            Text(harmless(each["destination"]), style=colour_of(each["priority"])),
            harmless(each["user"]),
            f"in {duration_of(max(0, round(left)))}" if each["expires"] else "when cancelled",
            str(each["delivered"]),
            each["id"],
        )
    return table

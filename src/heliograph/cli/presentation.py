"""How figures, texts and messages look to a person. Nothing here reads or writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count_of(number: int, noun: str) -> str:
    """`1 message`, `12,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bytes_of(number: float) -> str:
    """`512 B`, `1.5 KiB`, `20 MiB`."""
    power = 0
    while abs(number) >= 1024 and power < len(_UNITS) - 1:
        number /= 1024
        power += 1
    return f"{number:.0f} {_UNITS[power]}" if power == 0 or number >= 10 else f"{number:.1f} {_UNITS[power]}"


def rate_of(per_second: float | None) -> str:
    """A rate without its unit: `–` while unknown, decimals only where they matter."""
    if per_second is None:
        return "–"
    return f"{per_second:,.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def duration_of(seconds: float) -> str:
    """`0.25 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.2f} s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole} s"


def moment_of(seconds: float) -> str:
    """`2026-11-18 09:30:12`, in this machine's time zone."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def harmless(text: str) -> str:
    """The text without anything that a terminal would obey: control characters become visible escapes."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shown_value(value: object) -> str:
    """A setting as it would be written in a configuration."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def paused_of(entry: Mapping[str, Any]) -> str:
    """What an administrator has paused of a destination, in a word or two."""
    production, consumption = entry["production_paused"], entry["consumption_paused"]
    if production and consumption:
        return "paused"
    return "production paused" if production else "consumption paused" if consumption else ""

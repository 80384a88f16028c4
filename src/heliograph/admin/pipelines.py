"""What is asked of data pipelines: the arguments, checked (docs/decisions/0024)."""

from __future__ import annotations

from heliograph.admin.subjects import Arguments, argument
from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_PIPELINE_NAME_BYTES


def name_in(arguments: Arguments, key: str = "name") -> str:
    """Raises ClientFault."""
    name: str = argument(arguments, key, str)
    if not 0 < len(name.encode()) <= MAX_PIPELINE_NAME_BYTES:
        raise ClientFault(
            f"the name of a pipeline has 1 to {MAX_PIPELINE_NAME_BYTES} bytes", code="argument-invalid"
        )
    return name


def number_in(arguments: Arguments, key: str, low: int, high: int, default: int | None = None) -> int:
    """Raises ClientFault."""
    number: int = argument(arguments, key, int, default)
    if not low <= number <= high:
        raise ClientFault(f"the argument {key} is {number}; it is {low} to {high}", code="argument-invalid")
    return number


def seconds_in(arguments: Arguments, default: float, most: float) -> float:
    """Raises ClientFault."""
    seconds = arguments.get("seconds", default)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= most:
        raise ClientFault(
            f"the argument seconds is more than 0 and at most {most:g}", code="argument-invalid"
        )
    return float(seconds)

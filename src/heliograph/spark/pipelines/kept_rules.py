"""What a checkpoint of composite events is of: the rules whose undecided events it keeps (D5).

Undecided events are kept by the number of their rule, and are marked by the place of each kind in it. Under other
rules they would be taken for something else, so a checkpoint says of which rules it is, in a file beside what Spark
keeps there. What a match does may be changed, and how late events may come; what is looked for may not.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from heliograph.model.errors import ClientFault
from heliograph.spark.pipelines.rules import Rule

FILE: Final = "rules.json"
KEYS_AS_TOLD: Final = 2
"""What makes a key: its text. Before, 1, texts that read like numbers were such: 0012 and 12 were one key."""
_BEGUN: Final = "metadata"
"""What Spark writes first into a checkpoint."""


class Kept(msgspec.Struct, frozen=True):
    """A rule, by what undecided events depend on."""

    name: str
    digest: str
    keys: int = 1


def check_rules(checkpoint: Path, rules: list[Rule], buckets: int) -> None:
    """Raises ClientFault `event-rules-changed` if the checkpoint is of others. A new one is of these from now on."""
    file = checkpoint / FILE
    now = [Kept(rule.name, _digest(rule, buckets), KEYS_AS_TOLD) for rule in rules]
    if (checkpoint / _BEGUN).exists() and file.exists():
        try:
            before = msgspec.json.decode(file.read_bytes(), type=list[Kept])
        except msgspec.MsgspecError as fault:
            raise ClientFault(
                f"{file} cannot be read: {fault}; {_what_to_do(checkpoint)}", code="event-rules-changed"
            ) from None
        if [kept.digest for kept in before] != [kept.digest for kept in now]:
            raise ClientFault(
                f"{_difference(before, now)} since {checkpoint} was begun, where undecided events are kept"
                f" by the rules of then; {_what_to_do(checkpoint)}",
                code="event-rules-changed",
            )
        if any(rule.by and kept.keys != KEYS_AS_TOLD for rule, kept in zip(rules, before, strict=True)):
            raise ClientFault(
                f"{checkpoint} was begun when 0012 and 12 were one key, and undecided events are kept there by"
                f" such keys; {_what_to_do(checkpoint, undo='go on with the version that began it')}",
                code="event-rules-changed",
            )
    _write(file, now)


def _digest(rule: Rule, buckets: int) -> str:
    """Of what is looked for, in which order events are named, and how keys are put into buckets."""
    told = [rule.by, rule.pattern_text, rule.window, rule.where, list(rule.events.items()), buckets]
    return blake2b(msgspec.json.encode(told), digest_size=16).hexdigest()


def _difference(before: list[Kept], now: list[Kept]) -> str:
    for number, (then, since) in enumerate(zip(before, now, strict=False), start=1):
        if then.digest != since.digest:
            return f"rule {number}, {since.name!r}, is another than {then.name!r}"
    return f"{len(before)} rules have become {len(now)}"


def _what_to_do(checkpoint: Path, undo: str = "undo the change") -> str:
    return (
        f"{undo}; or begin anew without them, with another --checkpoint or by removing {checkpoint}"
        " (--from says where to begin)"
    )


def _write(file: Path, rules: list[Kept]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{FILE}.{os.getpid()}")
    new.write_bytes(msgspec.json.encode(rules))
    new.replace(file)

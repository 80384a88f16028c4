"""What all members of a cluster must have been told alike, and how one that was told otherwise finds out.

Members with other leases would take each other for dead too early, members that hash other fields would own other
messages. So every beat says in words what its member goes by. A newcomer that differs from the members is refused;
those who are in go on. An engine: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from heliograph.clustered.events import Terms
from heliograph.clustered.hashing import HASH_VERSION
from heliograph.clustered.words import Beat

_LONGEST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Empty texts agree with everything: members of earlier versions said nothing of it."""

    terms: str = ""
    fields: str = ""
    mode: str = ""

    def differs(self, beat: Beat) -> str | None:
        """In which way that member goes by something else, for a person."""
        if beat.hash_version != HASH_VERSION:
            return (
                f"{beat.name} computes values by version {beat.hash_version}, this member by {HASH_VERSION}"
            )
        for what, mine, its in (
            ("terms", self.terms, beat.terms),
            ("fields", self.fields, beat.fields),
            ("mode", self.mode, beat.mode),
        ):
            if mine and its and mine != its:
                return f"the {what} of {beat.name}: {its}; of this member: {mine}"
        return None


def agreement(*, terms: Terms, fields: Sequence[str], acknowledge: str, transacts: bool) -> Agreement:
    return Agreement(
        terms=f"lease {terms.lease_seconds!r} s, drift {terms.drift!r}, skew {terms.skew_seconds!r} s",
        fields=_short(", ".join(fields)),
        mode="transacted" if transacts else f"acknowledge {acknowledge}",
    )


def _short(text: str) -> str:
    """Every beat has it."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({blake2b(text.encode(), digest_size=8).hexdigest()})"

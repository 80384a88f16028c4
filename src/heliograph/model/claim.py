"""What a client says of what a consumer has that was away: its claim to go on with it (M8)."""

from __future__ import annotations

import msgspec

Ranges = list[tuple[int, int]]


class Claim(msgspec.Struct, omit_defaults=True):
    """Inclusive ranges of delivery tags, in order: those that the client holds, and those that it settled lately.

    `seen` is the last tag that was handed to the application, -1 if that is not known. What comes after it and is
    not held goes back as if it had never been handed out; whatever else is not named goes back marked.
    """

    held: Ranges = []
    settled: Ranges = []
    seen: int = -1

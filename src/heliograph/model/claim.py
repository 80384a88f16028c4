"""What a client says of what a consumer has that was away: its claim to go on with it (M8)."""

from __future__ import annotations

import msgspec

Ranges = list[tuple[int, int]]
Tags = list[int]

# A tag has 63 bits: the number of a view, who leads in it, and so many deliveries to one consumer.
_VIEW_BITS, _MANAGER_BITS, _DELIVERY_BITS = 22, 8, 33
FIRST_OF_A_PART = 1 << (_MANAGER_BITS + _DELIVERY_BITS)


def first_tag(view: int, manager: int) -> int:
    """Tags of a part of a cut begin here, for the consumers that it found. Otherwise two parts would give one tag
    to different messages, and a client that comes from the one would settle at the other what it never had."""
    numbered = view % (1 << _VIEW_BITS) or 1
    return (numbered << _MANAGER_BITS | manager % (1 << _MANAGER_BITS)) << _DELIVERY_BITS


def part_of(tag: int) -> int:
    """Which part gave a tag; 0: the cluster before it was ever cut, or a server that is alone."""
    return tag >> _DELIVERY_BITS


def first_of(part: int) -> int:
    """The lowest tag that a part gives."""
    return part << _DELIVERY_BITS or 1


class Claim(msgspec.Struct, omit_defaults=True):
    """Inclusive ranges of delivery tags, in order: those that the client holds, and those that it settled lately.

    `seen` is the last tag that was handed to the application, -1 if that is not known. What comes after it and is
    not held goes back as if it had never been handed out; whatever else is not named goes back marked.
    `seen_elsewhere`: the same for the tags of other parts of a cluster, the last of each.
    """

    held: Ranges = []
    settled: Ranges = []
    seen: int = -1
    seen_elsewhere: Tags = []

    def last_named(self) -> Tags:
        """Of the tags that the client says it was given, the last of each part, in order."""
        named = [self.seen, *(last for _, last in (*self.held, *self.settled))]
        return list({part_of(tag): tag for tag in sorted(named) if tag > 0}.values())

"""A consumer that competes with others for one list: how much more it wants, and what it has."""

from __future__ import annotations

from heliograph.destinations.outstanding import Outstanding
from heliograph.model.block import Span
from heliograph.model.claim import Claim, Ranges, Tags, first_of, part_of
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.model.limits import (
    CONSUMER_WINDOW_BYTES,
    MAX_CLAIM_PARTS,
    MAX_CREDIT,
    MAX_TRANSACTION_BYTES,
)


class Consumer:
    """One taker."""

    __slots__ = (
        "away",
        "credit",
        "former",
        "given",
        "held_units",
        "identity",
        "inherited",
        "next_tag",
        "outstanding",
        "outstanding_bytes",
        "prefetch",
        "prompt",
        "queued",
        "retired",
        "session",
    )

    def __init__(
        self, identity: ConsumerId, session: SessionId, credit: int, *, prompt: bool, first_tag: int = 1
    ) -> None:
        self.identity = identity
        self.session = session
        self.credit = credit
        self.prompt = prompt  # settles each message as it goes
        self.prefetch = MAX_CREDIT
        self.next_tag = first_tag
        self.given: Ranges = []  # tags that it was given before those of this part, the latest last
        # What its client had of a consumer that was forgotten, in whose place it came: the last tag of each part.
        self.former: Tags = []
        self.inherited = (
            0  # tags up to here were given by another server, which may have lost some of it since
        )
        self.outstanding = Outstanding()
        self.outstanding_bytes = 0
        self.queued = False
        self.retired = False
        self.away = False  # its session lost its connection: it keeps what it has and is given nothing
        # Units that it has something of while more of them is held back: only it may get that.
        self.held_units: dict[int, None] = {}

    @property
    def is_transaction(self) -> bool:
        """It stands for a prepared transaction, which takes nothing and has what was consumed in it."""
        return not self.identity

    @property
    def room(self) -> int:
        """How many messages it can be given now."""
        if self.retired or self.away:
            return 0
        if self.outstanding_bytes >= (CONSUMER_WINDOW_BYTES if self.prompt else MAX_TRANSACTION_BYTES):
            return 0
        return min(self.credit, self.prefetch - self.outstanding.messages)

    def begin_tags(self, first: int) -> None:
        """What it is given from here on has these tags, unless it has later ones."""
        if first <= self.next_tag:
            return
        if last := self._given_here:
            self.given = [*self.given, last][-MAX_CLAIM_PARTS:]
        self.next_tag = first

    def begin_behind(self, claim: Claim) -> None:
        """It comes in place of one that was forgotten. Its client may not hear of that, and claim it with the tags
        that it had: none of them may be another message's."""
        self.former = claim.last_named()[-MAX_CLAIM_PARTS:]
        part = part_of(self.next_tag)
        for last in (*claim.last_named(), *claim.seen_elsewhere):
            if part_of(last) == part:
                self.next_tag = max(self.next_tag, last + 1)

    def is_unheard_of(self, claim: Claim) -> bool:
        """Whether its client has yet to hear that it is a new one: whoever heard it names nothing of the former."""
        before = {part_of(tag): tag for tag in self.former}
        named = claim.last_named()
        return bool(named) and all(tag <= before.get(part_of(tag), 0) for tag in named)

    @property
    def _given_here(self) -> tuple[int, int] | None:
        first = first_of(part_of(self.next_tag))
        return (first, self.next_tag - 1) if first < self.next_tag else None

    @property
    def all_given(self) -> Ranges:
        """Tags that it was given by those who had this log, so far as that is remembered."""
        here = self._given_here
        return sorted([*self.given, here] if here else self.given)

    def hold(self, span: Span) -> int:
        """It is handed these. Returns the tag of the first."""
        count = span.stop - span.start
        tag = self.next_tag
        self.next_tag = tag + count
        self.credit -= count
        self.outstanding.add(tag, span)
        self.outstanding_bytes += share(span)
        return tag

    def gave_up(self, spans: list[Span]) -> None:
        """It has these no more."""
        for span in spans:
            self.outstanding_bytes -= share(span)


def share(span: Span) -> int:
    """About how many bytes of its block a span is. The shares of all its parts add up to that of the
    whole."""
    block = span.block
    return block.size * span.stop // block.count - block.size * span.start // block.count

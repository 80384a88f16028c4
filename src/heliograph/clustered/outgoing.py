"""What a member has yet to say: words, and behind them the copies that others want. An engine: no clock, no I/O.

A lease is renewed by hearing one's own beat, so a beat must not stand behind megabytes. Copies wait until no other
word does, and only so many bytes of them are said ahead of what the member has heard of them itself: a client, a
socket or a broker may keep what it was given for as long as a slow line takes.

What order must be kept: that of all words but `Copy` and `Piece` (a `Done` counts on from the one before it, a beat
tells how many there were, and the last one says that there are no more), and that of the copies among themselves, so
that the pieces of one follow each other. Between the two any order will do. A copy says of no state what is not true
later too: whoever hears it when the message is done passes over it, marks it if not, and holds it if it is not the
owner any more; and whoever sends it has it until it hears `Done`, or leaves it behind for who needs it when it goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from heliograph.clustered.words import Beat, Copy, MemberKey, Piece, Word, encoded
from heliograph.model import limits

Cutting = Callable[[str, str], Iterator[Copy | Piece]]
"""The copy for this owner of the message with this id, in as many words as it takes: none if it is done."""


class Outgoing:
    """Words in their order, then copies in theirs. A copy is made when its turn has come, and is here once however
    often its owner asks for it meanwhile."""

    def __init__(self, key: MemberKey, cutting: Cutting) -> None:
        self._key = key
        self._cutting = cutting
        self._words: deque[Word] = deque()
        self._copies: dict[tuple[str, str], None] = {}
        self._under_way: Iterator[Copy | Piece] | None = None
        self._said_bytes = self._heard_bytes = 0
        self._beats: deque[tuple[float, int]] = deque()

    @property
    def has_words(self) -> bool:
        return bool(self._words)

    def put(self, word: Word) -> None:
        self._words.append(word)

    def put_copy(self, owner: str, identity: str) -> None:
        self._copies[owner, identity] = None

    def take(self) -> bytes | None:
        """What to say next. None: nothing, until something is put here or heard."""
        if self._words:
            word = self._words.popleft()
            if isinstance(word, Beat):
                self._beats.append((word.sent, self._said_bytes))
            return encoded(word)
        if self._said_bytes - self._heard_bytes >= limits.CLUSTERED_COPIES_AHEAD_BYTES:
            return None
        part = self._next_part()
        if part is None:
            return None
        raw = encoded(part)
        self._said_bytes += len(raw)
        return raw

    def _next_part(self) -> Copy | Piece | None:
        while self._copies:
            wanted = next(iter(self._copies))
            if self._under_way is None:
                self._under_way = self._cutting(*wanted)
            part = next(self._under_way, None)
            if part is not None:
                return part
            self._under_way = None
            del self._copies[wanted]
        return None

    def heard(self, word: Word, size: int) -> bool:
        """Whether it was one of mine behind which there may be room. Words may be lost, but keep their order: when I
        hear a beat, everything before it was heard, or never will be."""
        before = self._heard_bytes
        if isinstance(word, Beat):
            while word.key == self._key and self._beats and self._beats[0][0] <= word.sent:
                self._heard_bytes = max(self._heard_bytes, self._beats.popleft()[1])
        elif isinstance(word, Copy | Piece) and word.name == self._key[0]:
            self._heard_bytes = min(self._said_bytes, self._heard_bytes + size)
        return self._heard_bytes > before

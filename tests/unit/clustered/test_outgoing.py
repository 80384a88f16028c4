"""Beats never stand behind large copies, wherever these wait; and every copy goes out in the end (H1, H2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heliograph.clustered.outgoing import Outgoing
from heliograph.clustered.pieces import cut
from heliograph.clustered.words import Ask, Beat, Copy, Done, Piece, Word, decoded
from heliograph.model import limits

SIZE = limits.CLUSTERED_PIECE_BYTES
KEY = ("bob", 5)


class Bob:
    """What he holds, and what he says."""

    def __init__(self, **sizes: int) -> None:
        self.held = sizes
        self.outgoing = Outgoing(KEY, self._cut)

    def _cut(self, owner: str, identity: str) -> Iterator[Copy | Piece]:
        if identity in self.held:
            yield from cut(Copy("bob", owner, identity, 5, bytes(self.held[identity]), {}))

    def says(self, *, hears: bool = True) -> list[Word]:
        said = []
        while (raw := self.outgoing.take()) is not None:
            word = decoded(raw)
            assert word is not None
            said.append(word)
            if hears:
                self.outgoing.heard(word, len(raw))
        return said


def _kinds(words: list[Word]) -> list[str]:
    return [type(word).__name__ for word in words]


@pytest.mark.req("H2")
def test_a_beat_goes_before_copies_also_in_the_middle_of_one() -> None:
    bob = Bob(large=10 * SIZE)
    bob.outgoing.put_copy("ada", "large")
    first = bob.outgoing.take()
    assert first is not None
    assert isinstance(decoded(first), Piece)
    bob.outgoing.put(Done(*KEY, 1, ["m-1"]))
    bob.outgoing.put(Beat(*KEY, 1.0))
    assert _kinds(bob.says())[:3] == ["Done", "Beat", "Piece"]


@pytest.mark.req("H2")
def test_no_more_of_copies_is_under_way_than_a_slow_line_carries_between_beats() -> None:
    """Whatever its client, a socket and the broker would take."""
    bob = Bob(large=10 * SIZE)
    bob.outgoing.put_copy("ada", "large")
    ahead = bob.says(hears=False)
    assert _kinds(ahead) == ["Piece"] * 4
    bob.outgoing.put(Beat(*KEY, 1.0))
    assert _kinds(bob.says(hears=False)) == ["Beat"]
    assert bob.outgoing.heard(ahead[0], SIZE)
    assert _kinds(bob.says(hears=False)) == ["Piece"]


def test_pieces_that_were_lost_are_not_waited_for_behind_a_beat_that_was_heard() -> None:
    bob = Bob(large=10 * SIZE)
    bob.outgoing.put_copy("ada", "large")
    bob.says(hears=False)
    bob.outgoing.put(Beat(*KEY, 1.0))
    bob.says(hears=False)
    assert not bob.outgoing.heard(Beat("bob", 4, 2.0), 50)  # of an earlier life
    assert not bob.outgoing.heard(Beat("ada", 5, 2.0), 50)
    assert bob.outgoing.heard(Beat(*KEY, 1.0), 50)
    assert _kinds(bob.says(hears=False)) == ["Piece"] * 4


@pytest.mark.req("H1")
def test_copies_follow_each_other_whole_each_once_however_often_it_is_wanted() -> None:
    bob = Bob(one=3 * SIZE, two=10, three=2 * SIZE)
    for identity in ("one", "two", "three"):
        bob.outgoing.put_copy("ada", identity)
    first = bob.outgoing.take()
    assert first is not None
    bob.outgoing.put_copy("ada", "one")
    bob.outgoing.put_copy("ada", "three")
    bob.outgoing.put(Ask("bob", "ada", ["m-1"]))
    said = bob.says()
    ids = [word.id for word in said if isinstance(word, Copy | Piece)]
    assert ids == ["one", "one", "one", "two", "three", "three", "three"]
    bob.outgoing.put_copy("ada", "two")
    assert _kinds(bob.says()) == ["Copy"]  # it was lost, and is asked for again


def test_what_is_done_before_its_turn_is_not_sent() -> None:
    bob = Bob(one=10, two=10)
    bob.outgoing.put_copy("ada", "one")
    bob.outgoing.put_copy("ada", "two")
    del bob.held["one"]
    assert [word.id for word in bob.says() if isinstance(word, Copy)] == ["two"]

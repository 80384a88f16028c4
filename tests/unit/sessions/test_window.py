"""The window: unconfirmed bytes are counted exactly, so that no connection is stopped for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.model.limits import SESSION_UNCONFIRMED_BYTES
from heliograph.sessions.window import Window

pytestmark = pytest.mark.req("M7")


def test_what_is_sent_counts_until_it_is_confirmed() -> None:
    window = Window()
    window.sent(b"a", 10, 100)
    window.sent(b"a", 20, 200)
    window.sent(b"b", 5, 1000)
    assert window.unconfirmed == 1300
    window.confirmed(b"a", 10)
    assert window.unconfirmed == 1200
    window.confirmed(b"a", 19)  # in the middle of a block: the block is not
    assert window.unconfirmed == 1200
    window.confirmed(b"a", 20)
    window.confirmed(b"b", 5)
    assert window.unconfirmed == 0


def test_it_is_full_beyond_its_limit() -> None:
    window = Window()
    window.sent(b"a", 1, SESSION_UNCONFIRMED_BYTES)
    assert not window.full
    window.sent(b"b", 1, 1)
    assert window.full
    window.confirmed(b"a", 1)
    assert not window.full


def test_a_lane_that_nobody_knows_changes_nothing() -> None:
    window = Window()
    window.confirmed(b"a", 5)
    window.refused(b"a")
    assert window.unconfirmed == 0


def test_what_is_under_way_when_a_lane_is_refused_does_not_stay_in_the_window() -> None:
    """Nobody confirms it. If it counted, a few refusals would stop the connection for ever."""
    window = Window()
    for number in range(100):
        lane = b"%d" % number
        window.sent(lane, 1, 1 << 20)
        window.sent(lane, 2, 1 << 20)
        window.refused(lane)
        for sequence in range(3, 10):
            window.sent(lane, sequence, 1 << 20)
        assert window.unconfirmed == 0
    assert not window.full


def test_what_was_stored_before_a_refusal_may_be_confirmed_after_it() -> None:
    window = Window()
    window.sent(b"a", 5, 100)
    window.sent(b"a", 6, 100)
    window.refused(b"a")
    window.confirmed(b"a", 5)
    window.sent(b"a", 7, 100)
    assert window.unconfirmed == 0


def test_a_lane_that_is_opened_anew_counts_again() -> None:
    window = Window()
    window.sent(b"a", 5, 100)
    window.sent(b"a", 9, 100)
    window.refused(b"a")
    window.sent(b"a", 5, 70)  # begins again where it was refused
    window.sent(b"a", 12, 30)
    assert window.unconfirmed == 100
    window.confirmed(b"a", 12)
    assert window.unconfirmed == 0


def test_a_lane_that_goes_on_elsewhere_counts_again_once_it_is_confirmed() -> None:
    window = Window()
    window.sent(b"a", 5, 100)
    window.refused(b"a")
    window.sent(b"a", 8, 100)
    window.confirmed(b"a", 8)
    window.sent(b"a", 9, 100)
    assert window.unconfirmed == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(("sent", "confirmed", "refused")), st.sampled_from((b"a", b"b", b"c"))),
        max_size=60,
    )
)
@settings(max_examples=200, deadline=None)
def test_the_count_is_never_wrong(steps: list[tuple[str, bytes]]) -> None:
    """Against a plain account: what was sent and neither confirmed nor refused, nothing after a refusal."""
    window = Window()
    last = dict.fromkeys((b"a", b"b", b"c"), 0)
    open_sizes: dict[bytes, list[int]] = {b"a": [], b"b": [], b"c": []}
    refused: set[bytes] = set()
    for step, lane in steps:
        if step == "sent":
            last[lane] += 1
            window.sent(lane, last[lane], last[lane])
            if lane not in refused:
                open_sizes[lane].append(last[lane])
        elif step == "confirmed" and open_sizes[lane]:
            window.confirmed(lane, open_sizes[lane].pop(0))
        elif step == "refused" and open_sizes[lane]:
            window.refused(lane)
            open_sizes[lane].clear()
            refused.add(lane)
        assert window.unconfirmed == sum(map(sum, open_sizes.values()))

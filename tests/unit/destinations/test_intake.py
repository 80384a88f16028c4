"""What a destination accepts: each message of a lane once, in sequence, confirmed only when it is safe."""

import pytest

from heliograph.bus.commands import Confirmed, Refused
from heliograph.destinations.effects import AnyEffect, Missed
from heliograph.destinations.intake import Intake, number_mark
from heliograph.model.block import Block
from heliograph.model.ids import lane_of
from tests.unit.destinations.stories import (
    LANE,
    OTHER_LANE,
    SESSION,
    a_session,
    lone,
    several,
    told,
)

pytestmark = pytest.mark.req("J11", "J3")


def accepted(intake: Intake, block: Block) -> bool:
    effects: list[AnyEffect] = []
    taken = intake.accept(block, effects)
    assert all(isinstance(effect, Missed) for effect in effects)
    return taken


def sent(intake: Intake, block: Block, *, to_disk: bool) -> list[AnyEffect]:
    effects: list[AnyEffect] = []
    assert intake.accept(block, effects)
    if to_disk:
        intake.persist(block)
    else:
        intake.confirm(block, effects)
    return effects


def stored(intake: Intake, *blocks: Block) -> list[tuple[bytes, int]]:
    effects: list[AnyEffect] = []
    intake.stored(list(blocks), effects)
    intake.arrived(list(blocks))
    return [(each.lane, each.last) for each in told(effects, Confirmed)]


def test_blocks_in_sequence_are_accepted_and_numbered_across_lanes_and_modes() -> None:
    intake = Intake()
    blocks = [several(1, 3), lone(1, lane=OTHER_LANE, persistent=False), several(4, 2)]
    assert all(accepted(intake, block) for block in blocks)
    assert [block.number for block in blocks] == [1, 4, 5]
    assert intake.next_number == 7


def test_a_gap_ends_the_lane_and_tells_where() -> None:
    intake = Intake()
    assert accepted(intake, several(1, 2))
    effects: list[AnyEffect] = []
    assert not intake.accept(lone(4), effects)
    (refused,) = told(effects, Refused)
    assert (refused.lane, refused.first, refused.code) == (LANE, 3, "sequence-gap")
    assert not accepted(intake, lone(3)), "a lane that was refused takes nothing more, and says so once"
    assert not accepted(intake, lone(5))
    assert accepted(intake, lone(1, lane=OTHER_LANE)), "the others go on"


def test_a_block_of_which_a_part_is_known_is_refused() -> None:
    intake = Intake()
    assert accepted(intake, several(1, 3))
    effects: list[AnyEffect] = []
    assert not intake.accept(several(3, 2), effects)
    assert [each.first for each in told(effects, Refused)] == [4]


def test_what_is_sent_again_is_confirmed_again_and_not_taken() -> None:
    intake = Intake()
    sent(intake, several(1, 3), to_disk=False)
    effects: list[AnyEffect] = []
    assert not intake.accept(several(1, 2), effects)
    assert told(effects, Confirmed) == [Confirmed(LANE, 3)]
    assert intake.next_number == 4


def test_what_is_sent_again_while_it_is_written_is_confirmed_when_it_is_stored() -> None:
    intake = Intake()
    block = several(1, 3)
    assert sent(intake, block, to_disk=True) == []
    assert not accepted(intake, several(1, 3))
    assert stored(intake, block) == [(LANE, 3)]


def test_one_confirmation_for_all_blocks_of_a_lane_that_were_stored_together() -> None:
    intake = Intake()
    blocks = [lone(1), lone(1, lane=OTHER_LANE), lone(2), lone(3)]
    for block in blocks:
        sent(intake, block, to_disk=True)
    assert stored(intake, *blocks[:3]) == [(LANE, 2), (OTHER_LANE, 1)]
    assert stored(intake, blocks[3]) == [(LANE, 3)]


def test_a_message_that_needs_no_disk_does_not_confirm_one_that_is_being_written() -> None:
    intake = Intake()
    first, third = lone(1), lone(3)
    assert sent(intake, first, to_disk=True) == []
    assert sent(intake, lone(2, persistent=False), to_disk=False) == []
    assert sent(intake, third, to_disk=True) == []
    assert sent(intake, lone(4, persistent=False), to_disk=False) == []
    assert stored(intake, first) == [(LANE, 1)]
    assert stored(intake, third) == [(LANE, 4)], "and is confirmed with it"
    assert told(sent(intake, lone(5, persistent=False), to_disk=False), Confirmed) == [Confirmed(LANE, 5)]


def test_a_full_disk_takes_back_the_last_block_and_ends_its_lane() -> None:
    intake = Intake()
    first, second = several(1, 2), several(3, 4)
    sent(intake, first, to_disk=True)
    sent(intake, second, to_disk=True)
    effects: list[AnyEffect] = []
    intake.not_stored(second, "storage-full", "no room", effects)
    assert [(each.first, each.code) for each in told(effects, Refused)] == [(3, "storage-full")]
    assert intake.next_number == 3, "its numbers are free again"
    assert not accepted(intake, lone(3))
    other = lone(1, lane=OTHER_LANE)
    assert accepted(intake, other)
    assert other.number == 3
    assert stored(intake, first) == [(LANE, 2)]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_block_that_is_taken_back_leaves_what_is_not_in_the_log_before_it_as_it_was(
    persistent: bool,
) -> None:
    """Backups are told how far the lane came: nobody else says so, and its client waits for that."""
    intake = Intake()
    first, third = lone(1), lone(3, persistent=persistent)
    sent(intake, first, to_disk=True)
    sent(intake, lone(2, persistent=False), to_disk=False)
    sent(intake, third, to_disk=True)
    intake.not_stored(third, "storage-full", "no room", [])
    assert intake.mark_beyond_log(LANE) == 2
    assert intake.beyond_log() == [(LANE, 2)]
    assert intake.unconfirmed() == [(LANE, 2)]
    assert stored(intake, first) == [(LANE, 2)]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_block_of_a_transaction_that_is_taken_back_leaves_what_is_before_it_as_it_was(
    persistent: bool,
) -> None:
    intake = Intake()
    assert intake.accept(lone(1, persistent=False), [], number=False)
    refused = lone(2, persistent=persistent)
    assert intake.accept(refused, [], number=False)
    intake.stage_refused(refused, "storage-full", "no room", [])
    assert intake.beyond_log() == [(LANE, 1)]


def test_what_is_in_the_log_is_not_said_beside_it_when_what_follows_is_taken_back() -> None:
    intake = Intake()
    sent(intake, lone(1), to_disk=True)
    second = lone(2, persistent=False)
    sent(intake, second, to_disk=True)
    intake.not_stored(second, "storage-full", "no room", [])
    assert intake.mark_beyond_log(LANE) == 0
    assert intake.beyond_log() == []


def test_a_lane_that_was_refused_goes_on_when_it_is_resumed() -> None:
    intake = Intake()
    first, second = lone(1), lone(2)
    sent(intake, first, to_disk=True)
    sent(intake, second, to_disk=True)
    intake.not_stored(second, "storage-full", "no room", [])
    assert intake.resume(LANE) == 0, "the first is not stored yet"
    stored(intake, first)
    assert intake.resume(LANE) == 1
    assert accepted(intake, lone(2))


def test_a_resumed_lane_may_begin_further_on_and_only_there() -> None:
    intake = Intake()
    assert accepted(intake, several(1, 2))
    assert intake.resume(LANE) == 2
    assert accepted(intake, lone(7)), "what lies between was confirmed and ended with the server that had it"
    effects: list[AnyEffect] = []
    assert not intake.accept(lone(10), effects)
    assert [each.first for each in told(effects, Refused)] == [8]


def test_a_resumed_lane_that_went_on_in_sequence_may_not_leave_a_gap_later() -> None:
    intake = Intake()
    assert intake.resume(LANE) == 0
    assert accepted(intake, lone(1))
    effects: list[AnyEffect] = []
    assert not intake.accept(lone(3), effects)
    assert [each.code for each in told(effects, Refused)] == ["sequence-gap"]


@pytest.mark.req("P7")
@pytest.mark.parametrize("went_on", [False, True])
def test_what_is_lost_on_a_lane_since_it_was_resumed_was_not_confirmed(went_on: bool) -> None:
    """What follows is passed over, and nobody is told: its client comes again, and sends both."""
    intake = Intake()
    assert accepted(intake, several(1, 2))
    intake.begin_view()
    assert intake.resume(LANE) == 2
    if went_on:
        assert accepted(intake, lone(3))
    mark = intake.marks()[LANE]
    intake.may_lack(LANE)
    assert not accepted(intake, lone(7))
    assert not intake.would_accept(lone(7))
    assert accepted(intake, lone(mark + 1)), "this was not lost"
    assert intake.resume(LANE) == mark + 1
    assert accepted(intake, lone(7)), "now its client says so"


def test_a_session_that_ended_is_forgotten_and_the_others_are_not() -> None:
    intake = Intake()
    for lane in (LANE, lane_of(SESSION, 2), OTHER_LANE):
        assert accepted(intake, lone(1, lane=lane))
    intake.forget(SESSION)
    assert list(intake.marks()) == [OTHER_LANE]
    intake.forget(a_session())
    assert list(intake.marks()) == [OTHER_LANE]


def test_what_is_still_being_written_for_a_session_that_ended_is_stored_all_the_same() -> None:
    intake = Intake()
    block = lone(1)
    sent(intake, block, to_disk=True)
    intake.forget(SESSION)
    assert stored(intake, block) == [(LANE, 1)]
    assert not intake.pending


def test_replay_gives_the_numbers_of_before_though_some_were_never_stored() -> None:
    intake = Intake()
    blocks = [lone(1), several(2, 3, persistent=False), several(5, 2), lone(7, persistent=False), lone(8)]
    for block in blocks:
        assert accepted(intake, block)
    again = Intake()
    for block in (lone(1), several(5, 2), lone(8)):
        original = next(each for each in blocks if each.first == block.first)
        again.replay(block, number_mark(original))
        assert block.number == original.number
    assert again.next_number == intake.next_number == 9
    assert again.marks() == intake.marks()


def test_numbers_beyond_four_billion_are_found_again() -> None:
    intake = Intake()
    intake.restore({}, 2**32 - 1)
    blocks = [lone(1), lone(2, persistent=False), lone(3)]
    assert all(accepted(intake, block) for block in blocks)
    again = Intake()
    again.restore({}, 2**32 - 1)
    for original in (blocks[0], blocks[2]):
        block = lone(original.first)
        again.replay(block, number_mark(original))
        assert block.number == original.number


@pytest.mark.req("J3", "M8")
def test_what_need_not_survive_and_was_sent_again_may_have_been_handed_out_by_a_server_that_is_gone() -> None:
    """At most once: it ended there. What is new on the lane since, this server knows of itself."""
    intake = Intake()
    intake.restore({LANE: 3}, 4)
    intake.recovered()
    light = lone(4, persistent=False)
    assert accepted(intake, light)
    assert intake.may_have_ended(light, resent=True)
    assert not intake.may_have_ended(lone(5), resent=True), "on disk it would be known"
    assert not intake.may_have_ended(lone(6, persistent=False), resent=False)
    assert not intake.may_have_ended(lone(7, persistent=False), resent=True), (
        "the connection broke, not the server"
    )
    intake.forget(SESSION)
    assert intake.may_have_ended(light, resent=True)


def test_a_server_that_was_there_from_the_beginning_takes_what_is_sent_again_for_new() -> None:
    assert not Intake().may_have_ended(lone(1, persistent=False), resent=True)


def test_numbers_that_a_server_gave_and_lost_are_given_again() -> None:
    """What is not persistent takes numbers that the log does not tell: whoever reads it again gives them to others,
    and a backup that had heard of them from a snapshot follows."""
    backup = Intake()
    backup.restore({LANE: 90}, 91)
    block = several(91, 2)
    backup.replay(block, 89)
    assert (block.number, backup.next_number) == (89, 91)
    later = several(93, 1)
    backup.replay(later, 200)
    assert (later.number, backup.next_number) == (200, 201)


def test_what_follows_something_lost_between_views_is_passed_over_and_sent_again_with_it() -> None:
    intake = Intake()
    assert accepted(intake, several(1, 3))
    intake.begin_view()
    assert not accepted(
        intake, several(7, 2)
    )  # nobody is told: its client manager asks its client to come again
    assert intake.resume(LANE) == 3
    assert accepted(intake, several(4, 5))
    effects: list[AnyEffect] = []
    assert not intake.accept(several(12, 1), effects)
    assert [each.code for each in told(effects, Refused)] == [
        "sequence-gap"
    ]  # in a view, it is the client's fault


def test_a_backup_knows_how_far_a_lane_came_that_the_log_does_not_tell() -> None:
    backup = Intake()
    backup.replay(several(1, 3), 1)
    backup.advance(LANE, 5)
    assert backup.beyond_log() == [(LANE, 5)]
    backup.advance(LANE, 9)
    backup.advance(LANE, 7)  # it was said before
    assert backup.beyond_log() == [(LANE, 9)]
    assert backup.mark_beyond_log(LANE) == 9
    backup.retreat(LANE, 8)
    assert backup.beyond_log() == [(LANE, 8)]

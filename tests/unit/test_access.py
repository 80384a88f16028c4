"""Who may do what, where (X2, M11)."""

import time

import pytest

from heliograph.model.address_pattern import AddressPattern
from heliograph.model.errors import ClientFault, NotAllowed
from heliograph.model.limits import MAX_ACCESS_DECISIONS
from heliograph.sessions.access import (
    GUEST,
    AccessControl,
    CreationRule,
    Identity,
    Right,
    Rule,
)

ANN = Identity("ann", ("clerk",))
BOB = Identity("bob")
ROOT = Identity("root", ("admin",))

pytestmark = pytest.mark.req("X2")


def rule(
    destinations: str, *rights: Right, users: tuple[str, ...] = (), roles: tuple[str, ...] = ("clerk",)
) -> Rule:
    return Rule(destinations=destinations, rights=rights, users=users, roles=roles)


def granted(control: AccessControl, user: Identity, address: str) -> list[str]:
    return [str(right) for right in Right if control.allows(user, right, address)]


def test_a_user_has_what_rules_give_by_name_or_role_and_nothing_else() -> None:
    control = AccessControl(
        [
            rule("queue:orders.*", Right.SEND, Right.RECEIVE),
            rule("topic:prices", Right.RECEIVE, users=("bob",), roles=()),
        ]
    )
    assert granted(control, ANN, "queue:orders.new") == ["send", "receive"]
    assert granted(control, ANN, "queue:orders") == []
    assert granted(control, ANN, "topic:orders.new") == []
    assert granted(control, BOB, "topic:prices") == ["receive"]
    assert granted(control, BOB, "queue:orders.new") == []
    assert granted(control, Identity("eve"), "topic:prices") == []


def test_the_role_admin_has_every_right_on_ordinary_names_and_on_the_server() -> None:
    control = AccessControl()
    assert granted(control, ROOT, "queue:anything") == list(Right)
    assert control.allows(ROOT, Right.ADMIN)
    assert not control.allows(ANN, Right.ADMIN)


def test_a_rule_can_make_somebody_administer_some_destinations_without_the_server() -> None:
    control = AccessControl([rule("queue:orders.*", Right.ADMIN)])
    assert control.allows(ANN, Right.ADMIN, "queue:orders.new")
    assert not control.allows(ANN, Right.ADMIN)


def test_a_refusal_is_the_same_sentence_whatever_exists() -> None:
    with pytest.raises(NotAllowed) as refusal:
        AccessControl().check(ANN, Right.SEND, "queue:secret")
    assert refusal.value.code == "not-allowed"
    assert refusal.value.sentence == "user 'ann' may not send to queue:secret"
    with pytest.raises(NotAllowed, match="may not administer this server"):
        AccessControl().check(ANN, Right.ADMIN)


@pytest.mark.req("M11")
def test_well_known_destinations_have_their_own_rights() -> None:
    control = AccessControl([rule("*", *Right)])
    for address in ("queue:_DMQ", "topic:_LOG", "topic:_ADMIN", "queue:_other"):
        assert granted(control, ANN, address) == [], f"a wildcard does not reach {address}"
    assert granted(control, ROOT, "queue:_DMQ") == ["receive", "browse", "admin"]
    assert granted(control, ROOT, "topic:_LOG") == ["receive", "browse", "admin"]
    assert granted(control, ROOT, "topic:_ADMIN") == ["send", "receive", "browse", "admin"]


@pytest.mark.req("M11")
def test_a_rule_that_spells_out_the_underscore_gives_what_may_be_given() -> None:
    control = AccessControl(
        [
            rule("queue:_DMQ", *Right),
            rule("topic:_LOG", *Right),
            rule("topic:_ADMIN", *Right),
            rule("queue:_x*", *Right),
        ]
    )
    assert granted(control, ANN, "queue:_DMQ") == ["receive", "browse"]
    assert granted(control, ANN, "topic:_LOG") == ["receive"]
    assert granted(control, ANN, "topic:_ADMIN") == []
    assert granted(control, ANN, "queue:_xyz") == []


@pytest.mark.req("M11")
def test_on_an_open_server_everybody_has_all_rights_but_makes_no_reserved_names() -> None:
    control = AccessControl(open_to_everyone=True)
    assert granted(control, GUEST, "queue:orders") == list(Right)
    assert control.allows(GUEST, Right.ADMIN)
    assert granted(control, GUEST, "queue:_mine") == []
    assert granted(control, GUEST, "queue:_DMQ") == ["receive", "browse", "admin"]


@pytest.mark.parametrize(
    ("pattern", "matched", "unmatched"),
    [
        ("*", ["queue:a", "topic:b"], []),
        ("*:a", ["queue:a", "topic:a"], ["queue:b"]),
        ("queue:a?c", ["queue:abc", "queue:aéc"], ["queue:ac", "queue:abbc"]),
        ("queue:a.c", ["queue:a.c"], ["queue:abc"]),
        ("queue:[ab](x|y)+$", ["queue:[ab](x|y)+$"], ["queue:ax"]),
        ("topic:*.eu", ["topic:prices.eu", "topic:.eu"], ["topic:prices.eu.west", "queue:prices.eu"]),
    ],
)
def test_stars_and_question_marks_are_the_only_wildcards(
    pattern: str, matched: list[str], unmatched: list[str]
) -> None:
    matches = AddressPattern(pattern).matches
    assert all(matches(address) for address in matched)
    assert not any(matches(address) for address in unmatched)


@pytest.mark.parametrize(
    "pattern", ["", "orders", "queue:", ":a", "mailbox:a", "queue:a\nb", "queue:" + "a" * 300]
)
def test_a_pattern_that_could_match_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ClientFault) as fault:
        rule(pattern, Right.SEND)
    assert fault.value.code == "pattern-invalid"


def test_a_rule_for_nobody_or_of_nothing_is_refused() -> None:
    with pytest.raises(ClientFault, match="no users and no roles"):
        rule("queue:a", Right.SEND, roles=())
    with pytest.raises(ClientFault, match="gives no rights"):
        rule("queue:a")


def test_no_pattern_can_stall_the_server() -> None:
    control = AccessControl([rule("queue:" + "*a" * 120, Right.SEND)])
    began = time.process_time()
    assert not control.allows(ANN, Right.SEND, "queue:" + "a" * 255 + "b")
    assert time.process_time() - began < 1, "a backtracking matcher would take longer than the universe"


def test_clients_that_try_names_without_end_do_not_fill_the_memory() -> None:
    control = AccessControl()
    for number in range(MAX_ACCESS_DECISIONS + 10):
        control.allows(ANN, Right.SEND, f"queue:{number}")
    assert len(control._decisions) <= MAX_ACCESS_DECISIONS


@pytest.mark.req("M11")
def test_who_may_create_is_decided_by_the_first_creation_rule_that_matches() -> None:
    control = AccessControl(
        [rule("*", Right.SEND, Right.CREATE)],
        creation=[
            CreationRule(destinations="queue:orders.*", users=["bob"]),
            CreationRule(destinations="queue:*"),
        ],
    )
    assert not control.allows(ANN, Right.CREATE, "queue:orders.new"), "whatever other rules say"
    assert control.allows(BOB, Right.CREATE, "queue:orders.new"), "without any other rule"
    assert not control.allows(BOB, Right.CREATE, "queue:else")
    assert control.allows(ANN, Right.CREATE, "topic:else"), "no creation rule is about it"
    assert control.allows(ANN, Right.SEND, "queue:orders.new"), "other rights are as they were"
    assert all(control.allows(ROOT, Right.CREATE, f"queue:{name}") for name in ("orders.new", "else"))
    assert not control.allows(BOB, Right.CREATE, "queue:_orders.x")


@pytest.mark.req("M11")
def test_creation_rules_bind_everybody_on_a_server_without_users() -> None:
    creation = [CreationRule(destinations="queue:*"), CreationRule(destinations="topic:t.*", users=["guest"])]
    control = AccessControl(open_to_everyone=True, creation=creation)
    assert not control.allows(GUEST, Right.CREATE, "queue:a")
    assert control.allows(GUEST, Right.CREATE, "topic:t.a")
    assert control.allows(GUEST, Right.CREATE, "topic:else")

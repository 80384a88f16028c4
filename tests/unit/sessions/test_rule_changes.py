"""Rules that are granted and revoked, one after the other."""

from __future__ import annotations

import pytest

from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_ACCESS_RULES
from heliograph.sessions.access import AccessControl, Identity, Right, Rule
from heliograph.sessions.rule_changes import granted, loses, revoked

pytestmark = pytest.mark.req("X2")

SEND, RECEIVE = Right.SEND, Right.RECEIVE
ANN = Identity("ann")
BOB = Identity("bob", ("clerk",))


def rule(destinations: str, *rights: Right, users: str = "", roles: str = "") -> Rule:
    return Rule(destinations=destinations, rights=rights, users=users.split(), roles=roles.split())


def texts(rules: tuple[Rule, ...]) -> list[str]:
    return [each.text for each in rules]


def test_more_rights_for_the_same_are_one_rule() -> None:
    rules = granted((), rule("queue:*", SEND, users="ann bob"))
    rules = granted(rules, rule("queue:*", RECEIVE, SEND, users="bob ann"))
    assert texts(rules) == texts((rule("queue:*", SEND, RECEIVE, users="ann bob"),))
    assert len(granted(rules, rule("queue:*", SEND, users="ann"))) == 2


def test_what_is_taken_from_one_stays_with_the_others() -> None:
    rules: tuple[Rule, ...] = (rule("queue:*", SEND, RECEIVE, users="ann bob", roles="clerk"),)
    rules = revoked(rules, rule("queue:*", SEND, users="ann"))
    access = AccessControl(rules)
    assert not access.allows(ANN, SEND, "queue:q")
    assert access.allows(ANN, RECEIVE, "queue:q")
    assert access.allows(BOB, SEND, "queue:q")
    rules = revoked(rules, rule("queue:*", *Right, users="ann"))
    assert texts(rules) == texts((rule("queue:*", SEND, RECEIVE, users="bob", roles="clerk"),))
    assert revoked(rules, rule("queue:*", *Right, users="bob", roles="clerk")) == ()


@pytest.mark.parametrize(
    "taken",
    [
        rule("queue:orders", SEND, users="ann"),  # another pattern gives it
        rule("queue:*", RECEIVE, users="ann"),
        rule("queue:*", SEND, users="bob"),  # his role has it, and he has not
    ],
)
def test_what_no_rule_gives_cannot_be_taken_away(taken: Rule) -> None:
    rules = (rule("queue:*", SEND, users="ann", roles="clerk"),)
    with pytest.raises(ClientFault, match="rule-unknown"):
        revoked(rules, taken)


def test_who_loses_something() -> None:
    before = (rule("queue:*", SEND, RECEIVE, roles="clerk"), rule("topic:*", SEND, users="ann"))
    after = revoked(before, rule("queue:*", SEND, roles="clerk"))
    assert loses(BOB, before, after)
    assert not loses(ANN, before, after)
    assert not loses(Identity("eve", ("clerk", "admin")), before, after)
    # The same in another rule is no loss.
    assert not loses(BOB, after, granted((), rule("queue:*", RECEIVE, SEND, users="bob")))


def test_rules_have_a_bound() -> None:
    rules = tuple(rule(f"queue:{number}", SEND, users="ann") for number in range(MAX_ACCESS_RULES))
    with pytest.raises(ClientFault, match="rules-too-many"):
        granted(rules, rule("queue:more", SEND, users="ann"))
    assert len(granted(rules, rule("queue:7", RECEIVE, users="ann"))) == MAX_ACCESS_RULES

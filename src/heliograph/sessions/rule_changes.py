"""Access rules that change while a server runs: rights are given to some users and roles, and taken away again.

What is taken away is what rules with the same pattern give. A wider pattern goes on giving what it gave: who wants to
take `queue:orders.paid` from somebody who has `queue:orders.*` says so of `queue:orders.*`. Taking away what nobody
gave is refused, so that nobody believes it was done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heliograph.model.errors import ClientFault
from heliograph.model.limits import MAX_ACCESS_RULES
from heliograph.sessions.access import Identity, Right, Rule


def granted(rules: Sequence[Rule], new: Rule) -> tuple[Rule, ...]:
    """The rules with one more, or with more rights in one that is for the same. Raises ClientFault."""
    changed = list(rules)
    for index, rule in enumerate(changed):
        if _is_for(rule) == _is_for(new):
            rights = tuple(dict.fromkeys((*rule.rights, *new.rights)))
            changed[index] = _rule(rule.destinations, rights, rule.users, rule.roles)
            return tuple(changed)
    if len(changed) >= MAX_ACCESS_RULES:
        raise ClientFault(
            f"there are {MAX_ACCESS_RULES} rules, and no more are taken: use roles and patterns",
            code="rules-too-many",
        )
    return (*changed, new)


def revoked(rules: Sequence[Rule], taken: Rule) -> tuple[Rule, ...]:
    """The rules without what `taken` would give. Raises ClientFault `rule-unknown` if none gives any of it."""
    changed = tuple(left for rule in rules for left in _left_of(rule, taken))
    if [rule.text for rule in changed] == [rule.text for rule in rules]:
        raise ClientFault(
            f"no rule for {taken.destinations!r} gives that to any of them, so there is nothing to take away",
            code="rule-unknown",
        )
    return changed


def loses(user: Identity, before: Sequence[Rule], after: Sequence[Rule]) -> bool:
    """Whether a user had something by the rules before that those after do not give in the same words."""
    return not user.is_administrator and bool(_given(user, before) - _given(user, after))


def _given(user: Identity, rules: Sequence[Rule]) -> set[tuple[Right, str]]:
    return {(right, rule.destinations) for rule in rules if rule.names(user) for right in rule.rights}


def _left_of(rule: Rule, taken: Rule) -> Iterator[Rule]:
    """A rule, or what is left of it: one for those from whom nothing is taken, and one for the others."""
    users = tuple(user for user in rule.users if user in taken.users)
    roles = tuple(role for role in rule.roles if role in taken.roles)
    rights = tuple(right for right in rule.rights if right not in taken.rights)
    if rule.destinations != taken.destinations or not (users or roles) or rights == rule.rights:
        yield rule
        return
    other_users = tuple(user for user in rule.users if user not in users)
    other_roles = tuple(role for role in rule.roles if role not in roles)
    if other_users or other_roles:
        yield _rule(rule.destinations, rule.rights, other_users, other_roles)
    if rights:
        yield _rule(rule.destinations, rights, users, roles)


def _rule(destinations: str, rights: Sequence[Right], users: Sequence[str], roles: Sequence[str]) -> Rule:
    return Rule(destinations=destinations, rights=rights, users=users, roles=roles)


def _is_for(rule: Rule) -> tuple[str, list[str], list[str]]:
    return rule.destinations, sorted(rule.users), sorted(rule.roles)

"""Users that are added and removed, and rights that are granted and revoked, while the server runs (M13, M14).

Whoever keeps them decides what becomes of a change: a file of this server, or a document of which every node has a
copy.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.subjects import (
    ACCESS,
    ACCESS_GRANT,
    ACCESS_REVOKE,
    USER_ADD,
    USER_REMOVE,
    USERS,
    Arguments,
    argument,
)
from heliograph.destinations.effects import AnyEffect
from heliograph.model.errors import ClientFault
from heliograph.nodes.users import UserStore
from heliograph.sessions.access import Right, Rule


class UserHandlers:
    """Answers for the users of a server, or of a cluster."""

    def __init__(self, load: Callable[[], UserStore], keep: Callable[[UserStore], list[AnyEffect]]) -> None:
        """`load` gives the users as they are, `keep` says what is to be done so that they are as given."""
        self._load = load
        self._keep = keep

    def register_with(self, administration: Administration) -> None:
        administration.register(USERS, self._users)
        administration.register(USER_ADD, self._add)
        administration.register(USER_REMOVE, self._remove)
        administration.register(ACCESS, self._rules)
        administration.register(ACCESS_GRANT, self._grant)
        administration.register(ACCESS_REVOKE, self._revoke)

    def _users(self, _arguments: Arguments) -> Outcome:
        store = self._load()
        entries = [
            {"name": name, "roles": list(user.roles), "clearance": user.clearance or "unclassified"}
            for name, user in store.users.items()
        ]
        return Outcome({"users": entries, "version": store.version})

    def _add(self, arguments: Arguments) -> Outcome:
        """The password comes as its hash: nobody on the way learns it."""
        roles = _words(arguments, "roles")
        name = argument(arguments, "name", str)
        clearance = argument(arguments, "clearance", str, "")
        hashed, scram = argument(arguments, "password", str, ""), argument(arguments, "scram", str, "")
        store = self._load().with_user(name, hashed, roles, clearance, scram)
        return self._changed(store, "user-added", name, arguments)

    def _remove(self, arguments: Arguments) -> Outcome:
        name = argument(arguments, "name", str)
        return self._changed(self._load().without(name), "user-removed", name, arguments)

    def _changed(self, store: UserStore, event: str, name: str, arguments: Arguments) -> Outcome:
        body = {"name": name, "version": store.version}
        fields = {"user": name, "version": store.version, "by": argument(arguments, "by", str, "")}
        return Outcome(body, self._keep(store), event=(event, fields))

    def _rules(self, _arguments: Arguments) -> Outcome:
        store = self._load()
        return Outcome({"rules": [_entry(rule) for rule in store.rules], "version": store.version})

    def _grant(self, arguments: Arguments) -> Outcome:
        rule = _rule(arguments, list(_words(arguments, "rights")))
        return self._ruled(self._load().with_rule(rule), "access-granted", rule, arguments)

    def _revoke(self, arguments: Arguments) -> Outcome:
        """No rights named: all."""
        rule = _rule(arguments, list(_words(arguments, "rights")) or list(Right))
        return self._ruled(self._load().without_rule(rule), "access-revoked", rule, arguments)

    def _ruled(self, store: UserStore, event: str, rule: Rule, arguments: Arguments) -> Outcome:
        body = {"version": store.version, "rules": len(store.rules)}
        by = argument(arguments, "by", str, "")
        fields = {**_entry(rule), "version": store.version, "by": by}
        return Outcome(body, self._keep(store), event=(event, fields))


def _words(arguments: Arguments, name: str) -> list[str]:
    words = arguments.get(name, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ClientFault(f"the argument {name} is a list of names", code="argument-invalid")
    return words


def _rule(arguments: Arguments, rights: list[str]) -> Rule:
    """Raises ClientFault."""
    unknown = [right for right in rights if right not in list(Right)]
    if unknown:
        raise ClientFault(
            f"there is no right {unknown[0][:20]!r}; there are {', '.join(Right)}", code="rule-invalid"
        )
    return Rule(
        destinations=argument(arguments, "destinations", str),
        rights=[Right(right) for right in dict.fromkeys(rights)],
        users=list(dict.fromkeys(_words(arguments, "users"))),
        roles=list(dict.fromkeys(_words(arguments, "roles"))),
    )


def _entry(rule: Rule) -> dict[str, object]:
    return {
        "destinations": rule.destinations,
        "rights": [str(right) for right in rule.rights],
        "users": list(rule.users),
        "roles": list(rule.roles),
    }

"""Who may do what, where: the one place where rights are decided (X2, M11).

A user has the rights that the rules give to them by name or by role; the role `admin` has every right. A rule
names destinations by a glob over whole addresses, `queue:orders.*`, in which `*` stands for any characters
and `?` for one.

Names that begin with `_` belong to the server, and a rule reaches them only when it spells the `_` out:

    _ADMIN   administrators only
    _LOG     received by administrators and by whom a rule allows it; written by the server alone
    _DMQ     received and browsed by administrators and by whom a rule allows it; written by the server alone
    others   administrators only

On a server that is open to everyone (no users, reachable from its own machine only) everybody administers;
but such a guest has no business with those `_` names that are not listed above.

Who may create destinations can be laid down in the configuration, by pattern. The first such rule that
matches an address decides: administrators may, and whom it names, whatever other rules say; on a server that
is open to everyone, only whom it names. Where none matches, the right to create or to administer the address
is enough.

A refusal says nothing about whether the destination exists, so it must come before anybody looks. Who a user
is gets decided elsewhere.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from heliograph.model.address_pattern import AddressPattern, is_reserved
from heliograph.model.alert import Classification
from heliograph.model.errors import ClientFault, NotAllowed
from heliograph.model.limits import MAX_ACCESS_DECISIONS
from heliograph.model.patterns import Pattern

ADMINISTRATOR: Final = "admin"
"""The role that has every right."""


class Right(enum.StrEnum):
    """What can be allowed. ADMIN over an address: change, pause, purge; over none: the server as a whole."""

    SEND = "send"
    RECEIVE = "receive"
    BROWSE = "browse"
    CREATE = "create"
    ADMIN = "admin"


_SERVER_WRITES: Final = ("_LOG", "_DMQ")
_OPEN_TO_RULES: Final = {"_LOG": (Right.RECEIVE,), "_DMQ": (Right.RECEIVE, Right.BROWSE)}
_PHRASES: Final = {
    Right.SEND: "send to",
    Right.RECEIVE: "receive from",
    Right.BROWSE: "browse",
    Right.CREATE: "create",
    Right.ADMIN: "administer",
}


class Identity(msgspec.Struct, frozen=True):
    """A user whose name was proved, and the roles that go with it."""

    name: str
    roles: tuple[str, ...] = ()
    clearance: int = Classification.UNCLASSIFIED  # up to which classification it sees alerts (A1)

    @property
    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.roles


GUEST: Final = Identity("guest", clearance=Classification.TOP_SECRET)
"""Everybody, on a server without users: there is nobody to hide anything from."""


class Rule:
    """Gives some rights over the addresses that a glob matches to some users and roles."""

    __slots__ = ("_pattern", "destinations", "rights", "roles", "users")

    def __init__(
        self,
        *,
        destinations: str,
        rights: Sequence[Right],
        users: Sequence[str] = (),
        roles: Sequence[str] = (),
    ) -> None:
        """Raises ClientFault `pattern-invalid` or `rule-invalid`."""
        if not users and not roles:
            raise ClientFault(
                f"the rule for {destinations!r} names no users and no roles, so it allows nobody anything",
                code="rule-invalid",
            )
        if not rights:
            raise ClientFault(
                f"the rule for {destinations!r} gives no rights; name some of {', '.join(Right)}",
                code="rule-invalid",
            )
        self.destinations = destinations
        self.rights = tuple(rights)
        self.users = tuple(users)
        self.roles = tuple(roles)
        self._pattern = AddressPattern(destinations)

    def allows(self, user: Identity, right: Right, address: str) -> bool:
        return right in self.rights and self.names(user) and self._pattern.matches(address)

    def is_about(self, user: Identity, right: Right) -> bool:
        """Whether it gives a user a right anywhere."""
        return right in self.rights and self.names(user)

    def covers(self, pattern: Pattern) -> bool:
        return self._pattern.covers(pattern)

    def meets(self, pattern: Pattern) -> bool:
        return self._pattern.meets(pattern)

    @property
    def text(self) -> str:
        """The same for rules that say the same."""
        return f"{self.users} {self.roles} {self.rights} {self.destinations}"

    def names(self, user: Identity) -> bool:
        """Whether it is for this user."""
        return user.name in self.users or any(role in self.roles for role in user.roles)


class CreationRule:
    """Says who creates the destinations that a glob matches, and that nobody else does but administrators."""

    __slots__ = ("_pattern", "destinations", "roles", "users")

    def __init__(self, *, destinations: str, users: Sequence[str] = (), roles: Sequence[str] = ()) -> None:
        """Raises ClientFault `pattern-invalid`. Nobody named: administrators only."""
        self.destinations = destinations
        self.users = tuple(users)
        self.roles = tuple(roles)
        self._pattern = AddressPattern(destinations)

    def matches(self, address: str) -> bool:
        return self._pattern.matches(address)

    def allows(self, user: Identity) -> bool:
        named = user.name in self.users or any(role in self.roles for role in user.roles)
        return named or user.is_administrator


class AccessControl:
    """Decides, and remembers what it decided until the rules are replaced."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        open_to_everyone: bool = False,
        creation: Sequence[CreationRule] = (),
    ) -> None:
        self.rules = tuple(rules)
        self.creation = tuple(creation)
        self.open_to_everyone = open_to_everyone
        self._decisions: dict[tuple[Identity, Right, str], bool] = {}

    def replace(self, rules: Sequence[Rule]) -> None:
        """Other rules hold from here on; there are users, so it is open to nobody else."""
        self.rules = tuple(rules)
        self.open_to_everyone = False
        self._decisions.clear()

    def check(self, user: Identity, right: Right, address: str = "") -> None:
        """Return if the user has the right, else raise NotAllowed. No address means the server as a whole."""
        if not self.allows(user, right, address):
            what = address or "this server"
            raise NotAllowed(f"user {user.name!r} may not {_PHRASES[right]} {what}")

    def allows(self, user: Identity, right: Right, address: str = "") -> bool:
        """The same as a question."""
        key = (user, right, address)
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= MAX_ACCESS_DECISIONS:
                self._decisions.clear()
            decision = self._decisions[key] = self._decide(user, right, address)
        return decision

    def allows_somewhere(self, user: Identity, right: Right) -> bool:
        """Whether the user has the right over anything at all."""
        return self._administers(user) or any(rule.is_about(user, right) for rule in self.rules)

    def covers(self, user: Identity, right: Right, pattern: Pattern) -> bool:
        """Whether one rule surely gives the user the right over every topic that a pattern can mean."""
        return self._administers(user) or any(
            rule.is_about(user, right) and rule.covers(pattern) for rule in self.rules
        )

    def meets(self, user: Identity, right: Right, pattern: Pattern) -> bool:
        """Whether the user may have the right over a topic that a pattern can mean."""
        return self._administers(user) or any(
            rule.is_about(user, right) and rule.meets(pattern) for rule in self.rules
        )

    def is_free(self, user: Identity) -> bool:
        """Whether the user needs no rules."""
        return self._administers(user)

    def _decide(self, user: Identity, right: Right, address: str) -> bool:
        if is_reserved(address):
            return self._decide_reserved(user, right, address)
        if right is Right.CREATE:
            return self._may_create(user, address)
        return self._administers(user) or self._ruled(user, right, address)

    def _may_create(self, user: Identity, address: str) -> bool:
        for rule in self.creation:
            if rule.matches(address):
                return rule.allows(user)
        rights = (Right.CREATE, Right.ADMIN)
        return self._administers(user) or any(self._ruled(user, right, address) for right in rights)

    def _decide_reserved(self, user: Identity, right: Right, address: str) -> bool:
        """M11. The well-known destinations are made by the server, so nobody else creates them."""
        name = address.partition(":")[2]
        if name in _SERVER_WRITES and right in (Right.SEND, Right.CREATE):
            return False
        if name == "_ADMIN":
            return right is not Right.CREATE and self._administers(user)
        if name in _OPEN_TO_RULES:
            may_be_ruled = right in _OPEN_TO_RULES[name]
            return self._administers(user) or (may_be_ruled and self._ruled(user, right, address))
        return user.is_administrator

    def _administers(self, user: Identity) -> bool:
        return self.open_to_everyone or user.is_administrator

    def _ruled(self, user: Identity, right: Right, address: str) -> bool:
        return any(rule.allows(user, right, address) for rule in self.rules)

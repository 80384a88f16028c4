"""Users that are added and removed while the server runs (M13, M14). Whoever keeps them decides what becomes of a
change: a file of this server, or a document of which every node has a copy."""

from __future__ import annotations

from collections.abc import Callable

from heliograph.admin.administration import Administration, Outcome
from heliograph.admin.subjects import USER_ADD, USER_REMOVE, USERS, Arguments, argument
from heliograph.destinations.effects import AnyEffect
from heliograph.model.errors import ClientFault
from heliograph.nodes.users import UserStore


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

    def _users(self, _arguments: Arguments) -> Outcome:
        store = self._load()
        entries = [
            {"name": name, "roles": list(user.roles), "clearance": user.clearance or "unclassified"}
            for name, user in store.users.items()
        ]
        return Outcome({"users": entries, "version": store.version})

    def _add(self, arguments: Arguments) -> Outcome:
        """The password comes as its hash: nobody on the way learns it."""
        roles = arguments.get("roles", [])
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise ClientFault("the argument roles is a list of names", code="argument-invalid")
        name = argument(arguments, "name", str)
        clearance = argument(arguments, "clearance", str, "")
        hashed, scram = argument(arguments, "password", str, ""), argument(arguments, "scram", str, "")
        store = self._load().with_user(name, hashed, roles, clearance, scram)
        return self._changed(store, "user-added", name)

    def _remove(self, arguments: Arguments) -> Outcome:
        name = argument(arguments, "name", str)
        return self._changed(self._load().without(name), "user-removed", name)

    def _changed(self, store: UserStore, event: str, name: str) -> Outcome:
        body = {"name": name, "version": store.version}
        return Outcome(body, self._keep(store), event=(event, {"user": name, "version": store.version}))

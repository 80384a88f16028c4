"""The users file: who may log in, with which roles, and the access rules; TOML that only its owner reads.

    [users.ann]
    password = "scrypt$16384$8$1$…$…"
    scram = "SCRAM-SHA-256$60000:…$…:…"
    roles = ["clerk"]
    clearance = "secret"

    [[access]]
    roles = ["clerk"]
    destinations = "queue:orders.*"
    rights = ["send", "receive"]

Passwords are kept as scrypt hashes and, for who logs in without showing the password, as the keys of SCRAM; a user
that has neither is known by a certificate. What the rules mean is decided in `heliograph.sessions.access`. Checking
a password takes tens of milliseconds on purpose: callers do it on a thread.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import secrets
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from heliograph.model.alert import Classification, parse_classification
from heliograph.model.errors import ClientFault
from heliograph.nodes.passwords import (
    COST,
    MAX_PASSWORD_BYTES,
    NOBODY,
    hash_password,
    parse_hash,
    scram_keys,
    verify_password,
)
from heliograph.security import scram
from heliograph.security.hosts import is_loopback
from heliograph.sessions.access import AccessControl, CreationRule, Identity, Right, Rule
from heliograph.sessions.rule_changes import granted, revoked

__all__ = ["Identity", "UserStore", "hash_password", "open_to_everyone", "verify_password"]

INVALID: Final = "users-file-invalid"

_MAX_NAME = 64
# A file of this size holds tens of thousands of users; a larger one is something else.
_MAX_FILE_BYTES = 16 * 1024 * 1024

_HEADER = """\
# Heliograph's users and access rules. `helio user add`, `helio user remove` and `helio admin access` rewrite this
# file and keep no comments but these.
# A rule gives rights (send, receive, browse, create, admin) over all destinations that its pattern matches:
#
#   [[access]]
#   users = ["ann"]
#   roles = ["clerk"]
#   destinations = "queue:orders.*"
#   rights = ["send", "receive"]
#
# The role "admin" has every right. Up to which classification somebody sees alerts is said by their clearance, as
# `helio user add --clearance` writes it.
#
# The version counts changes. Of the copies that the nodes of a cluster have, the highest is right: if you change one
# by hand, count it up and start that node again; the others get it.
"""


# ---- the file


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user as the file has them."""

    password: str = ""  # none: it is known by its certificate
    roles: tuple[str, ...] = ()
    clearance: str = ""  # up to which classification it sees alerts; none: what is unclassified
    scram: str = ""  # none: it logs in by the password itself

    def identity(self, name: str) -> Identity:
        level = parse_classification(self.clearance) if self.clearance else Classification.UNCLASSIFIED
        return Identity(name, self.roles, level)


class _Access(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    destinations: str
    rights: tuple[Right, ...]
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=0)] = 0
    decoy: str = ""
    users: dict[str, User] = {}
    access: tuple[_Access, ...] = ()


class UserStore:
    """The users and rules of one file. A change is written at once and whole: a crash leaves old or new."""

    def __init__(
        self,
        path: Path,
        users: dict[str, User] | None = None,
        rules: Sequence[Rule] = (),
        version: int = 0,
        decoy: str = "",
    ) -> None:
        """`version` counts changes: of the copies that nodes of a cluster have, the highest is right. `decoy`: what
        names that nobody has are answered from."""
        self.path = path
        self.decoy = decoy
        self._decoy = ""  # the same, or what takes its place in a file that has none
        self.version = version
        self.users = dict(users or {})
        self.rules = tuple(rules)

    @classmethod
    def load(cls, path: Path | str) -> UserStore:
        """Read the file; one that does not exist has no users.

        Raises ClientFault `users-file-invalid` or `users-file-exposed`.
        """
        path = Path(path)
        try:
            with path.open("rb") as stream:
                _refuse_exposed(path, os.fstat(stream.fileno()).st_mode)
                raw = stream.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return cls(path)
        except OSError as fault:
            raise ClientFault(
                f"the users file {path} cannot be read: {fault.strerror}", code=INVALID
            ) from None
        return cls(path, *_parse(path, raw))

    def access_control(self, creation: Sequence[CreationRule] = ()) -> AccessControl:
        """A fresh judge over this file's rules."""
        return AccessControl(self.rules, creation=creation)

    def identity(self, name: str) -> Identity | None:
        """Who somebody would be if they proved it."""
        user = self.users.get(name)
        return None if user is None else user.identity(name)

    def verify(self, name: str, password: str) -> Identity | None:
        """Who this is, or None. Slow on purpose, for names that do not exist too: run it on a thread."""
        user = self.users.get(name)
        known = user is not None and bool(user.password)
        matches = verify_password(password, user.password if user is not None and known else NOBODY)
        return user.identity(name) if user is not None and known and matches else None

    def keys(self, name: str) -> scram.Keys:
        """For SCRAM; a name that nobody has, or that has none, gets those that nothing fits, always the same."""
        user = self.users.get(name)
        if user is None or not user.scram:
            self._decoy = self._decoy or self.decoy or _new_decoy(self.users)
            return scram.decoy(self._decoy.encode(), name)
        return scram.Keys.parse(user.scram)

    def add(
        self,
        name: str,
        password: str | None,
        roles: Sequence[str] = (),
        *,
        clearance: str = "",
        cost: tuple[int, int, int] = COST,
    ) -> None:
        """Add a user and write the file. No password: it is known by its certificate. Raises ClientFault
        `user-exists`, `user-invalid`."""
        self._check_new(name, roles)
        _check_clearance(clearance)
        user = User("", tuple(dict.fromkeys(roles)), clearance)
        if password is not None:
            if not password or len(password.encode(errors="surrogatepass")) > MAX_PASSWORD_BYTES:
                raise ClientFault(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes", code="user-invalid")
            rounds = scram.ROUNDS if cost >= COST else scram.MIN_ROUNDS
            user = msgspec.structs.replace(
                user, password=hash_password(password, cost=cost), scram=scram_keys(password, rounds=rounds)
            )
        self.decoy = self.decoy or _new_decoy({**self.users, name: user})
        self._write({**self.users, name: user})

    def remove(self, name: str) -> None:
        """Remove a user and write the file. Raises ClientFault `user-unknown`."""
        if name not in self.users:
            raise ClientFault(f"there is no user {name!r} in {self.path}", code="user-unknown")
        self._write(self.without(name).users)

    def with_user(
        self, name: str, hashed: str, roles: Sequence[str], clearance: str = "", scram: str = ""
    ) -> UserStore:
        """A store with one user more, which is written nowhere yet. Raises ClientFault."""
        self._check_new(name, roles)
        _check_clearance(clearance)
        user = User(hashed, tuple(dict.fromkeys(roles)), clearance, scram)
        try:
            _check_hash(name, user)
        except ValueError as fault:
            raise ClientFault(str(fault), code="user-invalid") from None
        decoy = self.decoy or _new_decoy({**self.users, name: user})
        return UserStore(self.path, {**self.users, name: user}, self.rules, self.version + 1, decoy)

    def without(self, name: str) -> UserStore:
        """A store with one user less, which is written nowhere yet. Raises ClientFault `user-unknown`."""
        if name not in self.users:
            raise ClientFault(f"there is no user {name!r}", code="user-unknown")
        left = {other: user for other, user in self.users.items() if other != name}
        return UserStore(self.path, left, self.rules, self.version + 1, self.decoy)

    def with_rule(self, rule: Rule) -> UserStore:
        """A store in which the rule holds, too, which is written nowhere yet. Raises ClientFault."""
        return self._with_rules(rule, granted(self.rules, rule))

    def without_rule(self, rule: Rule) -> UserStore:
        """A store in which nobody has by rules with its pattern what the rule gives. Raises ClientFault."""
        return self._with_rules(rule, revoked(self.rules, rule))

    def _with_rules(self, changed: Rule, rules: Sequence[Rule]) -> UserStore:
        for user in changed.users:
            _check_word(user, "user")
        for role in changed.roles:
            _check_word(role, "role")
        if not self.users:
            raise ClientFault(
                "this server is open to everyone, and rules would close it to everyone: add an administrator first",
                code="users-missing",
            )
        return UserStore(self.path, self.users, rules, self.version + 1, self.decoy)

    @classmethod
    def of(cls, content: bytes, path: Path) -> UserStore:
        """What the file would say. Raises ClientFault."""
        return cls(path, *_parse(path, content))

    def _check_new(self, name: str, roles: Sequence[str]) -> None:
        _check_word(name, "user")
        for role in roles:
            _check_word(role, "role")
        if name in self.users:
            raise ClientFault(
                f"there is a user {name!r} already; `helio user remove {name}` first to replace it",
                code="user-exists",
            )

    @property
    def content(self) -> bytes:
        """The file as this program would write it: equal for stores that say the same."""
        return _render(self.users, self.rules, self.version, self.decoy).encode()

    def adopt(self, content: bytes) -> None:
        """Go by another content from here on, and keep what was in the file beside it, as FILE.previous. Raises
        ClientFault."""
        users, rules, version, decoy = _parse(self.path, content)
        try:
            if self.path.exists():
                _replace(
                    self.path.with_name(f"{self.path.name}.previous"), self.path.read_text(encoding="utf-8")
                )
            _replace(self.path, content.decode())
        except OSError as fault:
            raise _not_written(self.path, fault) from None
        self.users, self.rules, self.version, self.decoy = users, tuple(rules), version, decoy

    def _write(self, users: dict[str, User]) -> None:
        text = _render(users, self.rules, self.version + 1, self.decoy)
        try:
            _replace(self.path, text)
        except OSError as fault:
            raise _not_written(self.path, fault) from None
        self.users = users
        self.version += 1


def _not_written(path: Path, fault: OSError) -> ClientFault:
    return ClientFault(
        f"the users file {path} cannot be written: {fault.strerror}", code="users-file-not-written"
    )


def _check_word(word: str, what: str) -> None:
    good = word.isprintable() and not any(letter in ':"\\' or letter.isspace() for letter in word)
    if not good or not 0 < len(word) <= _MAX_NAME:
        raise ClientFault(
            f'a {what} has a name of 1 to {_MAX_NAME} printable characters without blanks, colons, \\ and "',
            code="user-invalid",
        )


def _check_clearance(clearance: str) -> None:
    try:
        parse_classification(clearance or "unclassified")
    except ValueError as fault:
        raise ClientFault(str(fault), code="user-invalid") from None


def _refuse_exposed(path: Path, mode: int) -> None:
    if mode & 0o077:
        raise ClientFault(
            f"others than its owner can get at the users file: run `chmod 600 {path}`",
            code="users-file-exposed",
        )


def _parse(path: Path, raw: bytes) -> tuple[dict[str, User], list[Rule], int, str]:
    try:
        if len(raw) > _MAX_FILE_BYTES:
            raise ValueError(f"it has more than {_MAX_FILE_BYTES} bytes")
        content = msgspec.convert(tomllib.loads(raw.decode()), _File)
        for name, user in content.users.items():
            _check_word(name, "user")
            _check_hash(name, user)
            user.identity(name)  # refuses a clearance that there is not
        rules = [Rule(**msgspec.structs.asdict(access)) for access in content.access]
        return content.users, rules, content.version, content.decoy
    except ClientFault as fault:
        raise ClientFault(f"the users file {path} is wrong: {fault.sentence}", code=INVALID) from None
    except (ValueError, msgspec.ValidationError) as fault:  # TOML and Unicode errors are ValueErrors
        raise ClientFault(f"the users file {path} is wrong: {fault}", code=INVALID) from None


def _check_hash(name: str, user: User) -> None:
    try:
        if user.password:
            parse_hash(user.password)
        if user.scram:
            scram.Keys.parse(user.scram)
    except (ValueError, binascii.Error):
        raise ValueError(f"the password of {name!r} is no hash that `helio user add` would write") from None


def _new_decoy(users: dict[str, User]) -> str:
    """As secret as what is kept of somebody's password, and the same wherever that is kept."""
    kept = next((user.password for user in users.values() if user.password), "") or secrets.token_hex(32)
    return hashlib.sha256(f"decoy:{kept}".encode()).hexdigest()


def _render(users: dict[str, User], rules: Sequence[Rule], version: int, decoy: str) -> str:
    lines = [_HEADER, f"version = {version}", *([f"decoy = {_text(decoy)}"] if decoy else []), ""]
    for name, user in users.items():
        lines += [
            f"[users.{_text(name)}]",
            *([f"password = {_text(user.password)}"] if user.password else []),
            *([f"scram = {_text(user.scram)}"] if user.scram else []),
            f"roles = {_texts(user.roles)}",
            *([f"clearance = {_text(user.clearance)}"] if user.clearance else []),
            "",
        ]
    for rule in rules:
        lines += [
            "[[access]]",
            f"users = {_texts(rule.users)}",
            f"roles = {_texts(rule.roles)}",
            f"destinations = {_text(rule.destinations)}",
            f"rights = {_texts(rule.rights)}",
            "",
        ]
    return "\n".join(lines)


def _text(value: Any) -> str:
    # A JSON string of printable characters is a TOML string.
    return json.dumps(str(value), ensure_ascii=False)


def _texts(values: Sequence[Any]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _replace(path: Path, text: str) -> None:
    """Write beside the file and rename over it. The temporary file is made with mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ---- without users


def open_to_everyone(host: str, users_file: Path | str) -> bool:
    """Whether everybody is a guest: there is no users file and only this machine can connect.

    Raises ClientFault `open-server-refused` for an address that others can reach.
    """
    path = Path(users_file)
    if path.exists():
        return False
    if is_loopback(host):
        return True
    raise ClientFault(
        f"without users, everybody who can reach {host} could read and write everything: make a user with"
        f" `helio user add NAME --role admin --users-file {path}`, or listen on 127.0.0.1",
        code="open-server-refused",
    )

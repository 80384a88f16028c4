"""The users file: who may log in, with which roles, and the access rules; TOML that only its owner reads.

    [users.ann]
    password = "scrypt$16384$8$1$…$…"
    roles = ["clerk"]
    clearance = "secret"

    [[access]]
    roles = ["clerk"]
    destinations = "queue:orders.*"
    rights = ["send", "receive"]

Passwords are kept as scrypt hashes. What the rules mean is decided in `heliograph.sessions.access`. Checking
a password takes tens of milliseconds on purpose: callers do it on a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
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
from heliograph.sessions.access import AccessControl, CreationRule, Identity, Right, Rule

__all__ = ["Identity", "UserStore", "hash_password", "open_to_everyone", "verify_password"]

INVALID: Final = "users-file-invalid"

_COST = (2**14, 8, 1)
_SALT_BYTES = 16
_HASH_BYTES = 32
# What a file may ask for: beyond this one log-in would take gigabytes or minutes.
_MAX_COST = (2**20, 32, 16)
_MAX_NAME = 64
_MAX_PASSWORD_BYTES = 1024
# A file of this size holds tens of thousands of users; a larger one is something else.
_MAX_FILE_BYTES = 16 * 1024 * 1024

_HEADER = """\
# Heliograph's users and access rules. `helio user add` and `helio user remove` rewrite this file and keep no
# comments but these.
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


# ---- passwords


def hash_password(password: str, *, cost: tuple[int, int, int] = _COST) -> str:
    """The textual form `scrypt$n$r$p$salt$hash` with a fresh salt. A password that is no secret may cost less."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return _textual(cost, salt, _scrypt(password, salt, cost))


def verify_password(password: str, textual: str) -> bool:
    """Whether the password has this hash, compared in constant time."""
    cost, salt, expected = _parse_hash(textual)
    return hmac.compare_digest(_scrypt(password, salt, cost), expected)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    # A longer password than any that was ever accepted must not cost more than the others.
    secret = password.encode(errors="surrogatepass")[: _MAX_PASSWORD_BYTES + 1]
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=_HASH_BYTES)


def _textual(cost: tuple[int, int, int], salt: bytes, hashed: bytes) -> str:
    parts = ("scrypt", *map(str, cost), *(base64.b64encode(raw).decode() for raw in (salt, hashed)))
    return "$".join(parts)


def _parse_hash(textual: str) -> tuple[tuple[int, int, int], bytes, bytes]:
    """Raises ValueError on anything that `hash_password` would not write."""
    name, *numbers, salt, hashed = textual.split("$")
    n, r, p = map(int, numbers)
    within = all(1 <= value <= most for value, most in zip((n, r, p), _MAX_COST, strict=True))
    if name != "scrypt" or not within or n < 2 or n & (n - 1):
        raise ValueError("not a scrypt hash")
    raw_salt, raw_hash = base64.b64decode(salt, validate=True), base64.b64decode(hashed, validate=True)
    if len(raw_salt) < _SALT_BYTES or len(raw_hash) != _HASH_BYTES:
        raise ValueError("salt or hash is too short")
    return (n, r, p), raw_salt, raw_hash


# ---- the file


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user as the file has them."""

    password: str
    roles: tuple[str, ...] = ()
    clearance: str = ""  # up to which classification it sees alerts; none: what is unclassified

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
    ) -> None:
        """`version` counts changes: of the copies that nodes of a cluster have, the highest is right."""
        self.path = path
        self.version = version
        self.users = dict(users or {})
        self.rules = tuple(rules)
        # Unknown users are checked against this, so that they take as long as known ones.
        self._nobody = _textual(_COST, bytes(_SALT_BYTES), bytes(_HASH_BYTES))

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
        matches = verify_password(password, self._nobody if user is None else user.password)
        return user.identity(name) if user is not None and matches else None

    def add(
        self,
        name: str,
        password: str,
        roles: Sequence[str] = (),
        *,
        clearance: str = "",
        cost: tuple[int, int, int] = _COST,
    ) -> None:
        """Add a user and write the file. Raises ClientFault `user-exists`, `user-invalid`."""
        self._check_new(name, roles)
        _check_clearance(clearance)
        if not password or len(password.encode(errors="surrogatepass")) > _MAX_PASSWORD_BYTES:
            raise ClientFault(f"a password has 1 to {_MAX_PASSWORD_BYTES} bytes", code="user-invalid")
        self._write(
            {
                **self.users,
                name: User(hash_password(password, cost=cost), tuple(dict.fromkeys(roles)), clearance),
            }
        )

    def remove(self, name: str) -> None:
        """Remove a user and write the file. Raises ClientFault `user-unknown`."""
        if name not in self.users:
            raise ClientFault(f"there is no user {name!r} in {self.path}", code="user-unknown")
        self._write(self.without(name).users)

    def with_user(self, name: str, hashed: str, roles: Sequence[str], clearance: str = "") -> UserStore:
        """A store with one user more, which is written nowhere yet. Raises ClientFault."""
        self._check_new(name, roles)
        _check_clearance(clearance)
        user = User(hashed, tuple(dict.fromkeys(roles)), clearance)
        try:
            _check_hash(name, user)
        except ValueError as fault:
            raise ClientFault(str(fault), code="user-invalid") from None
        return UserStore(self.path, {**self.users, name: user}, self.rules, self.version + 1)

    def without(self, name: str) -> UserStore:
        """A store with one user less, which is written nowhere yet. Raises ClientFault `user-unknown`."""
        if name not in self.users:
            raise ClientFault(f"there is no user {name!r}", code="user-unknown")
        left = {other: user for other, user in self.users.items() if other != name}
        return UserStore(self.path, left, self.rules, self.version + 1)

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
        return _render(self.users, self.rules, self.version).encode()

    def adopt(self, content: bytes) -> None:
        """Go by another content from here on, and keep what was in the file beside it, as FILE.previous. Raises
        ClientFault."""
        users, rules, version = _parse(self.path, content)
        try:
            if self.path.exists():
                _replace(
                    self.path.with_name(f"{self.path.name}.previous"), self.path.read_text(encoding="utf-8")
                )
            _replace(self.path, content.decode())
        except OSError as fault:
            raise _not_written(self.path, fault) from None
        self.users, self.rules, self.version = users, tuple(rules), version

    def _write(self, users: dict[str, User]) -> None:
        text = _render(users, self.rules, self.version + 1)
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


def _parse(path: Path, raw: bytes) -> tuple[dict[str, User], list[Rule], int]:
    try:
        if len(raw) > _MAX_FILE_BYTES:
            raise ValueError(f"it has more than {_MAX_FILE_BYTES} bytes")
        content = msgspec.convert(tomllib.loads(raw.decode()), _File)
        for name, user in content.users.items():
            _check_word(name, "user")
            _check_hash(name, user)
            user.identity(name)  # refuses a clearance that there is not
        rules = [Rule(**msgspec.structs.asdict(access)) for access in content.access]
        return content.users, rules, content.version
    except ClientFault as fault:
        raise ClientFault(f"the users file {path} is wrong: {fault.sentence}", code=INVALID) from None
    except (ValueError, msgspec.ValidationError) as fault:  # TOML and Unicode errors are ValueErrors
        raise ClientFault(f"the users file {path} is wrong: {fault}", code=INVALID) from None


def _check_hash(name: str, user: User) -> None:
    try:
        _parse_hash(user.password)
    except (ValueError, binascii.Error):
        raise ValueError(f"the password of {name!r} is no hash that `helio user add` would write") from None


def _render(users: dict[str, User], rules: Sequence[Rule], version: int) -> str:
    lines = [_HEADER, f"version = {version}", ""]
    for name, user in users.items():
        lines += [
            f"[users.{_text(name)}]",
            f"password = {_text(user.password)}",
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
    if _is_loopback(host):
        return True
    raise ClientFault(
        f"without users, everybody who can reach {host} could read and write everything: make a user with"
        f" `helio user add NAME --role admin --users-file {path}`, or listen on 127.0.0.1",
        code="open-server-refused",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may stand for any address
        return False

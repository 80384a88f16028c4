"""The path service (U6): which member of a distributed destination a unit of order is at, for as long as it is used.

    first use ──▶ given the member with the fewest units ──▶ used by sessions ──the last one ends──▶ unused
                                                                   ▲                                    │
                                                                   └──── used again: the same member ───┤
                          forgotten ◀── its member has nothing that is as old as its last use ──────────┘

The map is kept in one sub-cluster, and its members may be in others. So *unused* is this side's word and *has
nothing* the member's; client managers carry both (`nodes/path_checks.py`). A session may have ended here while its
last messages are still on their way there: nothing is forgotten before it has ended there, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.bus.commands import PathsChecked, PathsUnused, PathWanted
from heliograph.model.destination import Address
from heliograph.model.errors import Unavailable
from heliograph.model.ids import SessionId
from heliograph.model.limits import MAX_PATHS, PATHS_CHECKED_AT_ONCE
from heliograph.model.rendezvous import ranked


class PathRecord(msgspec.Struct, array_like=True):
    """How the journal keeps where a unit is, and one more session that uses it. Without a member: it is forgotten."""

    address: str
    unit: int
    member: str = ""
    session: bytes = b""


class PathState(msgspec.Struct, array_like=True):
    """The same in a snapshot, with all who use it, and who did and may not have ended elsewhere."""

    address: str
    unit: int
    member: str
    users: list[bytes]
    former: list[bytes]


class Path(msgspec.Struct):
    """Where one unit is."""

    member: str
    users: dict[SessionId, None]
    former: dict[SessionId, None]
    asked: int = 0  # when its member was asked last about it, if it was not used since
    floor: int = (
        0  # what its member has from this number on is none of it, since nobody uses it; 0: not known
    )


Key = tuple[Address, int]
encode_path = msgspec.msgpack.Encoder().encode
_decode_path = msgspec.msgpack.Decoder(PathRecord).decode


class Paths:
    """All that one sub-cluster keeps."""

    def __init__(self) -> None:
        self._paths: dict[Key, Path] = {}
        self._units: dict[tuple[Address, str], int] = {}  # how many each member has
        self._of_session: dict[SessionId, dict[Key, None]] = {}
        self._unused: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def member_of(self, address: Address, unit: int) -> str:
        """Empty if there is none."""
        path = self._paths.get((address, unit))
        return "" if path is None else path.member

    # ---- using

    def wanted(self, command: PathWanted) -> tuple[str, PathRecord | None]:
        """The member of a unit, and what is to be written down of it. Raises Unavailable `too-many-paths`."""
        key = (command.address, command.unit)
        path = self._paths.get(key)
        if path is None and len(self._paths) >= MAX_PATHS:
            raise Unavailable(
                f"{MAX_PATHS:,} units of order have a path already: use units again, or fewer of them",
                code="too-many-paths",
            )
        member = path.member if path is not None else ""
        if member not in command.members and member not in command.leaving:  # new, or its member was removed
            member = self._least_used(command)
        elif path is not None and command.session in path.users:
            return member, None
        self._use(key, member, command.session)
        return member, PathRecord(command.address, command.unit, member, command.session)

    def _least_used(self, command: PathWanted) -> str:
        """Among equals the hash decides, so that the first units are not all at one."""
        order = ranked(command.unit.to_bytes(8, "little"), command.members)
        return min(order, key=lambda member: self._units.get((command.address, member), 0))

    def _use(self, key: Key, member: str, session: SessionId) -> None:
        path = self._paths.get(key)
        if path is not None and path.member != member:
            self._forget(key)
            path = None
        if path is None:
            path = self._paths[key] = Path(member, {}, {})
            place = (key[0], member)
            self._units[place] = self._units.get(place, 0) + 1
        path.former.pop(session, None)
        path.users[session] = None
        self._of_session.setdefault(session, {})[key] = None
        self._unused.pop(key, None)
        path.asked = path.floor = 0

    def session_ended(self, session: SessionId) -> None:
        for key in self._of_session.pop(session, {}):
            path = self._paths[key]
            path.users.pop(session, None)
            path.former[session] = None
            if not path.users:
                self._unused[key] = None

    # ---- forgetting

    def unused(self, now: int) -> Iterator[PathsUnused]:
        """Some that nobody uses, for their members to be asked. The next time others are named.

        `now` names the question: no answer to another one counts, be it that of somebody who led before.
        """
        by_member: dict[tuple[Address, str], PathsUnused] = {}
        for key in list(self._unused)[:PATHS_CHECKED_AT_ONCE]:
            path = self._paths[key]
            address, unit = key
            news = by_member.setdefault(
                (address, path.member), PathsUnused(address, path.member, [], [], now)
            )
            path.asked = now
            news.units.append(unit)
            news.sessions += [session for session in path.former if session not in news.sessions]
            del self._unused[key]
            self._unused[key] = None
        return iter(by_member.values())

    def checked(self, command: PathsChecked) -> Iterator[PathRecord]:
        """A member was asked: what was not used since, and it has nothing of, is forgotten."""
        for unit in command.units:
            key = (command.address, unit)
            path = self._paths.get(key)
            if path is None or path.asked != command.mark or path.member != command.member:
                continue
            assert not path.users, "whoever uses it makes all questions void"
            if any(session in command.open_sessions for session in path.former):
                continue
            path.former.clear()
            if not command.oldest:
                continue  # the member cannot say, or expects something that has no number yet
            is_empty = command.oldest >= command.next_number
            if is_empty or (path.floor and command.oldest >= path.floor):
                self._forget(key)
                yield PathRecord(command.address, unit)
            else:
                path.floor = path.floor or command.next_number

    def _forget(self, key: Key) -> None:
        path = self._paths.pop(key, None)
        if path is None:
            return
        self._unused.pop(key, None)
        self._units[key[0], path.member] -= 1
        for session in path.users:
            self._of_session[session].pop(key, None)

    # ---- recovery

    def replay(self, payload: bytes) -> None:
        record = _decode_path(payload)
        key = (Address(record.address), record.unit)
        if record.member:
            self._use(key, record.member, SessionId(record.session))
        else:
            self._forget(key)

    def restore(self, states: list[PathState]) -> None:
        for state in states:
            key = (Address(state.address), state.unit)
            for session in state.users:
                self._use(key, state.member, SessionId(session))
            if not state.users:
                self._use(key, state.member, SessionId(b""))
                self.session_ended(SessionId(b""))
            path = self._paths[key]
            path.former = {SessionId(session): None for session in state.former}

    def states(self) -> list[PathState]:
        return [
            PathState(address, unit, path.member, list(path.users), list(path.former))
            for (address, unit), path in self._paths.items()
        ]

"""The bus, as a node of an earlier version is on it: with fewer fields, and not knowing some commands."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from heliograph.bus import wire
from heliograph.bus.commands import Command
from heliograph.bus.interface import (
    Configuration,
    Damage,
    Incarnation,
    Listener,
    Membership,
    Origin,
    Place,
    Stamp,
)
from heliograph.bus.local_channels import LocalChannels
from heliograph.bus.presence import Hello
from heliograph.model.errors import ProtocolFault, Unavailable

# As it was before there were levels.
HELLO_FIELDS, NODE_FIELDS = 9, 28
NODES = 8  # which field of a hello


class EarlierVersion:
    """What a node of it sees of the channels. `unknown`: commands that it never heard of. `knows_levels`: it is of a
    time when hellos had all their fields, and says in them that it knows less."""

    def __init__(
        self, channels: LocalChannels, unknown: Collection[type[Command]] = (), *, knows_levels: bool = False
    ) -> None:
        self._channels = channels
        self._knows_levels = knows_levels
        self._unknown = [wire.CODES[kind] for kind in unknown]

    def enter(self, channel: str, listener: Listener) -> Membership:
        ears = _Ears(listener, self.read)
        membership = LocalChannels.enter(self._channels, channel, ears)
        ears.membership = membership
        return _Mouth(membership, self)

    def read(self, command: Command) -> Command:
        """What becomes of a command between one that is up to date and one that is not. Raises ProtocolFault."""
        parts: list[wire.Bytes] = []
        wire.append(command, parts)
        raw = b"".join(parts)
        code, _, length, attached = wire.ENTRY.unpack_from(raw)
        if code in self._unknown:
            raise ProtocolFault(
                f"a member sent command {code}, which this version does not know", code=wire.UNKNOWN
            )
        if code == wire.CODES[Hello] and not self._knows_levels:
            fields = msgspec.msgpack.decode(raw[wire.ENTRY_BYTES : wire.ENTRY_BYTES + length])
            fields[NODES] = [node[:NODE_FIELDS] for node in fields[NODES]]
            shorter = msgspec.msgpack.encode(fields[:HELLO_FIELDS])
            raw = wire.ENTRY.pack(code, 0, len(shorter), attached) + shorter
        [read] = wire.read(raw)
        return read


class _Ears:
    """Ends the membership over what is not understood, as the bus between hosts does."""

    membership: Membership

    def __init__(self, listener: Listener, read: Callable[[Command], Command]) -> None:
        self._listener = listener
        self._read = read
        self._is_over = False
        self.on_flow = listener.on_flow
        self.on_damage = listener.on_damage

    def on_frame(self, origin: Origin, commands: list[Command]) -> None:
        if self._is_over:
            return
        try:
            read = [self._read(command) for command in commands]
        except ProtocolFault as fault:
            self._is_over = True
            self._listener.on_damage(Damage(origin.place, fault.code, fault.sentence))
            self.membership.leave()
            self._listener.on_ended(Unavailable(fault.sentence, code=fault.code))
            return
        self._listener.on_frame(origin, read)

    def on_configuration(self, configuration: Configuration) -> None:
        if not self._is_over:
            self._listener.on_configuration(configuration)

    def on_ended(self, error: Unavailable | None) -> None:
        if not self._is_over:
            self._listener.on_ended(error)


class _Mouth:
    """What it says lacks what it does not know."""

    heard_bytes = 0

    def __init__(self, membership: Membership, version: EarlierVersion) -> None:
        self._membership = membership
        self._version = version

    @property
    def place(self) -> Place:
        return self._membership.place

    @property
    def incarnation(self) -> Incarnation:
        return self._membership.incarnation

    @property
    def may_send(self) -> bool:
        return self._membership.may_send

    def multicast(self, command: Command) -> None:
        if isinstance(command, Hello):
            command = msgspec.structs.replace(command, level=wire.FIRST_LEVEL)
        self._membership.multicast(self._version.read(command))

    def restamp(self, stamp: Stamp) -> None:
        self._membership.restamp(stamp)

    def leave(self) -> None:
        self._membership.leave()

"""The configuration: one TOML file, every key with a default, so that a server starts without any.

The structs below are the only description there is. The commented default file (`helio serve --print-config`)
and docs/reference/configuration.md are rendered from them, and a wrong key or value is explained from them.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta
from msgspec import inspect as types

from heliograph.model import limits
from heliograph.model.distribution import Distributions
from heliograph.model.errors import ClientFault
from heliograph.model.policy_rules import PolicyRule, PolicyRules
from heliograph.sessions.access import CreationRule

INVALID: Final = "configuration-invalid"

Durability = Literal["fsync", "write", "memory"]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that belong together; the docstring and the descriptions are what a person reads."""


class ServerSettings(_Section, frozen=True):
    """Where the server listens and where it keeps its data."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. Without a users file only addresses of this machine itself are"
            " accepted.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one and the server says which."),
    ] = 7700
    data: Annotated[
        str,
        Meta(min_length=1, description="Folder of the journal and of the users file; made if it is missing."),
    ] = "heliograph-data"
    advertise: Annotated[
        str,
        Meta(
            description="Addresses, host:port with commas between them, at which clients can reach this server and"
            " others that are as good; they are told, and go there when a connection is lost. Empty: they keep to"
            " what they were given.",
        ),
    ] = ""
    more_ports: Annotated[
        str,
        Meta(
            pattern=r"^(\d{1,5}(/tls)?(,\d{1,5}(/tls)?)*)?$",
            description="Further ports to listen on, with commas between them, such as 1883,61613: each speaks every"
            " protocol, as the first does. 8883/tls: only with TLS.",
        ),
    ] = ""
    origins: Annotated[
        str,
        Meta(
            description="From where web pages may connect by WebSocket, such as https://shop.example, with commas"
            " between them. Pages from the host that they connect to always may.",
        ),
    ] = ""


Clients = Literal["ignored", "wanted", "needed"]
Version = Literal["1.2", "1.3"]


class TlsSettings(_Section, frozen=True):
    """Encryption: with a certificate, each port speaks TLS with whoever begins so. Changed files are read again."""

    certificate: Annotated[
        str,
        Meta(description="The server's certificate, with those that signed it behind it. Empty: no TLS."),
    ] = ""
    key: Annotated[
        str,
        Meta(description="Its key, without a password, which only its owner reads. Empty: in the same file."),
    ] = ""
    required: Annotated[
        bool, Meta(description="Whoever connects without TLS is told to use it, and nothing else.")
    ] = False
    clients: Annotated[
        Clients,
        Meta(
            description="Certificates of clients. ignored: nobody is asked for one. wanted: who shows one is known by"
            " it and needs no password. needed: nobody comes in without."
        ),
    ] = "ignored"
    client_authority: Annotated[
        str, Meta(description="Who may have signed the certificates of clients: certificates of authorities.")
    ] = ""
    revoked: Annotated[
        str,
        Meta(
            description="Lists of revoked certificates, one for each authority. Empty: nothing was revoked."
        ),
    ] = ""
    minimum: Annotated[Version, Meta(description="The oldest version of TLS that is spoken.")] = "1.2"


class JournalSettings(_Section, frozen=True):
    """How messages are stored."""

    durability: Annotated[
        Durability,
        Meta(
            description="When a producer hears that its persistent message is safe. fsync: the disk has it."
            " write: the operating system has it, so a crash of the server loses nothing, a power failure may"
            " do. memory: nothing is stored, a restart begins empty."
        ),
    ] = "fsync"
    segment_bytes: Annotated[
        int,
        Meta(
            ge=64 * limits.KIB,
            le=2**40,
            description="Size at which a journal file is closed and the next begun.",
        ),
    ] = limits.SEGMENT_BYTES
    quota_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**60,
            description="Bytes that the journal may take on the disk; producers are told when it is full."
            " 0: whatever the disk holds.",
        ),
    ] = 0
    snapshot_every_bytes: Annotated[
        int,
        Meta(
            ge=64 * limits.KIB,
            le=2**60,
            description="A snapshot is taken after so many journal bytes; a restart reads no more than that.",
        ),
    ] = limits.SNAPSHOT_EVERY_BYTES


class MemorySettings(_Section, frozen=True):
    """How much is kept in memory."""

    resident_bytes: Annotated[
        int,
        Meta(
            ge=1 * limits.MIB,
            le=2**50,
            description="Bodies of waiting messages kept in memory, in bytes; what is beyond is read again"
            " from the journal.",
        ),
    ] = limits.RESIDENT_BYTES


class LargeSettings(_Section, frozen=True):
    """Very large messages, which are kept as files beside the journal."""

    quota_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**60,
            description="Bytes that they may take on the disk; senders are told when it is full."
            " 0: whatever the disk holds, but for the reserve.",
        ),
    ] = 0
    reserve_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=2**60,
            description="Bytes of the disk that they leave to the journal, so that it goes on when they cannot.",
        ),
    ] = limits.LARGE_RESERVE_BYTES


class DestinationSettings(_Section, frozen=True):
    """What holds for queues and topics."""

    create_on_first_use: Annotated[
        bool, Meta(description="Whether a queue or topic comes into being when somebody first uses its name.")
    ] = True


class SessionSettings(_Section, frozen=True):
    """How long clients that went away are remembered."""

    kept_seconds: Annotated[
        float,
        Meta(
            ge=1,
            le=1e10,
            description="A client that stores and forwards can be away this long and is still recognised when it"
            " comes back: nothing that it sends again is taken twice.",
        ),
    ] = limits.KEPT_SESSION_SECONDS
    reconnect_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="What the consumers of a client have is kept for it this long when its connection breaks;"
            " then it goes to others, marked redelivered. A client that was killed looks the same. 0: at once.",
        ),
    ] = limits.RECONNECT_LEASE_SECONDS
    lease_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="The same when its client manager was lost, or asked it to go to another.",
        ),
    ] = limits.SESSION_LEASE_SECONDS


class LimitSettings(_Section, frozen=True):
    """What the server grants to its clients."""

    max_connections: Annotated[int, Meta(ge=1, le=1_000_000, description="Connections at the same time.")] = (
        limits.MAX_CONNECTIONS
    )
    handshake_seconds: Annotated[
        float,
        Meta(ge=0.1, le=3600, description="A client that has not said who it is by then is disconnected."),
    ] = limits.HANDSHAKE_SECONDS
    max_connections_per_address: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="Connections at the same time from one address. 0: as many."),
    ] = limits.MAX_CONNECTIONS_PER_ADDRESS
    max_connection_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="New connections in a second from one address. 0: as many as come.",
        ),
    ] = limits.MAX_CONNECTION_RATE
    max_unproved: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Connections that have not said who they are. When there are more, the oldest of them goes.",
        ),
    ] = limits.MAX_UNPROVED
    max_failed_logins: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Log-ins in a minute that may fail from one address before it has to wait. 0: any number.",
        ),
    ] = limits.MAX_FAILED_LOGINS
    max_frame_bytes: Annotated[
        int,
        Meta(
            ge=limits.MIN_FRAME_LIMIT_BYTES,
            le=limits.MAX_FRAME_BYTES,
            description="The longest frame that a client may send. Very large messages come in many.",
        ),
    ] = limits.MAX_FRAME_BYTES
    max_bytes_per_second: Annotated[
        int,
        Meta(
            ge=0,
            le=2**40,
            description="Bytes in a second that are read from one connection; more waits in the network. 0: all.",
        ),
    ] = 0
    max_sessions_per_connection: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_SESSIONS_PER_CONNECTION, description="Sessions of one connection."),
    ] = limits.MAX_SESSIONS_PER_CONNECTION
    max_consumers_per_session: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.MAX_CONSUMERS_PER_SESSION,
            description="Consumers and subscriptions of one session.",
        ),
    ] = limits.MAX_CONSUMERS_PER_SESSION
    heartbeat_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=3600,
            description="An idle connection shows a sign of life this often; after"
            f" {limits.HEARTBEATS_MISSED} missed ones it is given up.",
        ),
    ] = limits.HEARTBEAT_SECONDS


class IdentitySettings(_Section, frozen=True):
    """Who the server's users are, and who the server itself is."""

    users_file: Annotated[
        str,
        Meta(
            description="File with users and access rules, made by `helio user add`. Empty: users.toml in the"
            " data folder."
        ),
    ] = ""
    passwords_in_the_clear: Annotated[
        bool,
        Meta(
            description="Whether clients of other machines may send their passwords as they are, without TLS. Only"
            " where nobody else can listen; our own clients do without, by SCRAM-SHA-256."
        ),
    ] = False
    site: Annotated[
        int,
        Meta(ge=0, le=65535, description="Part of every message id: give each installation its own number."),
    ] = 1
    node: Annotated[
        int,
        Meta(
            ge=0, le=65535, description="Part of every message id: give each node of a site its own number."
        ),
    ] = 1


# Both names and a little more are the name of a group of corosync, which takes 127 bytes.
_NAME = "^[A-Za-z0-9._-]{1,40}$"
_NAME_OR_NOTHING = "^[A-Za-z0-9._-]{0,40}$"
Role = Literal["both", "client-manager", "message-manager"]
Layout = Literal["client-managers-on-all", "message-managers-on-all"]


class ClusterSettings(_Section, frozen=True):
    """One server out of many. Without a name the server stands alone."""

    name: Annotated[
        str,
        Meta(
            pattern=_NAME_OR_NOTHING,
            description="The cluster's name, the same on all its nodes. Empty: this server stands alone.",
        ),
    ] = ""
    sub_cluster: Annotated[
        str,
        Meta(pattern=_NAME, description="The sub-cluster whose messages this node keeps copies of."),
    ] = "main"
    sub_clusters: Annotated[
        str,
        Meta(
            max_length=4096,
            description="The names of all sub-clusters, with commas between them, the same on all nodes. Destinations"
            " are spread over them. Empty: there is this one only.",
        ),
    ] = ""
    role: Annotated[
        Role,
        Meta(
            description="client-manager: clients connect here, nothing is stored. message-manager: messages are"
            " stored, clients never come. both: one process does both."
        ),
    ] = "both"
    message_managers: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="How many message managers the sub-cluster has. When it is started for the very first time,"
            " all of them must be there before it begins to work.",
        ),
    ] = 1
    seniority: Annotated[
        int,
        Meta(
            ge=0,
            le=2**31,
            description="Among message managers that are equally up to date the lowest leads; then the name decides.",
        ),
    ] = 0
    dispatch_majority: Annotated[
        bool,
        Meta(
            description="A client gets a message of a queue or of a shared subscription when more than half of the"
            " client managers know of it. Without this, nodes that lose each other may hand it out twice."
        ),
    ] = True

    buses: Annotated[
        str,
        Meta(
            max_length=4096,
            description="The names of the buses, with commas between them, the same on all nodes, if there are"
            " several: a corosync each, with a network of its own. Empty: there is one, the corosync of the host.",
        ),
    ] = ""
    bus_layout: Annotated[
        Layout,
        Meta(
            description="Who is on which bus, if there are several. client-managers-on-all: each sub-cluster is on"
            " one, client managers on all. message-managers-on-all: each client manager is on one, message managers"
            " on all."
        ),
    ] = "client-managers-on-all"
    bus_of_sub_clusters: Annotated[
        str,
        Meta(
            max_length=4096,
            description="On which bus the messages of each sub-cluster are ordered, as main=east with commas between"
            " them, the same on all nodes. Those that are not named are on the buses in turn.",
        ),
    ] = ""
    bus: Annotated[
        str,
        Meta(
            pattern=_NAME_OR_NOTHING,
            description="The bus of this client manager, where message managers are on all. Empty: the first.",
        ),
    ] = ""
    bus_namespaces: Annotated[
        str,
        Meta(
            max_length=4096,
            description="In which network namespaces of this host the corosyncs run, as west=NAME with commas between"
            " them. A bus that is not named has the corosync of the host itself.",
        ),
    ] = ""

    @property
    def all_sub_clusters(self) -> tuple[str, ...]:
        """In the order of their names, whatever order they were given in."""
        given = [name.strip() for name in self.sub_clusters.split(",")]
        return tuple(sorted({name for name in given if name})) or (self.sub_cluster,)


class Buses(msgspec.Struct, frozen=True):
    """Several buses, and who is on which."""

    names: tuple[str, ...]
    bus_of: dict[str, str]  # of sub-clusters
    namespaces: dict[str, str]
    own: str  # of a client manager, where message managers are on all


def buses_of(cluster: ClusterSettings) -> Buses | None:
    """None if there is one. Raises ClientFault, naming the key."""
    names = tuple(dict.fromkeys(_listed(cluster.buses)))
    if not names:
        return None
    if any(not re.fullmatch(_NAME, name) for name in names):
        raise ClientFault("cluster.buses are names with commas between them", code=INVALID)
    bus_of = {name: names[turn % len(names)] for turn, name in enumerate(cluster.all_sub_clusters)}
    bus_of |= _assigned("bus_of_sub_clusters", cluster.bus_of_sub_clusters, tuple(bus_of), names)
    namespaces = _assigned("bus_namespaces", cluster.bus_namespaces, names, None)
    reached = [namespaces.get(name, "") for name in names]
    if len(set(reached)) < len(reached):
        raise ClientFault(
            "cluster.bus_namespaces must say where each bus but one has its corosync: two of"
            f" {', '.join(names)} would be the same",
            code=INVALID,
        )
    if cluster.bus and cluster.bus not in names:
        raise ClientFault(f"cluster.bus must be one of {', '.join(names)}, not {cluster.bus}", code=INVALID)
    return Buses(names, bus_of, namespaces, cluster.bus or names[0])


def _listed(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]


def _assigned(key: str, text: str, known: tuple[str, ...], values: tuple[str, ...] | None) -> dict[str, str]:
    """`name=value` with commas between them."""
    found = {}
    for each in _listed(text):
        name, _, value = each.partition("=")
        if name not in known:
            raise ClientFault(
                f"cluster.{key} names {name}, and there is only {', '.join(known)}", code=INVALID
            )
        if not value or (values is not None and value not in values):
            expected = f"one of {', '.join(values)}" if values is not None else "something"
            raise ClientFault(f"cluster.{key} must give {name} {expected}, not {value!r}", code=INVALID)
        found[name] = value
    return found


class CreationSettings(_Section, frozen=True):
    """Who may create the destinations that a pattern matches."""

    destinations: str
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class Configuration(_Section, frozen=True):
    """Everything that can be set, with the defaults that hold when it is not."""

    server: ServerSettings = ServerSettings()
    tls: TlsSettings = TlsSettings()
    journal: JournalSettings = JournalSettings()
    memory: MemorySettings = MemorySettings()
    large: LargeSettings = LargeSettings()
    destinations: DestinationSettings = DestinationSettings()
    sessions: SessionSettings = SessionSettings()
    limits: LimitSettings = LimitSettings()
    identity: IdentitySettings = IdentitySettings()
    cluster: ClusterSettings = ClusterSettings()
    policies: tuple[dict[str, Any], ...] = ()  # as `PolicyRule` reads them
    creation: tuple[CreationSettings, ...] = ()

    @property
    def users_path(self) -> Path:
        """Where the users file is, or would be."""
        return Path(self.identity.users_file or Path(self.server.data) / "users.toml")

    def policy_rules(self) -> PolicyRules:
        """Raises ClientFault `policy-invalid`, naming the key."""
        return PolicyRules([PolicyRule.of(given) for given in self.policies])

    def distributions(self) -> Distributions:
        """Which destinations are distributed over the sub-clusters. Raises ClientFault `policy-invalid`."""
        rules = self.policy_rules()
        names = self.cluster.all_sub_clusters if self.cluster.name else ()
        if names:
            rules.check_members(names)
        return Distributions(rules.distribution_for, names)

    def creation_rules(self) -> list[CreationRule]:
        """Raises ClientFault `pattern-invalid`."""
        return [
            CreationRule(destinations=each.destinations, users=each.users, roles=each.roles)
            for each in self.creation
        ]


def load(path: Path | str | None = None, overrides: Mapping[str, object] | None = None) -> Configuration:
    """Read the file, if any, and lay `overrides` over it (`{"server.port": 0}`; None overrides nothing).

    Raises ClientFault `configuration-invalid`, `policy-invalid` or `pattern-invalid`, naming what is wrong.
    """
    given = {} if path is None else _read(Path(path))
    for key, value in (overrides or {}).items():
        if value is not None:
            section, dot, name = key.partition(".")
            table = given.setdefault(section, {}) if dot else None
            if isinstance(table, dict):  # else the conversion says what is wrong with it
                table[name] = value
            elif not dot:
                given[section] = value
    try:
        configuration = msgspec.convert(given, Configuration)
    except msgspec.ValidationError as fault:
        raise _explain(str(fault), given) from None
    configuration.distributions()
    configuration.creation_rules()
    buses_of(configuration.cluster)
    return configuration


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ClientFault(
            f"the configuration {path} cannot be read: {fault.strerror}", code=INVALID
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise ClientFault(f"the configuration {path} is not TOML: {fault}", code=INVALID) from None


# ---- what each key accepts


class Setting(msgspec.Struct, frozen=True):
    """One key as a person sees it."""

    section: str
    name: str
    description: str
    accepts: str
    default: object

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"


# On these every node of a cluster has to agree (M14): what a client may do and is promised must not depend on where
# it came in.
_ESSENTIAL: Final = (
    "journal.durability",
    "destinations.",
    "sessions.",
    "cluster.message_managers",
    "cluster.sub_clusters",
    "cluster.dispatch_majority",
    "cluster.buses",
    "cluster.bus_layout",
    "cluster.bus_of_sub_clusters",
)


def essentials_of(configuration: Configuration) -> tuple[tuple[str, str], ...]:
    """The settings on which all nodes of a cluster have to agree, each as it is written in the file; of rules, how
    many there are and a digest of them."""
    rules = (
        ("policies", _digest_of(list(configuration.policies))),
        ("creation", _digest_of([msgspec.to_builtins(rule) for rule in configuration.creation])),
    )
    return rules + tuple(
        (setting.key, toml_of(getattr(getattr(configuration, setting.section), setting.name)))
        for setting in settings()
        if setting.key.startswith(_ESSENTIAL)
    )


def _digest_of(rules: list[Any]) -> str:
    if not rules:
        return "without rules"
    digest = hashlib.blake2b(json.dumps(rules, sort_keys=True).encode(), digest_size=4).hexdigest()
    return f"{len(rules)} rule{'s' if len(rules) > 1 else ''} ({digest})"


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Every key there is, in the order of the file."""
    found = []
    for section in _fields(types.type_info(Configuration)):
        for field in _fields(section.type) if isinstance(section.type, types.StructType) else ():
            kind, description = field.type, ""
            if isinstance(kind, types.Metadata):
                description = str((kind.extra_json_schema or {}).get("description", ""))
                kind = kind.type
            found.append(Setting(section.name, field.name, description, _accepts(kind), field.default))
    return tuple(found)


def _fields(kind: types.Type) -> tuple[types.Field, ...]:
    assert isinstance(kind, types.StructType)
    return kind.fields


def _accepts(kind: types.Type) -> str:
    match kind:
        case types.BoolType():
            return "true or false"
        case types.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case types.FloatType(ge=low, le=high):
            return f"a number from {low:g} to {high:g}"
        case types.LiteralType(values=values):
            # msgspec sorts them; the declaration has them from safest to fastest.
            declared = (
                *get_args(Durability),
                *get_args(Role),
                *get_args(Layout),
                *get_args(Clients),
                *get_args(Version),
            )
            return "one of " + ", ".join(toml_of(value) for value in declared if value in values)
        case types.StrType(pattern=str()):
            return "a name of at most 40 letters, digits, dots, dashes and underscores"
        case types.StrType(min_length=shortest):
            return "a text that is not empty" if shortest else "a text"
    raise AssertionError(kind)


# ---- what is wrong

_COMPLAINT = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<name>.*)`", re.DOTALL)


def _explain(complaint: str, given: Mapping[str, Any]) -> ClientFault:
    """The library's complaint in words that name the key and say what it accepts."""
    found = _COMPLAINT.match(complaint)
    assert found is not None
    path = found["path"] or ""
    if unknown := _UNKNOWN.search(found["problem"]):
        return ClientFault(_unknown_key(path, unknown["name"]), code=INVALID)
    for setting in settings():
        if setting.key == path:
            value = given[setting.section][setting.name]
            return ClientFault(f"{path} must be {setting.accepts}, not {_shown(value)}", code=INVALID)
    if path.startswith("policies"):
        return ClientFault("policies are tables: write [[policies]] and the keys of each below", code=INVALID)
    if path.startswith("creation"):
        return ClientFault(
            "creation rules are tables: write [[creation]] and below it destinations, a text, users and roles,"
            f" lists of texts; here {path} is not",
            code=INVALID,
        )
    return ClientFault(f"{path} is a section: write [{path}] and its keys below", code=INVALID)


def _unknown_key(section: str, name: str) -> str:
    key = f"{section}.{name}" if section else name
    known = [setting.key for setting in settings()]
    elsewhere = [other for other in known if other.endswith(f".{name}")]
    near = elsewhere or difflib.get_close_matches(key, [*known, *Configuration.__struct_fields__], n=1)
    hint = f"did you mean {near[0]}?" if near else "`helio serve --print-config` shows all that there are"
    return f"there is no setting {key[:80]}; {hint}"


def _shown(value: object) -> str:
    text = toml_of(value) if isinstance(value, bool | int | float | str) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:60] + "…"


def toml_of(value: object) -> str:
    """A value as it is written in the file."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}" if value >= 100_000 else str(value)
    return repr(value)

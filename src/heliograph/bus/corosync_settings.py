"""The text of a corosync.conf that suits Heliograph. Nothing is written here.

There is no quorum section: which part of a cut may do what is decided by the partition states of each sub-cluster,
and process groups work without a quorum.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from heliograph.model.errors import ClientFault

# Corosync takes a key of up to 4096 bytes; the cipher and the hash together use far less than this.
KEY_BYTES = 256
DEFAULT_TOKEN_MS = 1000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
# Corosync's own limit for the name of a cluster.
_MAX_CLUSTER_NAME = 127


class Host(msgspec.Struct, frozen=True):
    """A host of the ring: its name, and the addresses it has on one network or on several."""

    name: str
    addresses: tuple[str, ...]


def parse_host(text: str) -> Host:
    """`NAME`, `NAME=ADDRESS` or `NAME=ADDRESS,ADDRESS` with an address per network. Raises ClientFault."""
    name, given, addresses = text.partition("=")
    host = Host(name, tuple(addresses.split(",")) if given else (name,))
    if not all(_NAME.fullmatch(word) for word in (host.name, *host.addresses)):
        raise ClientFault(f"a host is written NAME or NAME=ADDRESS, not {text!r}", code="argument-invalid")
    return host


def render(
    hosts: Sequence[Host],
    *,
    cluster: str,
    key_file: str = "",
    token_ms: int = DEFAULT_TOKEN_MS,
    log_file: str = "",
    state_directory: str = "",
    realtime: bool = True,
) -> str:
    """The same text for every host. Without a key file anybody on the network can join. Raises ClientFault."""
    _check(hosts, cluster)
    crypto = [f"keyfile: {key_file}"] if key_file else []
    totem = [
        "version: 2",
        f"cluster_name: {cluster}",
        "transport: knet",
        f"crypto_cipher: {'aes256' if key_file else 'none'}",
        f"crypto_hash: {'sha256' if key_file else 'none'}",
        *crypto,
        "# A host that is silent for so long is gone. Corosync would add to it for every host.",
        f"token: {token_ms}",
        "token_coefficient: 0",
        "token_retransmits_before_loss_const: 10",
        "# Ten times the throughput of the defaults; do not add netmtu.",
        "window_size: 256",
        "max_messages: 128",
    ]
    system = [
        f"sched_rr: {'yes' if realtime else 'no'}",
        *([] if realtime else ["priority: 0"]),
        *([f"state_dir: {state_directory}"] if state_directory else []),
    ]
    logging = [
        "to_stderr: no" if log_file else "to_stderr: yes",
        "to_syslog: no" if log_file else "to_syslog: yes",
    ]
    logging += ["to_logfile: yes", f"logfile: {log_file}"] if log_file else []
    nodes = "".join(_node(number, host) for number, host in enumerate(hosts, 1))
    sections = (("totem", totem), ("system", system), ("logging", logging))
    return "".join(_section(name, lines) for name, lines in sections) + f"nodelist {{\n{nodes}}}\n"


def _check(hosts: Sequence[Host], cluster: str) -> None:
    if not _NAME.fullmatch(cluster) or len(cluster) > _MAX_CLUSTER_NAME:
        raise ClientFault(f"a cluster cannot be called {cluster!r}", code="argument-invalid")
    if not hosts:
        raise ClientFault("a cluster has at least one host", code="argument-invalid")
    names = [host.name for host in hosts]
    addresses = [address for host in hosts for address in host.addresses]
    if len(set(names)) < len(names) or len(set(addresses)) < len(addresses):
        raise ClientFault("a host or an address was given twice", code="argument-invalid")
    if len({len(host.addresses) for host in hosts}) > 1:
        raise ClientFault("every host needs an address on each network", code="argument-invalid")


def _section(name: str, lines: Sequence[str]) -> str:
    return f"{name} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def _node(number: int, host: Host) -> str:
    lines = [f"nodeid: {number}", f"name: {host.name}"]
    lines += [f"ring{network}_addr: {address}" for network, address in enumerate(host.addresses)]
    return "    node {\n" + "".join(f"        {line}\n" for line in lines) + "    }\n"

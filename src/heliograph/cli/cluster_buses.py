"""`helio cluster init --bus …`: files for hosts that are on several buses, a corosync each (M3).

The first bus has the corosync of the host itself; each other has one in a network namespace, because corosync and its
clients find each other by names that there are once in a network namespace.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.bus.corosync_settings import Host, render
from heliograph.model.errors import ClientFault

_UNIT = """\
[Unit]
Description=Corosync of the bus {bus}
After=network-online.target

[Service]
NetworkNamespacePath=/run/netns/{bus}
# Each corosync has its lock in /run, and its state in a folder of its own.
PrivateMounts=yes
TemporaryFileSystem=/run
StateDirectory=corosync/{bus}
ExecStart=/usr/sbin/corosync -f -c /etc/corosync/corosync-{bus}.conf
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""


def check(hosts: Sequence[Host], buses: Sequence[str]) -> None:
    """Raises ClientFault."""
    if len(set(buses)) < len(buses):
        raise ClientFault("a bus was given twice", code="argument-invalid")
    if any(len(host.addresses) != len(buses) for host in hosts):
        raise ClientFault(
            f"with {len(buses)} buses every host is written NAME={','.join(['ADDRESS'] * len(buses))}, an address on"
            " the network of each bus",
            code="argument-invalid",
        )


def files(
    hosts: Sequence[Host], buses: Sequence[str], *, cluster: str, key_file: str, token_ms: int
) -> dict[str, str]:
    """A corosync.conf for each bus, in which a host has the same number on all; and units for those that systemd does
    not have. Raises ClientFault."""
    found = {}
    for number, bus in enumerate(buses):
        on_bus = [Host(host.name, (host.addresses[number],)) for host in hosts]
        name, state = f"{cluster}-{bus}", f"/var/lib/corosync/{bus}" if number else ""
        text = render(on_bus, cluster=name, key_file=key_file, token_ms=token_ms, state_directory=state)
        found[f"corosync-{bus}.conf" if number else "corosync.conf"] = text
        if number:
            found[f"corosync-{bus}.service"] = _UNIT.format(bus=bus)
    return found


def settings(buses: Sequence[str]) -> dict[str, str]:
    """Keys of [cluster]."""
    return {
        "buses": ", ".join(buses),
        "bus_namespaces": ", ".join(f"{bus}={bus}" for bus in buses[1:]),
    }


def steps(host: Host, buses: Sequence[str], folder: str) -> list[str]:
    """Commands for the buses after the first."""
    lines = []
    for bus, address in zip(buses[1:], host.addresses[1:], strict=True):
        lines += [
            f"scp -p {folder}/corosync-{bus}.conf root@{host.name}:/etc/corosync/",
            f"scp {folder}/corosync-{bus}.service root@{host.name}:/etc/systemd/system/",
            f"ssh root@{host.name} ip netns add {bus}",
            f"ssh root@{host.name} ip link set DEVICE netns {bus}   # the network card of that bus",
            f"ssh root@{host.name} ip -n {bus} address add {address}/24 dev DEVICE",
            f"ssh root@{host.name} 'ip -n {bus} link set lo up; ip -n {bus} link set DEVICE up'",
            f"ssh root@{host.name} systemctl enable --now corosync-{bus}",
        ]
    return lines

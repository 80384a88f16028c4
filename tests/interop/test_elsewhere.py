"""An MQTT client that goes from one client manager of a cluster to another and back: none ends what it still has."""

from __future__ import annotations

import socket
from typing import NamedTuple

import pytest

from heliograph.testing.cluster import ClusterFactory, RunningCluster
from tests.interop.stage import SECONDS
from tests.interop.test_paho import client

pytestmark = [pytest.mark.req("X1", "M8"), pytest.mark.slow]
LASTS = 300  # seconds that a session outlives its connection


class Place(NamedTuple):
    host: str
    port: int


def at(cluster: RunningCluster, node: int) -> Place:
    host, _, port = cluster.url(node).removeprefix("helio://").partition(":")
    return Place(host, int(port))


def come_and_go(cluster: RunningCluster, node: int, *waiting: bytes) -> None:
    """It is known there, and gets what waited for it; it leaves again."""
    with client(at(cluster, node), "mover", clean=False, expiry=LASTS) as one:
        assert one.flags.session_present, "what it had is not there any more"
        one.await_messages(len(waiting))
        assert one.payloads == list(waiting)


def begin(cluster: RunningCluster, node: int) -> None:
    with client(at(cluster, node), "mover", clean=False, expiry=LASTS) as one:
        one.subscribe("moving/+", 1)


def send(cluster: RunningCluster, node: int, body: bytes) -> None:
    """Until it is confirmed."""
    with client(at(cluster, node)) as other:
        other.publish("moving/news", body, 1)


def test_the_time_of_a_session_counts_from_where_it_was_last(heliograph_cluster: ClusterFactory) -> None:
    cluster = heliograph_cluster(3)
    begin(cluster, 1)
    cluster.clock.advance(LASTS - 100)
    come_and_go(cluster, 2)
    send(cluster, 3, b"confirmed")
    cluster.clock.advance(LASTS - 100)  # the time that node 1 counted is over
    come_and_go(cluster, 2, b"confirmed")
    come_and_go(cluster, 1)
    send(cluster, 3, b"again")
    cluster.clock.advance(LASTS - 100)
    come_and_go(cluster, 3, b"again")
    cluster.clock.advance(LASTS + 10)  # and if it is nowhere, it ends
    with client(at(cluster, 1), "mover", clean=False, expiry=LASTS) as one:
        assert not one.flags.session_present


@pytest.mark.parametrize("heals", ["before it is over", "after it is over"])
def test_the_time_of_a_session_is_not_over_while_its_client_is_in_another_part(
    heliograph_cluster: ClusterFactory, heals: str
) -> None:
    cluster = heliograph_cluster(3)
    begin(cluster, 1)
    cluster.cut([1], [2, 3])
    cluster.clock.advance(LASTS - 100)
    come_and_go(cluster, 2)
    send(cluster, 3, b"confirmed")
    if heals == "before it is over":
        cluster.heal()
    cluster.clock.advance(LASTS - 100)
    if heals == "after it is over":
        cluster.heal()
    come_and_go(cluster, 2, b"confirmed")


def test_a_number_that_was_finished_elsewhere_is_free_again(heliograph_cluster: ClusterFactory) -> None:
    """A message of quality 2 under a number that another client manager saw the end of is a new one."""
    cluster = heliograph_cluster(2)

    def come(node: int) -> socket.socket:
        raw = socket.create_connection(at(cluster, node), timeout=SECONDS)
        raw.sendall(b"\x10\x10\x00\x04MQTT\x04\x00\x00\x3c\x00\x04twin")
        assert raw.recv(4)[:2] == b"\x20\x02"
        return raw

    def publish(raw: socket.socket, body: bytes) -> None:
        raw.sendall(b"\x34\x0f\x00\x08numbered\x00\x07" + body)
        assert raw.recv(4) == b"\x50\x02\x00\x07"

    with client(at(cluster, 2)) as reader:
        reader.subscribe("numbered", 2)
        with come(1) as raw:
            publish(raw, b"one")
            raw.sendall(b"\xe0\x00")
            assert raw.recv(1) == b""
        with come(2) as raw:
            raw.sendall(b"\x62\x02\x00\x07")
            assert raw.recv(4)[:2] == b"\x70\x02"
            raw.sendall(b"\xe0\x00")
            assert raw.recv(1) == b""
        with come(1) as raw:
            publish(raw, b"two")
        reader.await_messages(2)
        assert reader.payloads == [b"one", b"two"]

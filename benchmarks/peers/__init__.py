"""The systems that Heliograph is measured against, and the bare limits, by name."""

from __future__ import annotations

from functools import cache

from benchmarks.peers.interface import Peer


@cache
def all_peers() -> dict[str, Peer]:
    """Every peer and limit, in the order in which a round goes through them."""
    # Imported late, because the bare limits implement the interface of this package.
    from benchmarks.limits import BareEcho, BareLoop
    from benchmarks.peers.activemq import ActiveMQ
    from benchmarks.peers.heliograph_protocols import HeliographAiomqtt, HeliographPaho, HeliographStomp
    from benchmarks.peers.mosquitto import Mosquitto, MosquittoAiomqtt
    from benchmarks.peers.nats import NatsJetStream
    from benchmarks.peers.rabbitmq import RabbitMQ, RabbitMQAioPika, RabbitMQQuorum
    from benchmarks.peers.redis import RedisAlways, RedisEverySecond

    peers: list[Peer] = [
        BareLoop(),
        BareEcho(),
        RabbitMQ(),
        RabbitMQQuorum(),
        RabbitMQAioPika(),
        ActiveMQ(),
        NatsJetStream(),
        RedisAlways(),
        RedisEverySecond(),
        Mosquitto(),
        MosquittoAiomqtt(),
        HeliographStomp(),
        HeliographPaho(),
        HeliographAiomqtt(),
    ]
    return {peer.key: peer for peer in peers}


@cache
def cluster_peers() -> dict[str, Peer]:
    """Those that keep every message in three places, for `benchmarks.cluster`."""
    from benchmarks.peers.nats_cluster import NatsCluster
    from benchmarks.peers.rabbitmq_cluster import RabbitMQCluster

    peers: list[Peer] = [RabbitMQCluster(), NatsCluster()]
    return {peer.key: peer for peer in peers}


@cache
def protocol_peers() -> dict[str, list[Peer]]:
    """By protocol: Heliograph and the others with the same client, for `benchmarks.protocols`."""
    from benchmarks.peers.activemq import ActiveMQ
    from benchmarks.peers.activemq_mqtt import ActiveMQPaho
    from benchmarks.peers.artemis import ArtemisPaho, ArtemisProton, ArtemisStomp
    from benchmarks.peers.heliograph_protocols import (
        HeliographPaho,
        HeliographPahoWritten,
        HeliographProton,
        HeliographStomp,
    )
    from benchmarks.peers.mosquitto import Mosquitto

    return {
        "MQTT": [HeliographPaho(), HeliographPahoWritten(), Mosquitto(), ActiveMQPaho(), ArtemisPaho()],
        "STOMP": [HeliographStomp(), ActiveMQ(), ArtemisStomp()],
        "AMQP": [HeliographProton(), ArtemisProton()],
    }


def peer_named(key: str) -> Peer:
    """The peer of that name."""
    spoken = {peer.key: peer for peers in protocol_peers().values() for peer in peers}
    return {**spoken, **all_peers(), **cluster_peers()}[key]

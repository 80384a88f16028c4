"""Connections that break again and again: what was confirmed arrives, and of quality 2 exactly once."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as mqtt
import pytest

from tests.interop.stage import Stage, wait_for

pytestmark = [pytest.mark.req("X1"), pytest.mark.slow]
MESSAGES = 400
CUTS = 12


class Cutter:
    """Stands between clients and the server, and cuts what goes through it, in mid-packet as it comes."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = self._stage.dial()
            server.settimeout(None)
            self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(self._chance.randint(1, 3000)):
                target.sendall(data)
        for each in (source, target):
            each.close()

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._listener.close()
        self.cut()


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_lost_and_quality_2_is_not_doubled(stage: Stage, qos: int) -> None:
    topic = f"cut/{qos}"
    got: list[int] = []

    def client(name: str, port: int) -> Any:
        made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=f"{name}-{qos}", clean_session=False)
        made.reconnect_delay_set(0.02, 0.05)
        made.max_inflight_messages_set(20)
        made.connect("127.0.0.1", port)
        return made

    with Cutter(stage, qos) as cutter:
        subscriber = client("subscriber", cutter.port)
        is_subscribed = threading.Event()
        subscriber.on_subscribe = lambda *_: is_subscribed.set()
        subscriber.on_connect = lambda *_: subscriber.subscribe(topic, qos)
        subscriber.on_message = lambda _c, _d, message: got.append(int(message.payload))
        subscriber.loop_start()
        assert is_subscribed.wait(60)
        publisher = client("publisher", cutter.port)
        confirmed: set[int] = set()
        publisher.on_publish = lambda _c, _d, mid, *_: confirmed.add(mid)
        publisher.loop_start()
        for number in range(MESSAGES):
            publisher.publish(topic, b"%d" % number, qos)
            if number % (MESSAGES // CUTS) == MESSAGES // CUTS - 1:
                before = len(confirmed)
                wait_for(lambda before=before: len(confirmed) > before, "one is confirmed")  # type: ignore[misc]
                cutter.cut()
        wait_for(lambda: len(confirmed) == MESSAGES, "all were confirmed")
        wait_for(lambda: set(got) >= set(range(MESSAGES)), "all arrived")
        for each in (publisher, subscriber):
            each.disconnect()
            each.loop_stop()
    if qos == 2:
        assert sorted(got) == list(range(MESSAGES))
    first = list(dict.fromkeys(got))
    assert set(first) == set(range(MESSAGES))

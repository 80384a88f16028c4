"""AMQP 1.0 through Qpid Proton's own container for Python, against whichever server.

Messages are durable and unsettled: a send is confirmed when the server's disposition says that it accepted it, and a
message received is done when the client's disposition says so.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar, Final

from benchmarks.peers.interface import Peer, StartingLine
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

WINDOW: Final = 1_000
PREFETCH: Final = 1_000


class ProtonPeer(Peer):
    """A server through python-qpid-proton."""

    client = "python-qpid-proton"
    modules = ("proton",)
    workloads: ClassVar[tuple[str, ...]] = ("queue", "queue-1k")

    def synced(self, kind: Kind) -> Synced:
        return "yes"

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Send up to the window, and as the server gives credit."""
        from proton import Message
        from proton.handlers import MessagingHandler
        from proton.reactor import Container

        class Sending(MessagingHandler):  # type: ignore[misc]  # Proton has no types
            def __init__(self) -> None:
                super().__init__()
                self.sent = self.confirmed = self.started = self.finished = 0
                self.body = b"x" * plan.size

            def on_start(self, event: Any) -> None:
                connection = event.container.connect(f"amqp://127.0.0.1:{plan.port}")
                self.sender = event.container.create_sender(connection, f"/queue/{plan.destination}")

            def on_sendable(self, event: Any) -> None:
                if not self.started:
                    line.wait_for_go()
                    self.started = time.monotonic_ns()
                self.send()

            def send(self) -> None:
                sender = self.sender
                while sender.credit and self.sent < plan.messages and self.sent - self.confirmed < WINDOW:
                    sender.send(Message(self.body, durable=True))
                    self.sent += 1

            def on_accepted(self, event: Any) -> None:
                self.confirmed += 1
                if self.confirmed == plan.messages:
                    self.finished = time.monotonic_ns()
                    event.connection.close()
                elif self.confirmed % 100 == 0:
                    self.send()

        sending = Sending()
        Container(sending).run()
        return outcome(sending.started, sending.finished)

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Receive with credit for many; Proton accepts each message after the callback."""
        from proton.handlers import MessagingHandler
        from proton.reactor import Container

        class Receiving(MessagingHandler):  # type: ignore[misc]  # Proton has no types
            def __init__(self) -> None:
                super().__init__(prefetch=PREFETCH)
                self.received = self.finished = 0

            def on_start(self, event: Any) -> None:
                connection = event.container.connect(f"amqp://127.0.0.1:{plan.port}")
                event.container.create_receiver(connection, f"/queue/{plan.destination}")

            def on_link_opened(self, event: Any) -> None:
                line.ready()

            def on_message(self, event: Any) -> None:
                self.received += 1
                if self.received == plan.messages:
                    self.finished = time.monotonic_ns()
                    event.connection.close()

        receiving = Receiving()
        started = time.monotonic_ns()
        Container(receiving).run()
        return outcome(started, receiving.finished)

"""ActiveMQ with its default store, KahaDB, through stomp.py.

KahaDB's default is to sync its journal for every persistent message (`journalDiskSyncStrategy="always"`); it
is written out in the configuration so that nobody has to look it up. A STOMP receipt is the confirmation.
Fan-out uses a topic with non-persistent messages.
"""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.peers.interface import Peer, StartingLine, age_ns, due, program, stamped
from benchmarks.processes import BenchmarkError, Server, port_answers
from benchmarks.workloads import Kind, Outcome, Plan, Synced, outcome

WINDOW: Final = 1_000
PREFETCH: Final = 2_000
ACK_EVERY: Final = 200
PATIENCE_SECONDS: Final = 60
CLASSPATH: Final = "/usr/share/activemq/bin/activemq.jar"

CONFIGURATION: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false"
          schedulePeriodForDestinationPurge="0" dataDirectory="{folder}/data">
    <persistenceAdapter>
      <kahaDB directory="{folder}/data/kahadb" journalDiskSyncStrategy="always"/>
    </persistenceAdapter>
    <transportConnectors>
      <transportConnector name="one" uri="{scheme}://127.0.0.1:{port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


class ActiveMQ(Peer):
    """ActiveMQ through STOMP."""

    key = "activemq"
    title = "ActiveMQ (stomp.py)"
    client = "stomp.py"
    durability = "journal synced before the receipt, message by message"
    packages: ClassVar[tuple[str, ...]] = ("activemq", "default-jre-headless")
    programs: ClassVar[tuple[str, ...]] = ("activemq", "java")
    modules = ("stomp",)
    ahead: ClassVar[dict[str, str]] = {"activemq.prefetchSize": str(PREFETCH)}
    """How much a subscriber may be sent ahead, in the server's words."""

    def synced(self, kind: Kind) -> Synced:
        """Every persistent message; fan-out is not persistent."""
        return "no" if kind == "fanout" else "yes"

    def server_version(self) -> str:
        """The version of the installed package."""
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "activemq"], capture_output=True, text=True, check=False
        )
        return f"ActiveMQ {said.stdout.strip() or 'of unknown version'}"

    def start(self, folder: Path, port: int) -> Server:
        """Start the broker with STOMP."""
        return start_broker(folder, port, "stomp")

    def produce(self, plan: Plan, line: StartingLine) -> Outcome:
        """Send with a receipt asked for each message."""
        connection, receipts = _connect(plan), _Receipts(plan)
        connection.set_listener("", receipts)
        connection.connect(wait=True)
        line.wait_for_go()
        receipts.started = time.monotonic_ns()
        {"sync": _send_one_by_one, "latency": _send_at_a_rate}.get(plan.kind, _send_pipelined)(
            plan, connection, receipts
        )
        if not receipts.all_confirmed.wait(PATIENCE_SECONDS):
            raise BenchmarkError(f"{receipts.confirmed} of {plan.messages} messages were confirmed")
        return outcome(receipts.started, receipts.finished, receipts.latencies)

    def consume(self, plan: Plan, line: StartingLine) -> Outcome:
        """Subscribe, acknowledging in ranges (a queue) or not at all (a topic)."""
        connection = _connect(plan)
        inbox = _Inbox(plan, connection)
        connection.set_listener("", inbox)
        connection.connect(wait=True)
        connection.subscribe(
            _address(plan),
            id="1",
            ack="auto" if plan.kind == "fanout" else "client",
            headers={**self.ahead, "receipt": "subscribed"},
        )
        inbox.subscribed.wait(PATIENCE_SECONDS)
        line.ready()
        started = time.monotonic_ns()
        if not inbox.all_received.wait(PATIENCE_SECONDS):
            raise BenchmarkError(f"{inbox.received} of {plan.messages} messages arrived")
        return outcome(started, inbox.finished, inbox.latencies)


def start_broker(folder: Path, port: int, scheme: str) -> Server:
    """Start the broker for one protocol, in a Java machine with the memory that Debian gives it."""
    settings = CONFIGURATION.format(folder=folder, port=port, scheme=scheme)
    (folder / "activemq.xml").write_text(settings)
    command = [
        program("java"),
        "-Xms512M",
        "-Xmx512M",
        "-Dorg.apache.activemq.UseDedicatedTaskRunner=true",
        "-Dactivemq.home=/usr/share/activemq",
        f"-Dactivemq.base={folder}",
        f"-Dactivemq.conf={folder}",
        f"-Dactivemq.data={folder}/data",
        f"-Djava.io.tmpdir={folder}",
        "-jar",
        CLASSPATH,
        "start",
        f"xbean:file:{folder}/activemq.xml",
    ]
    return Server(command, folder=folder, name="activemq").wait_until(port_answers(port))


def _connect(plan: Plan) -> Any:
    import stomp

    return stomp.Connection12([("127.0.0.1", plan.port)], auto_decode=False)


def _address(plan: Plan) -> str:
    return f"/{'topic' if plan.kind == 'fanout' else 'queue'}/{plan.destination}"


def _send(plan: Plan, connection: Any, body: bytes, receipt: int) -> None:
    persistent = "false" if plan.kind == "fanout" else "true"
    connection.send(_address(plan), body, headers={"persistent": persistent, "receipt": str(receipt)})


def _send_pipelined(plan: Plan, connection: Any, receipts: _Receipts) -> None:
    body = b"x" * plan.size
    for number in range(plan.messages):
        receipts.window.acquire()
        _send(plan, connection, body, number)


def _send_one_by_one(plan: Plan, connection: Any, receipts: _Receipts) -> None:
    body = b"x" * plan.size
    for number in range(plan.messages):
        before = time.monotonic_ns()
        receipts.arrived.clear()
        _send(plan, connection, body, number)
        receipts.arrived.wait(PATIENCE_SECONDS)
        receipts.latencies.append(time.monotonic_ns() - before)


def _send_at_a_rate(plan: Plan, connection: Any, receipts: _Receipts) -> None:
    number = 0
    for count in due(plan.messages, receipts.started):
        for _ in range(count):
            _send(plan, connection, stamped(plan.size), number)
            number += 1
        time.sleep(0.0005)


class _Receipts:
    """Counts confirmations in the library's receiving thread."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.window = threading.Semaphore(WINDOW)
        self.arrived, self.all_confirmed = threading.Event(), threading.Event()
        self.confirmed = self.started = self.finished = 0
        self.latencies: list[int] = []

    def on_receipt(self, frame: Any) -> None:
        """One message is stored."""
        self.confirmed += 1
        if self.plan.kind == "sync":
            self.arrived.set()
        else:
            self.window.release()
        if self.confirmed == self.plan.messages:
            self.finished = time.monotonic_ns()
            self.all_confirmed.set()

    def __getattr__(self, name: str) -> Any:
        return _ignore_event(name)


class _Inbox:
    """Counts and acknowledges messages in the library's receiving thread."""

    def __init__(self, plan: Plan, connection: Any) -> None:
        self.plan, self.connection = plan, connection
        self.subscribed, self.all_received = threading.Event(), threading.Event()
        self.received = self.finished = 0
        self.ack_every = {"fanout": 0, "latency": 1}.get(plan.kind, ACK_EVERY)
        self.latencies: list[int] = []

    def on_receipt(self, frame: Any) -> None:
        """The subscription stands."""
        self.subscribed.set()

    def on_message(self, frame: Any) -> None:
        """One message has arrived."""
        self.received += 1
        if self.plan.kind == "latency":
            self.latencies.append(age_ns(frame.body))
        done = self.received == self.plan.messages
        if self.ack_every and (done or self.received % self.ack_every == 0):
            self.connection.ack(frame.headers["ack"])
        if done:
            self.finished = time.monotonic_ns()
            self.all_received.set()

    def __getattr__(self, name: str) -> Any:
        return _ignore_event(name)


def _ignore_event(name: str) -> Any:
    """stomp.py calls a listener's method for every event; those that are not of interest do nothing."""
    if not name.startswith("on_"):
        raise AttributeError(name)
    return lambda *_: None

"""Not hearing oneself (J9): also what was sent before a restart, and by a client that came back."""

import pytest

from heliograph.bus.commands import ConsumerAttached, ConsumerDetached, Published, SessionOpened
from heliograph.destinations.catalogue import Catalogue
from heliograph.destinations.effects import AnyEffect, Persist, Write
from heliograph.destinations.events import BlocksReady, BlocksStored
from heliograph.destinations.recovery import CatalogueRecovery
from heliograph.destinations.snapshot import snapshot_of
from heliograph.destinations.waiting import Residence
from heliograph.journal.records import Record, RecordKind
from heliograph.model.destination import Address
from heliograph.model.ids import SessionId, lane_of
from tests.unit.destinations.stories import a_consumer, a_session, asked, lone

NEWS = Address("topic:news")
NOW = 1_000_000
pytestmark = pytest.mark.req("J6", "J9")


class Disk:
    """What was written, and held by nobody."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def retain(self, position: int, messages: int) -> None:
        pass

    def write(self, kind: int, destination: int, number: int, payload: bytes) -> int:
        lsn = len(self.records) + 1
        self.records.append(Record(kind, destination, number, lsn, lsn * 8, payload))
        return lsn * 8


class Life:
    """A catalogue from one start to the next."""

    def __init__(self, disk: Disk, snapshot: bytes = b"") -> None:
        self.disk = disk
        self.catalogue = Catalogue(Residence(10**9))
        recovery = CatalogueRecovery(self.catalogue, 1.0)
        if snapshot:
            recovery.snapshot(memoryview(snapshot))
        for record in [] if snapshot else disk.records:
            recovery.record(record)
        recovery.finish(disk, boot=b"boot")

    def run(self, effects: list[AnyEffect]) -> None:
        for write in asked(effects, Write):
            self.disk.write(write.kind, 0, 0, write.payload)

    def open(self, session: SessionId, client: str) -> None:
        self.run(self.catalogue.session_opened(SessionOpened(1, session, client, b"", b"x", client), 1.0))

    def subscribe(self, session: SessionId, client: str) -> int:
        """Returns how many messages wait for it."""
        effects: list[AnyEffect] = []
        topic = self.catalogue.find_or_make(NEWS, effects, create=True)
        consumer = a_consumer()
        wish = ConsumerAttached(2, NEWS, consumer, session, 0, subscription="desk", client=client)
        wish.durable = wish.no_local = True
        self.run(effects + topic.handle(wish, NOW))
        messages = topic.list_of(consumer)
        assert messages is not None
        depth = messages.depth
        self.run(topic.handle(ConsumerDetached(NEWS, consumer), NOW))
        return depth

    def publish(self, session: SessionId) -> None:
        topic = self.catalogue.by_address[NEWS]
        (persist,) = asked(topic.handle(Published(NEWS, lone(1, lane=lane_of(session, 1))), NOW), Persist)
        block = persist.block
        number = block.number
        block.position = self.disk.write(RecordKind.PUBLISHED, topic.number, number, block.buffer or b"")
        topic.handle(BlocksStored([block]), NOW)
        topic.handle(BlocksReady([block]), NOW)


@pytest.mark.parametrize("by_snapshot", [False, True], ids=["from the log", "from a snapshot"])
def test_after_a_restart_a_subscription_has_no_message_of_its_own_client(by_snapshot: bool) -> None:
    life = Life(Disk())
    ann, bob = a_session(), a_session()
    life.open(ann, "ann")
    life.open(bob, "bob")
    assert life.subscribe(ann, "ann") == 0
    life.publish(ann)
    life.publish(bob)
    snapshot = snapshot_of(life.catalogue, b"boot") if by_snapshot else b""
    again = Life(life.disk, snapshot)
    back = a_session()
    again.open(back, "ann")
    assert again.subscribe(back, "ann") == 1, "it is the same subscription, and has what bob sent"
    again.publish(back)
    assert again.subscribe(back, "ann") == 1
    third = Life(life.disk) if not by_snapshot else again
    if third is not again:
        third.open(back, "ann")
    assert third.subscribe(back, "ann") == 1

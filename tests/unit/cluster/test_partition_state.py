"""Stories of cuts: what each part is then, who leads in it, and why."""

from __future__ import annotations

import msgspec

from heliograph.bus.interface import NO_VIEW, Incarnation, Stamp
from heliograph.cluster.in_force import InForce
from heliograph.cluster.partition_state import (
    Enrolment,
    Partition,
    State,
    Statement,
    UnrestrictedView,
    partition_in,
)
from heliograph.cluster.partition_table import sentence_of


class Cluster:
    """Nodes of one view W that was in force, and what they say when they are next in a view."""

    def __init__(self, clients: int, managers: int) -> None:
        self.clients = tuple(who(f"c{number}") for number in range(1, clients + 1))
        self.names = [f"m{number}" for number in range(1, managers + 1)]
        self.enrolment = Enrolment(
            1,
            tuple((name, store(name)) for name in self.names),
            tuple(name_of(each) for each in self.clients),
        )
        self.view = Stamp(b"W" * 24)
        self.record = UnrestrictedView(7, self.view, tuple(store(name) for name in self.names))
        self.said = {name: self._statement(name) for name in (*map(name_of, self.clients), *self.names)}

    def _statement(self, name: str) -> Statement:
        is_client = name.startswith("c")
        return Statement(
            who=who(name),
            client_manager=name if is_client else "",
            message_manager="" if is_client else name,
            last=self.view,
            clients=self.clients,
            reached=None if is_client else self.record,
            elders=() if is_client else self.record.stores,
            store=b"" if is_client else store(name),
            is_synchronised=not is_client,
            record=None if is_client else self.record,
            reach=0 if is_client else 100,
            enrolment=None if is_client else self.enrolment,
        )

    def but(self, name: str, **changes: object) -> None:
        """One of them says something else."""
        self.said[name] = msgspec.structs.replace(self.said[name], **changes)

    def restart(self, *names: str) -> None:
        for name in names:
            gone = {"last": NO_VIEW, "reached": None, "elders": (), "clients": (), "is_synchronised": False}
            self.but(name, who=who(name + "'"), **gone)

    def part(self, *names: str) -> Partition:
        """These are in a view now; those who were in W came from there together."""
        said = [self.said[name] for name in names]
        came = tuple(each.who for each in said if each.last == self.view)
        return partition_in(said, {each.who: came if each.who in came else () for each in said})


def who(name: str) -> Incarnation:
    return Incarnation(name.encode())


def name_of(client: Incarnation) -> str:
    return client.decode()


def store(name: str) -> bytes:
    return f"disk of {name}".encode()


def test_the_primary_is_alone_with_three_of_five_client_managers() -> None:
    """Three message managers, five client managers, and the smaller half of the managers with most of the clients."""
    cluster = Cluster(5, 3)
    here, there = cluster.part("m1", "c1", "c2", "c3"), cluster.part("m2", "m3", "c4", "c5")
    assert (here.state, here.rule, here.primary) == (State.B, 2, who("m1"))
    assert (there.state, there.rule, there.unrestricted) == (State.D, 4, ())
    assert there.primary == who("m2"), "it accepts, and hands out what is new"


def test_a_part_with_most_of_both_is_c() -> None:
    part = Cluster(5, 3).part("m2", "m3", "c3", "c4", "c5")
    assert (part.state, part.primary) == (State.C, who("m2"))
    assert sentence_of(part).startswith("C, unrestricted, the larger part: one of the last unrestricted")
    assert "not in force yet" in sentence_of(part, is_in_force=False)


def test_of_two_halves_the_one_with_the_most_senior_goes_on() -> None:
    cluster = Cluster(2, 2)
    assert cluster.part("m2", "c1").state is State.B
    assert cluster.part("m1", "c2").state is State.D


def test_after_a_power_cut_those_who_were_unrestricted_go_on_with_the_longest_log() -> None:
    cluster = Cluster(3, 3)
    cluster.record = UnrestrictedView(9, Stamp(b"X" * 24), (store("m1"), store("m2")))
    for name in ("m1", "m2"):
        cluster.but(name, record=cluster.record)
    cluster.restart("m1", "m2", "c1", "c2")
    cluster.but("m2", reach=120)
    part = cluster.part("m1", "m2", "c1", "c2")
    assert (part.rule, part.state) == (3, State.C)
    assert (part.unrestricted, part.primary) == ((who("m2'"),), who("m2'")), "m1 has to catch up"
    assert cluster.part("m2", "c1", "c2").state is State.D, "m1 may know more"


def test_a_primary_may_be_ahead_of_what_was_delivered() -> None:
    """Its backups came straight with it: they have all that counts, and take over if it wants to go."""
    cluster = Cluster(3, 2)
    cluster.restart("c1", "c2", "c3")
    cluster.but("m1", reach=130, is_leading=True)
    cluster.enrolment = Enrolment(1, (*cluster.enrolment.message_managers, ("m3", b"away")), ())
    for name in ("m1", "m2"):
        cluster.but(name, enrolment=cluster.enrolment)
    part = cluster.part("m1", "m2", "c1")
    assert (part.rule, part.unrestricted, part.primary) == (3, (who("m1"), who("m2")), who("m1"))
    cluster.but("m1", is_leaving=True)
    part = cluster.part("m1", "m2", "c1")
    assert (part.unrestricted, part.primary) == ((who("m2"),), who("m2")), (
        "m1 may have more than was delivered"
    )


def test_whole_again_the_managers_that_were_restricted_are_not_of_u() -> None:
    cluster = Cluster(3, 3)
    newer = UnrestrictedView(9, Stamp(b"X" * 24), (store("m1"),))
    cluster.but("m1", record=newer, reached=newer, last=newer.id, clients=(who("c1"), who("c2")))
    part = cluster.part("m1", "m2", "m3", "c3")
    assert (part.state, part.rule, part.unrestricted) == (State.A, 1, (who("m1"),))
    assert part.managers == (who("m1"), who("m2"), who("m3")), "all of them must have come"


def test_another_disk_is_another_manager_and_a_copied_one_is_nobodys() -> None:
    cluster = Cluster(3, 2)
    cluster.but("m2", store=b"new", record=None)
    assert cluster.part("m1", "m2", "c1", "c2", "c3").state is State.B
    cluster.but("m2", store=store("m1"))
    assert cluster.part("m1", "m2", "c1", "c2", "c3").state is State.D


def test_who_has_an_older_configuration_adopts_the_newer_first() -> None:
    cluster = Cluster(1, 2)
    cluster.but("m1", enrolment=msgspec.structs.replace(cluster.enrolment, epoch=2))
    assert cluster.part("m1", "m2", "c1").rule == 2


def test_message_managers_need_no_client_manager_to_go_on_with() -> None:
    """They hand out nothing, and are ready when one comes."""
    assert Cluster(1, 2).part("m1", "m2").state is State.A


def test_without_a_message_manager_there_is_nothing_to_decide() -> None:
    assert Cluster(1, 2).part("c1").primary is None
    assert partition_in([], {}).state is State.D


def test_a_process_may_be_both() -> None:
    cluster = Cluster(2, 2)
    for number in ("1", "2"):
        cluster.but(f"m{number}", who=who(f"c{number}"), client_manager=f"c{number}")
    assert (cluster.part("m1").state, cluster.part("m1").unrestricted) == (State.B, (who("c1"),))
    assert cluster.part("m2").state is State.D
    assert cluster.part("m1", "m2").state is State.A


class TestRemoval:
    """m3 is taken out of the configuration."""

    def setup_method(self) -> None:
        self.cluster = Cluster(3, 3)
        old = self.cluster.enrolment
        self.smaller = Enrolment(2, old.message_managers[:2], old.client_managers)

    def propose(self, *names: str) -> None:
        for name in names:
            self.cluster.but(name, proposed=self.smaller)

    def settle(self, *names: str) -> None:
        for name in names:
            self.cluster.but(name, enrolment=self.smaller, proposed=None)

    def test_settled_the_rest_is_whole(self) -> None:
        self.settle("m1", "m2")
        assert self.cluster.part("m1", "m2", "c3").state is State.A

    def test_proposed_it_is_not_yet(self) -> None:
        self.propose("m1", "m2", "m3")
        assert self.cluster.part("m1", "m2", "c1", "c2").rule == 2

    def test_who_is_to_go_does_not_go_on_alone_since_the_rest_may_be_whole(self) -> None:
        self.propose("m3")
        assert self.cluster.part("m3", "c1", "c2").state is State.D

    def test_who_is_to_go_may_know_the_most_and_does_not_lead(self) -> None:
        """The others catch up with it; in the next view one of them leads."""
        self.propose("m3")
        self.cluster.restart("m1", "m2", "m3", "c1")
        self.cluster.but("m3", reach=120)
        part = self.cluster.part("m1", "m2", "m3", "c1")
        assert (part.state, part.unrestricted, part.primary) == (State.A, (who("m3'"),), None)

    def test_settled_nobody_waits_for_it(self) -> None:
        self.settle("m1")
        self.cluster.restart("m1", "c1")
        self.cluster.but("m1", record=UnrestrictedView(9, Stamp(b"X" * 24), (store("m1"), store("m3"))))
        assert self.cluster.part("m1", "c1").rule == 3


class TestInForce:
    """A view holds when those came without whom nobody else can follow, and all of U have it on disk."""

    def test_by_rule_2_most_client_managers_and_all_of_u_arrive_then_u_records(self) -> None:
        view = InForce(Cluster(3, 3).part("m1", "m2", "c1", "c2"))
        for name in ("m1", "c1", "m2"):
            view.arrived(who(name))
            assert not view.have_arrived
        assert list(view.awaited) == [who("c2")]
        view.arrived(who("c2"))
        assert view.have_arrived
        view.recorded(who("m1"))
        assert not view.is_in_force
        assert list(view.awaited) == [who("m2")]
        view.recorded(who("m2"))
        assert view.is_in_force
        assert list(view.awaited) == []

    def test_by_rule_1_every_message_manager_arrives_and_no_client_manager_is_awaited(self) -> None:
        view = InForce(Cluster(3, 2).part("m1", "m2", "c1"))
        view.arrived(who("m1"))
        assert not view.have_arrived
        view.arrived(who("m2"))
        assert view.have_arrived

    def test_who_has_caught_up_records_behind_those_who_were_of_u(self) -> None:
        cluster = Cluster(1, 2)
        cluster.record = UnrestrictedView(7, cluster.view, (store("m1"),))
        cluster.but("m1", record=cluster.record, reached=cluster.record, elders=cluster.record.stores)
        cluster.but("m2", record=None, reached=cluster.record, elders=cluster.record.stores)
        view = InForce(cluster.part("m1", "m2", "c1"))
        for name in ("m1", "m2"):
            view.arrived(who(name))
        assert (view.may_record(who("m1")), view.may_record(who("m2"))) == (True, False)
        view.recorded(who("m1"))
        assert view.may_record(who("m2"))

    def test_a_restricted_view_never_is(self) -> None:
        view = InForce(Cluster(3, 3).part("m1", "c1"))
        for name in ("m1", "c1"):
            view.arrived(who(name))
            view.recorded(who(name))
        assert (view.have_arrived, view.is_in_force, view.awaited) == (False, False, ())


class TestReached:
    """A second change comes before a view is in force."""

    def setup_method(self) -> None:
        """V follows W: m3 is lost, m1 and m2 are in V, where all have arrived and nobody has recorded it."""
        self.cluster = Cluster(3, 3)
        self.view = UnrestrictedView(8, Stamp(b"V" * 24), (store("m1"), store("m2")))
        self.cluster.view = self.view.id
        for name in ("m1", "m2"):
            self.cluster.but(name, last=self.view.id, reached=self.view, elders=self.view.stores)
        for name in ("c1", "c2", "c3"):
            self.cluster.but(name, last=self.view.id)

    def test_most_go_on_from_a_view_that_all_have_reached(self) -> None:
        part = self.cluster.part("m1", "c1", "c2")
        assert (part.rule, part.unrestricted, part.elders) == (2, (who("m1"),), (who("m1"),))

    def test_not_from_one_that_somebody_may_not_have_come_to(self) -> None:
        """Then others may still go on from W."""
        for name in ("m1", "m2"):
            self.cluster.but(name, reached=None)
        assert self.cluster.part("m1", "c1", "c2").state is State.D

    def test_not_with_one_that_was_not_unrestricted_in_w(self) -> None:
        """Others may have only W on disk, and be all of its U."""
        for name in ("m1", "m2"):
            self.cluster.but(name, elders=(store("m2"),))
        assert self.cluster.part("m1", "c1", "c2").state is State.D
        assert self.cluster.part("m1", "m2", "c1", "c2").rule == 2

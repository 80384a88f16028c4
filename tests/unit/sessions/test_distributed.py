"""What a session says of a distributed destination, and to whom (U6, X2)."""

from __future__ import annotations

from itertools import count

import pytest

from heliograph.bus.commands import ConsumerAttached, DestinationWanted, PathWanted
from heliograph.model.distribution import Distributions
from heliograph.model.ids import IdIssuer
from heliograph.model.policy_rules import PolicyRule, PolicyRules
from heliograph.sessions.access import AccessControl, Identity, Right, Rule
from heliograph.sessions.commands import (
    AnySessionEffect,
    BeginUpload,
    Fail,
    FindPath,
    Multicast,
    OpenLane,
    Subscribe,
    TellDistributed,
)
from heliograph.sessions.connection_facts import ConnectionFacts
from heliograph.sessions.session import Session

pytestmark = pytest.mark.req("U6", "X2")
ANN, BOB = Identity("ann"), Identity("bob")
RULES = PolicyRules(
    [
        PolicyRule.of({"destinations": "queue:orders", "members": "all"}),
        PolicyRule.of({"destinations": "queue:paths", "members": "all", "routing": "path"}),
    ]
)
ALL_OF_IT = [Right.SEND, Right.RECEIVE, Right.CREATE]


def session_of(user: Identity) -> Session:
    issuer = IdIssuer(site=1, node=1, started_ms=1)
    rules = [
        Rule(destinations="queue:orders", rights=ALL_OF_IT, users=["ann"]),
        Rule(destinations="queue:paths", rights=ALL_OF_IT, users=["ann"]),
    ]
    return Session(
        issuer.session(),
        user=user,
        access=AccessControl(rules),
        issuer=issuer,
        next_request=count(1).__next__,
        create_on_first_use=True,
        connection=ConnectionFacts(issuer.connection(), ""),
        distributions=Distributions(RULES.distribution_for, ["east", "west"]),
    )


def facts(effects: list[AnySessionEffect]) -> list[object]:
    return [effect.command for effect in effects if isinstance(effect, Multicast)]


def codes(effects: list[AnySessionEffect]) -> list[str]:
    return [effect.code for effect in effects if isinstance(effect, Fail)]


def test_whoever_opens_a_lane_or_subscribes_is_told_of_the_members_without_a_word_on_the_bus() -> None:
    session = session_of(ANN)
    for command in (OpenLane(1, 1, "queue:orders"), Subscribe(2, 1, "queue:orders", 10)):
        (told,) = session.handle(command)
        assert isinstance(told, TellDistributed)
        assert told.distribution.members == ("east", "west")


def test_a_right_over_the_destination_is_one_over_its_members_and_no_other_is() -> None:
    ann, bob = session_of(ANN), session_of(BOB)
    (wanted,) = facts(ann.handle(OpenLane(1, 1, "queue:orders@east")))
    assert isinstance(wanted, DestinationWanted)
    assert (wanted.address, wanted.create) == ("queue:orders@east", True)
    (attached,) = facts(ann.handle(Subscribe(2, 1, "queue:orders@west", 10)))
    assert isinstance(attached, ConsumerAttached)
    for command in (
        OpenLane(1, 1, "queue:orders"),
        OpenLane(1, 1, "queue:orders@east"),
        Subscribe(2, 1, "queue:orders", 10),
        FindPath(3, "queue:paths", 7),
    ):
        assert codes(bob.handle(command)) == ["not-allowed"]
    assert codes(ann.handle(OpenLane(1, 2, "queue:others@east"))) == ["not-allowed"]


def test_content_goes_to_a_member() -> None:
    assert codes(session_of(ANN).handle(BeginUpload(1, 1, "queue:orders", b""))) == [
        "destination-distributed"
    ]
    assert facts(session_of(ANN).handle(BeginUpload(1, 1, "queue:orders@east", b"")))


def test_a_path_is_asked_for_where_there_are_paths_and_of_a_unit_that_can_be() -> None:
    session = session_of(ANN)
    (wanted,) = facts(session.handle(FindPath(1, "queue:paths", 7)))
    assert isinstance(wanted, PathWanted)
    assert (wanted.address, wanted.unit, wanted.session) == ("queue:paths", 7, session.identity)
    assert codes(session.handle(FindPath(1, "queue:orders", 7))) == ["argument-invalid"]
    assert codes(session.handle(FindPath(1, "queue:elsewhere", 7))) == ["not-allowed"]
    for unit in (0, -1, 1 << 64):
        assert codes(session.handle(FindPath(1, "queue:paths", unit))) == ["unit-invalid"]

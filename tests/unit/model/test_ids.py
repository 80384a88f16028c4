"""Ids: fixed in size, unique, sorted by age, and readable for a person."""

import pytest

from heliograph.model.ids import (
    ID_BYTES,
    MAX_LANE,
    IdIssuer,
    lane_number,
    lane_of,
    message_id,
    session_of,
    text_of,
)

pytestmark = pytest.mark.req("M5")


def test_every_id_has_sixteen_bytes_and_is_issued_once() -> None:
    issuer = IdIssuer(site=65535, node=65535, started_ms=2**48 - 1)
    issued = [issuer.session() for _ in range(1000)] + [issuer.consumer() for _ in range(1000)]
    assert {len(identity) for identity in issued} == {ID_BYTES}
    assert len(set(issued)) == 2000


def test_ids_of_one_node_sort_by_age_also_over_a_restart() -> None:
    before, after = (
        IdIssuer(site=1, node=1, started_ms=started) for started in (0x1_FFFF_FFFF, 0x2_0000_0000)
    )
    issued = [before.session() for _ in range(300)] + [after.session() for _ in range(300)]
    assert issued == sorted(issued)


def test_different_nodes_sites_and_starts_never_issue_the_same_id() -> None:
    issuers = [
        IdIssuer(site=site, node=node, started_ms=started)
        for site in (1, 2)
        for node in (1, 2)
        for started in (5, 6)
    ]
    assert len({issuer.session() for issuer in issuers}) == 8


def test_a_node_that_issued_all_numbers_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence has 32 bits. Here it has 3."""
    monkeypatch.setattr("heliograph.model.ids._MAX_ISSUED", 7)
    issuer = IdIssuer(site=1, node=1, started_ms=100)
    issued = [issuer.session() for _ in range(20)]
    assert len(set(issued)) == 20
    assert issued == sorted(issued)
    assert text_of(issued[7]) == "1.1.65.1"


@pytest.mark.parametrize("number", [1, 255, 256, MAX_LANE])
def test_a_lane_knows_its_session_and_its_number(number: int) -> None:
    session = IdIssuer(site=1, node=2, started_ms=3).session()
    lane = lane_of(session, number)
    assert (len(lane), session_of(lane), lane_number(lane)) == (ID_BYTES, session, number)
    assert lane_number(lane_of(session, 0)) == 0


def test_a_person_can_read_an_id() -> None:
    session = IdIssuer(site=7, node=12, started_ms=0xABCDEF012345).session()
    assert text_of(session) == "7.12.abcdef012345.1"
    assert message_id(lane_of(session, 4), 99) == "7.12.abcdef012345.1/4-99"

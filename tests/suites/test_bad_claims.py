"""Clients that come back and claim what is not theirs (M8, X2): they are told, and nobody loses a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.frontends.native.frames import (
    Answer,
    Completed,
    Failed,
    OpenSession,
    SessionOpened,
    Subscribe,
)
from heliograph.model.claim import Claim
from heliograph.model.limits import MAX_CLAIM_RANGES
from tests.suites.test_bad_input import House, Peer, house, play

pytestmark = pytest.mark.req("M8", "X2")


async def a_client_with_ten(here: House) -> tuple[Peer, bytes]:
    """It has tags 1 to 10 of its consumer 1. Its token."""
    peer = await here.stranger()
    await peer.greet()
    peer.tell(OpenSession(request=1, number=0))
    opened = await peer.hear(SessionOpened)
    peer.session = opened.session  # type: ignore[assignment]
    lane = await peer.open_lane()
    await peer.subscribe()
    await peer.published(lane, 1, *[b"%d" % n for n in range(1, 11)])
    await peer.delivered(1)
    return peer, opened.token


async def back(here: House, former: Peer, token: bytes) -> Peer:
    peer = await here.stranger()
    await peer.greet()
    peer.tell(OpenSession(request=1, number=0, resume=former.session, token=token))
    opened = await peer.hear(SessionOpened)
    assert opened.resumed
    return peer


def claiming(claim: Claim, **other: Any) -> Subscribe:
    wanted: dict[str, Any] = {"consumer": 1, "destination": "queue:orders", "credit": 100, **other}
    return Subscribe(request=3, number=0, claim=claim, **wanted)


def got(peer: Peer) -> list[tuple[bytes, bool]]:
    return [(body, earlier > 0) for _, earlier, _, contents in peer.deliveries for body in contents.bodies]


ALL_MARKED = [(b"%d" % n, True) for n in range(1, 11)]


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        (Claim([(1, 11)]), "settlement-unknown"),
        (Claim([(1, 2**63)]), "settlement-unknown"),
        (Claim([], [(1, 2**64 - 1)]), "settlement-unknown"),
        (Claim([(1, 5), (4, 6)]), "claim-invalid"),
        (Claim([(6, 7), (1, 2)]), "claim-invalid"),
        (Claim([(-5, 7)]), "claim-invalid"),
        (Claim([(1, 5)], [(5, 5)]), "claim-invalid"),
    ],
)
def test_a_claim_that_cannot_be_true_ends_the_consumer_and_loses_nothing(
    tmp_path: Path, claim: Claim, code: str
) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            former, token = await a_client_with_ten(here)
            peer = await back(here, former, token)
            peer.tell(claiming(claim))
            assert (await peer.hear(Failed)).code == code
            await peer.subscribe()
            await peer.until(lambda: len(got(peer)) == 10)
            assert got(peer) == ALL_MARKED

    play(story)


def test_too_many_ranges_end_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            former, token = await a_client_with_ten(here)
            peer = await back(here, former, token)
            ranges = [(2 * n, 2 * n) for n in range(1, MAX_CLAIM_RANGES + 2)]
            peer.tell(claiming(Claim(ranges)))
            assert (await peer.dismissed()).code == "frame-malformed"

    play(story)


def test_a_client_that_was_never_away_claims_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            victim, _ = await a_client_with_ten(here)
            thief = await here.guest()
            thief.tell(claiming(Claim([(1, 10)], seen=10)))
            assert (await thief.hear(Answer)).body == {"resumed": False}
            victim.tell(claiming(Claim([(1, 10)], seen=10)))
            assert (await victim.hear(Failed)).code == "consumer-exists"
            assert got(thief) == []
            victim.settle((1, 10), confirm=True)

    play(story)


def test_who_did_not_hear_that_its_consumer_is_a_new_one_is_told_again_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """It broke a rule, so that what it had went back; it claimed that all the same, and was cut off."""

    async def story() -> None:
        async with house(tmp_path) as here:
            former, token = await a_client_with_ten(here)
            former.write(b"\xff" * 64)
            await former.dismissed()
            claim = Claim([(6, 10)], [(1, 5)], seen=6)
            peer = await back(here, former, token)
            peer.tell(claiming(claim))
            await peer.until(lambda: len(got(peer)) == 10)
            peer.close()
            again = await back(here, former, token)
            again.tell(claiming(claim))
            assert (await again.hear(Answer)).body == {"resumed": False}
            await again.until(lambda: len(got(again)) == 10)
            assert got(again) == ALL_MARKED

    play(story)


@pytest.mark.parametrize("destination", ["queue:other", "topic:orders"])
def test_a_consumer_of_something_else_under_the_same_number_claims_nothing(
    tmp_path: Path, destination: str
) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            former, token = await a_client_with_ten(here)
            peer = await back(here, former, token)
            peer.tell(claiming(Claim([(1, 10)], seen=10), destination=destination))
            assert (await peer.hear(Answer)).body == {"resumed": False}
            peer.tell(claiming(Claim(), consumer=2))
            assert (await peer.hear(Answer)).body == {"resumed": False}
            await peer.until(lambda: len(got(peer)) == 10)
            assert got(peer) == ALL_MARKED, "what the former had came back at once"

    play(story)


def test_another_process_with_the_token_that_knows_nothing_gets_it_marked(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            former, token = await a_client_with_ten(here)
            peer = await back(here, former, token)
            peer.tell(Subscribe(request=3, number=0, consumer=1, destination="queue:orders", credit=100))
            await peer.hear(Completed)
            await peer.until(lambda: len(got(peer)) == 10)
            assert got(peer) == ALL_MARKED

    play(story)


def test_what_the_former_connection_still_says_is_not_heard(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path) as here:
            former, token = await a_client_with_ten(here)
            peer = await back(here, former, token)
            assert (await former.dismissed()).code == "session-moved"
            former.settle((1, 10))
            peer.tell(claiming(Claim([(4, 10)], [(1, 2)], seen=3)))
            assert (await peer.hear(Answer)).body == {"resumed": True, "gone": []}
            await peer.until(lambda: got(peer))
            assert got(peer) == [(b"3", True)], "it was seen, and nothing was said of it"

    play(story)

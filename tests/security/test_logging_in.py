"""Who somebody is, over the native protocol: SCRAM between real clients and a real server, and those who try
otherwise."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import pytest

from heliograph import connect
from heliograph.frontends.native import frames
from heliograph.frontends.native.frames import PREAMBLE, FrameReader, control_frame
from heliograph.model.errors import HeliographError, NotAuthenticated
from heliograph.nodes.passwords import scram_keys
from heliograph.nodes.users import UserStore
from heliograph.security import scram
from tests.servers import embedded, play, url_of

pytestmark = pytest.mark.req("X2")

_CHEAP = (16, 8, 1)


def _users(folder: Path) -> None:
    UserStore(folder / "data" / "users.toml").add("ann", "secret", ["admin"], cost=_CHEAP)


class RawClient:
    """Says what it likes."""

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._frames = FrameReader()
        self._writer.write(PREAMBLE)

    async def say(self, message: frames.Control) -> frames.FromServer:
        self._writer.write(control_frame(message))
        return await self.hear()

    async def hear(self) -> frames.FromServer:
        while True:
            for _, _, _, payload in self._frames.feed(await self._reader.read(65536)):
                return frames.decode_from_server(payload)

    def close(self) -> None:
        self._writer.close()


def test_a_user_proves_the_password_without_showing_it(tmp_path: Path) -> None:
    _users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            for mechanism in ("scram-sha-256", "plain", None):
                async with connect(
                    url_of(server), user="ann", password="secret", mechanism=mechanism
                ) as connection:
                    assert connection.user == "ann"
            for name, password in (("ann", "wrong"), ("nobody", "secret")):
                with pytest.raises(NotAuthenticated) as refused:
                    await connect(url_of(server), user=name, password=password, mechanism="scram-sha-256")
                assert refused.value.sentence == "the user is not known or the password is wrong"

    play(story())


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (frames.Hello(mechanism="scram-sha-256"), "sasl-malformed"),
        (frames.Hello(mechanism="scram-sha-256", initial=b"n,,n=ann"), "sasl-malformed"),
        (frames.Hello(mechanism="scram-sha-256", initial=b"p=tls-unique,,n=ann,r=x"), "sasl-malformed"),
        (frames.Hello(mechanism="external", initial=b"ann"), "certificate-missing"),
        (frames.Hello(mechanism="digest-md5"), "mechanism-unknown"),
        (frames.Hello(), "not-authenticated"),
        (frames.Hello(mechanism="plain", initial=b"\0ann"), "sasl-malformed"),
        (frames.Hello(mechanism="plain", initial=b"admin\0ann\0secret"), "not-authenticated"),
    ],
)
def test_what_is_no_way_to_begin(tmp_path: Path, hello: frames.Hello, code: str) -> None:
    _users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            client = RawClient()
            await client.connect(server.address[1])
            answer = await client.say(hello)
            assert isinstance(answer, frames.Goodbye)
            assert answer.code == code
            client.close()

    play(story())


def test_a_proof_is_good_for_one_log_in(tmp_path: Path) -> None:
    """What was heard on one connection opens no other, and a challenge is answered with nothing but a response."""
    _users(tmp_path)

    async def story() -> None:
        async with embedded(tmp_path) as server:
            finals = []
            for attempt in range(2):
                proof = scram.Client("ann", "secret", "the-same-nonce")
                client = RawClient()
                await client.connect(server.address[1])
                challenge = await client.say(frames.Hello(mechanism="scram-sha-256", initial=proof.first))
                assert isinstance(challenge, frames.Challenge)
                salt, rounds = proof.challenged(challenge.data)
                finals.append(proof.final(scram.stretched("secret", salt, rounds)))
                answer = await client.say(frames.Response(finals[0]))
                if attempt == 0:
                    assert isinstance(answer, frames.Welcome)
                    proof.check(answer.proof)
                else:
                    assert isinstance(answer, frames.Goodbye)
                client.close()
            assert finals[0] != finals[1]
            client = RawClient()
            await client.connect(server.address[1])
            await client.say(frames.Hello(mechanism="scram-sha-256", initial=proof.first))
            answer = await client.say(frames.Hello(mechanism="plain", user="ann", password="secret"))
            assert isinstance(answer, frames.Goodbye)
            client.close()

    play(story())


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_log_in_that_began_before_the_users_changed_is_not_finished(
    tmp_path: Path, comes_again: bool
) -> None:
    """The keys were taken when it was challenged: nobody comes in by them who is gone, or has another password."""
    _users(tmp_path)
    store = UserStore.load(tmp_path / "data" / "users.toml")
    store.add("bob", "old", cost=_CHEAP)

    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            connect(url_of(server), user="ann", password="secret") as admin,
        ):
            proof = scram.Client("bob", "old", "nonce")
            client = RawClient()
            await client.connect(server.address[1])
            challenge = await client.say(frames.Hello(mechanism="scram-sha-256", initial=proof.first))
            assert isinstance(challenge, frames.Challenge)
            await admin.ask("access.grant", destinations="queue:a", users=["ann"], rights=["send"])
            await admin.ask("user.remove", name="bob")
            if comes_again:
                kept = store.users["ann"]
                await admin.ask("user.add", name="bob", password=kept.password, scram=kept.scram, roles=[])
            salt, rounds = proof.challenged(challenge.data)
            answer = await client.say(frames.Response(proof.final(scram.stretched("old", salt, rounds))))
            assert isinstance(answer, frames.Goodbye)
            assert answer.code == "server-moved"
            client.close()

    play(story())


def test_somebody_who_only_looks_like_the_server_is_found_out(tmp_path: Path) -> None:
    """It lets everybody in, but it does not know the password."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(control_frame(frames.Welcome(1, "heliograph", "ann", 10.0)))

    async def challenge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(65536)
        _, _, _, payload = next(iter(FrameReader().feed(data[len(PREAMBLE) :])))
        hello = frames.decode_from_client(payload)
        assert isinstance(hello, frames.Hello)
        assert b"secret" not in data
        nonce = hello.initial.partition(b"r=")[2]
        writer.write(control_frame(frames.Challenge(b"r=" + nonce + b"X,s=QSXCR+Q6sek8bf92QSXCRw==,i=4096")))
        await reader.read(65536)
        writer.write(control_frame(frames.Welcome(1, "heliograph", "ann", 10.0, proof=b"v=AAAA")))

    async def story() -> None:
        for impostor in (pretend, challenge):
            server = await asyncio.start_server(impostor, "127.0.0.1", 0)
            url = f"helio://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(HeliographError) as refused:
                await connect(
                    url, user="ann", password="secret", mechanism="scram-sha-256", reconnect_seconds=0
                )
            assert refused.value.code == "server-not-proved"
            server.close()

    play(story())


def test_an_unknown_user_takes_as_long_as_a_wrong_password(tmp_path: Path) -> None:
    """In the store, where nothing else takes time."""
    store = UserStore(tmp_path / "users.toml")
    store.add("ann", "secret", cost=_CHEAP)
    known: list[int] = []
    unknown: list[int] = []
    for _ in range(400):
        for name, times in (("ann", known), ("bob", unknown)):
            began = time.thread_time_ns()
            proof = scram.Server("nonce")
            keys = store.keys(proof.greeted(b"n,,n=%s,r=abc" % name.encode()))
            proof.challenge(keys)
            assert proof.final(b"c=biws,r=abcnonce,p=" + b"A" * 43 + b"=") is None
            times.append(time.thread_time_ns() - began)
    # Some microseconds, which nobody can measure over a network.
    assert abs(statistics.median(known) - statistics.median(unknown)) < 100_000


def test_files_from_before_know_no_scram(tmp_path: Path) -> None:
    """Whoever is in them logs in by password; and a name that nobody has looks the same before and after a change."""
    store = UserStore(tmp_path / "users.toml")
    store.add("ann", "secret", cost=_CHEAP)
    text = store.path.read_text()
    old = "\n".join(line for line in text.splitlines() if not line.startswith(("scram", "decoy")))
    store.path.write_text(old)
    old_store = UserStore.load(store.path)
    assert old_store.verify("ann", "secret") is not None
    assert old_store.content.decode().strip() == old.strip()
    decoys = old_store.keys("ann"), old_store.keys("bob")
    old_store.add("carl", "secret", cost=_CHEAP)
    again = UserStore.load(store.path)
    assert (again.keys("ann"), again.keys("bob")) == decoys
    assert again.keys("carl") == scram.Keys.parse(again.users["carl"].scram)


def test_keys_of_a_password_differ_each_time() -> None:
    assert scram_keys("secret", rounds=4096) != scram_keys("secret", rounds=4096)
    assert scram_keys("\u0007") == ""

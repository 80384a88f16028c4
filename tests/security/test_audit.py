"""Who logged in, who was refused and why, and who changed what: an administrator sees it in `topic:_LOG`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heliograph import connect
from heliograph.model.errors import HeliographError
from heliograph.nodes.passwords import kept_of
from heliograph.nodes.users import UserStore
from heliograph.sessions.access import Right, Rule
from tests.servers import embedded, play, url_of

pytestmark = pytest.mark.req("X2", "M15")

_CHEAP = (16, 8, 1)


def test_what_concerns_security_is_in_the_log(tmp_path: Path) -> None:
    users = UserStore(tmp_path / "data" / "users.toml")
    users.add("ann", "secret of ann", ["admin"], cost=_CHEAP)
    users.add("bob", "secret of bob", cost=_CHEAP)

    async def story() -> None:
        async with (
            embedded(tmp_path) as server,
            connect(url_of(server), user="ann", password="secret of ann") as ann,
        ):
            log = await ann.consumer("topic:_LOG")
            seen: dict[str, dict[str, Any]] = {}

            async def wait_for(event: str, **said: str) -> dict[str, Any]:
                """The event with these words: what ann's own log-in said may come after she listens."""
                while event not in seen or any(
                    seen[event].get(word) != value for word, value in said.items()
                ):
                    message = await log.receive(timeout=30)
                    assert message is not None, f"{event} did not come; {seen}"
                    found = message.body
                    assert isinstance(found, dict)
                    seen[found["event"]] = found
                return seen[event]

            with suppress(HeliographError):
                await connect(url_of(server), user="bob", password="a guess")
            failed = await wait_for("login-failed")
            assert (failed["user"], failed["code"]) == ("bob", "not-authenticated")
            async with connect(
                url_of(server), user="bob", password="secret of bob", mechanism="scram-sha-256"
            ) as bob:
                opened = await wait_for("connection-opened", user="bob")
                assert (opened["mechanism"], opened["tls"]) == ("scram-sha-256", False)
                for attempt in (bob.consumer("queue:orders"), bob.ask("server")):
                    with pytest.raises(HeliographError):
                        await attempt
                    refused = await wait_for("refused")
                    assert refused["user"] == "bob"
                    assert "may not" in seen.pop("refused")["sentence"]
            await wait_for("connection-closed")
            await ann.ask("user.add", name="carl", roles=[], **kept_of("secret of carl"))
            assert (await wait_for("user-added"))["user"] == "carl"
            assert server._clients is not None
            changed = UserStore.load(users.path)
            changed.rules = (Rule(destinations="queue:*", rights=[Right.SEND], users=["bob"]),)
            server._clients.use(changed)
            assert (await wait_for("rights-changed"))["rules"] == 1
            everything = json.dumps(list(seen.values()))
            assert "secret of" not in everything
            assert "a guess" not in everything

    play(story())

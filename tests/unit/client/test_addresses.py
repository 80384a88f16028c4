"""The address of a server as an application writes it."""

import pytest

from heliograph.client.addresses import parse_url
from heliograph.model.errors import ClientFault


def test_a_host_alone_has_the_usual_port() -> None:
    servers = parse_url("helio://example.org")
    assert (servers.hosts, servers.user, servers.password) == ((("example.org", 7700),), None, None)


def test_everything_at_once() -> None:
    servers = parse_url("helio://ada:p%40ss@one:1,two,[::1]:3/")
    assert servers.hosts == (("one", 1), ("two", 7700), ("::1", 3))
    assert (servers.user, servers.password) == ("ada", "p@ss")


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:7700", "amqp://localhost", "helio://", "helio://a,,b", "helio://a:port", "helio://a:0",
        "helio://a:65536", "helio://[::1", "helio://[::1]7", "helio://:secret@a", "helio://a/path",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ClientFault) as refusal:
        parse_url(url)
    assert refusal.value.code == "invalid-url"
    assert "secret" not in str(refusal.value)

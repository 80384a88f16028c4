"""Runs every story of the suite over every protocol that has an adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest

from tests.conformance.jms.adapter import Account, Capability, Provider
from tests.conformance.jms.native import NativeProvider
from tests.conformance.jms.qpid import QpidProvider
from tests.conformance.jms.qpid_bridge import needs_java
from tests.conformance.jms.stage import Stage
from tests.conformance.jms.stomp_py import StompProvider


class MakeProvider(Protocol):
    """Starts a server with its data in a folder; with accounts it is guarded."""

    def __call__(self, folder: Path, accounts: Sequence[Account] = ()) -> Provider: ...


PROVIDERS: dict[str, MakeProvider] = {
    "native": NativeProvider,
    "qpid-jms": QpidProvider,
    "stomp.py": StompProvider,
}
ACCOUNTS = (Account("alice", "open sesame"), Account("mallory", "let me in", trusted=False))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Qpid JMS needs Java. Selectors are the server's own business whatever the protocol: by AMQP they are all tried
    in the night."""
    for item in items:
        if "qpid-jms" not in item.nodeid:
            continue
        item.add_marker(needs_java)
        if "test_3_8_selectors" in item.nodeid:
            item.add_marker(pytest.mark.nightly)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*capabilities): what a protocol must be able to express for this test"
    )


@pytest.fixture(scope="session", params=sorted(PROVIDERS))
def shared_provider(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Provider]:
    """One server for all tests of a protocol; each uses names of its own."""
    with PROVIDERS[request.param](tmp_path_factory.mktemp(request.param)) as provider:
        yield provider


@pytest.fixture
def provider(request: pytest.FixtureRequest, shared_provider: Provider) -> Provider:
    """The protocol under test, if it can express what the test is about."""
    for mark in request.node.iter_markers("needs"):
        for capability in cast(tuple[Capability, ...], mark.args):
            if not shared_provider.supports(capability):
                pytest.skip(f"{shared_provider.name} has no {capability}")
    return shared_provider


@pytest.fixture
def stage(provider: Provider) -> Iterator[Stage]:
    made = Stage(provider)
    yield made
    made.close()


@pytest.fixture
def fragile(provider: Provider, tmp_path: Path) -> Iterator[Provider]:
    """A server of the test's own, to stop and to start again."""
    with PROVIDERS[provider.name](tmp_path) as own:
        yield own


@pytest.fixture
def guarded(provider: Provider, tmp_path: Path) -> Iterator[Provider]:
    """A server that wants to know who you are."""
    with PROVIDERS[provider.name](tmp_path, ACCOUNTS) as own:
        yield own


@pytest.fixture
def fragile_stage(fragile: Provider) -> Iterator[Stage]:
    made = Stage(fragile)
    yield made
    made.close()

"""Runs every story of the suite over every protocol that has an adapter."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest

from tests.conformance.jms.adapter import Account, Capability, Provider
from tests.conformance.jms.native import NativeProvider
from tests.conformance.jms.qpid import QpidProvider
from tests.conformance.jms.qpid_bridge import needs_java
from tests.conformance.jms.stage import Stage
from tests.conformance.jms.stomp_py import ENDS_WITH_IT, StompProvider


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


# Stories that a refusal over STOMP may end: each is about being refused. Any other that a refusal ended was not
# expected to be refused.
MAY_BE_REFUSED = (
    "test_8_3_2_another_selector_is_refused_while_it_is_in_use",
    "test_8_3_3_it_has_one_active_consumer_at_a_time",
    "test_8_3_3_unsubscribing_while_it_has_a_consumer_is_an_error",
    "test_8_3_4_unsubscribing_deletes_it",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What goes wrong is no story that a protocol cannot tell."""
    report = yield
    name = item.name.partition("[")[0]
    if report.skipped and ENDS_WITH_IT in str(report.longrepr) and name not in MAY_BE_REFUSED:
        report.outcome = "failed"
        report.longrepr = f"{ENDS_WITH_IT}; but nothing is refused in this story"
    return report


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

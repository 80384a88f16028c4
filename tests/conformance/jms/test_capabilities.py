"""What other protocols cannot say, to the word: what one lost would be skipped, and nobody would notice."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.conformance.jms.adapter import Capability
from tests.conformance.jms.conftest import PROVIDERS
from tests.conformance.jms.native import NativeProvider
from tests.conformance.jms.qpid import QpidProvider
from tests.conformance.jms.stomp_py import StompProvider

pytestmark = pytest.mark.req("X1")
ALL = frozenset(get_args(Capability))
COUNT = 21


@pytest.mark.parametrize(
    ("provider", "lacks"),
    [
        (NativeProvider, set()),
        (QpidProvider, {"auto-in-hand", "plain-groups"}),
        (
            StompProvider,
            {
                "auto-in-hand",
                "checked-producers",
                "data-bodies",
                "kept-after-close",
                "plain-groups",
                "sent-ids",
            },
        ),
    ],
)
def test_what_a_protocol_lacks_is_this_and_no_more(provider: type[NativeProvider], lacks: set[str]) -> None:
    assert len(ALL) == COUNT, "a new one is thought about here, too"
    assert ALL - provider.capabilities == lacks


def test_every_protocol_is_tried() -> None:
    assert sorted(PROVIDERS) == ["native", "qpid-jms", "stomp.py"]

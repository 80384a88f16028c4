"""How much is borne of one address: connections, new ones in a second, log-ins that fail, bytes."""

from __future__ import annotations

import pytest

from heliograph.model.errors import Unavailable
from heliograph.model.limits import MAX_ADDRESSES_KNOWN
from heliograph.security.hosts import is_loopback, is_own_name, may_connect
from heliograph.security.strangers import Allowance, Strangers

pytestmark = pytest.mark.req("X2")


def _strangers(per_address: int = 0, per_second: int = 0, failures: int = 0) -> Strangers:
    return Strangers(per_address=per_address, per_second=per_second, failures_per_minute=failures)


def test_one_address_has_its_share_and_others_theirs() -> None:
    strangers = _strangers(per_address=2)
    strangers.arrived("10.0.0.1", 0.0)
    second = strangers.arrived("10.0.0.1", 0.0)
    with pytest.raises(Unavailable, match="your address"):
        strangers.arrived("10.0.0.1", 0.0)
    strangers.arrived("10.0.0.2", 0.0)
    strangers.left(second)
    strangers.arrived("10.0.0.1", 0.0)


def test_who_was_refused_does_not_count() -> None:
    strangers = _strangers(per_address=1)
    counted = strangers.arrived("10.0.0.1", 0.0)
    for _ in range(5):
        with pytest.raises(Unavailable):
            strangers.arrived("10.0.0.1", 0.0)
    strangers.left(counted)
    strangers.arrived("10.0.0.1", 0.0)


def test_a_machine_with_many_addresses_of_ipv6_is_one() -> None:
    strangers = _strangers(per_address=1)
    strangers.arrived("2001:db8::1", 0.0)
    with pytest.raises(Unavailable):
        strangers.arrived("2001:db8::ffff", 0.0)
    strangers.arrived("2001:db8:0:1::1", 0.0)
    strangers.arrived("::ffff:10.0.0.1", 0.0)
    with pytest.raises(Unavailable):
        strangers.arrived("10.0.0.1", 0.0)


def test_who_comes_too_often_has_to_wait_a_moment() -> None:
    strangers = _strangers(per_second=10)
    for _ in range(10):
        strangers.arrived("10.0.0.1", 0.0)
    with pytest.raises(Unavailable, match="too often"):
        strangers.arrived("10.0.0.1", 0.0)
    strangers.arrived("10.0.0.1", 0.11)
    with pytest.raises(Unavailable):
        strangers.arrived("10.0.0.1", 0.12)


def test_who_guesses_wrong_too_often_has_to_wait() -> None:
    strangers = _strangers(failures=3)
    for _ in range(3):
        strangers.check_log_in("10.0.0.1", 0.0)
        strangers.failed("10.0.0.1", 0.0)
    with pytest.raises(Unavailable, match="wait a minute"):
        strangers.check_log_in("10.0.0.1", 0.0)
    strangers.check_log_in("10.0.0.2", 0.0)
    strangers.check_log_in("10.0.0.1", 21.0)


def test_addresses_without_end_do_not_fill_the_memory() -> None:
    strangers = _strangers(per_address=1, per_second=1, failures=1)
    for number in range(MAX_ADDRESSES_KNOWN + 1000):
        strangers.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(strangers) <= MAX_ADDRESSES_KNOWN + 1
    strangers.arrived("192.168.0.1", 100.0)
    assert len(strangers) < 10, "those who were quiet are forgotten"


def test_who_was_counted_among_the_others_leaves_them_though_it_is_known_by_now() -> None:
    strangers = _strangers(per_address=2)
    for number in range(MAX_ADDRESSES_KNOWN):
        strangers.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    among_others = [strangers.arrived("192.168.0.1", 1.0) for _ in range(2)]
    with pytest.raises(Unavailable):
        strangers.arrived("192.168.0.2", 1.0)  # the others are full, whoever it is
    # A minute later there is room, and the same address has its own figure.
    by_itself = [strangers.arrived("192.168.0.1", 100.0) for _ in range(2)]
    for counted in among_others:
        strangers.left(counted)
    with pytest.raises(Unavailable):
        strangers.arrived("192.168.0.1", 100.0)
    for counted in by_itself:
        strangers.left(counted)
    for number in range(MAX_ADDRESSES_KNOWN):
        strangers.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 101.0)
    for _ in range(2):
        strangers.arrived("192.168.0.3", 102.0)  # among the others again, who have room


def test_an_allowance() -> None:
    allowance = Allowance(1000, 0.0)
    assert allowance.spend(1000, 0.0) == 0.0
    assert allowance.spend(500, 0.0) == pytest.approx(0.5)
    assert allowance.spend(0, 0.5) == 0.0
    assert allowance.spend(1000, 100.0) == 0.0, "what was not used is not saved up"
    assert allowance.spend(1000, 100.0) == pytest.approx(1.0)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "::1%lo"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "localhost.example", "10.0.0.1", "::", "0.0.0.0", "2001:db8::1", "127.example"]
)
def test_not_this_machine(host: str) -> None:
    assert not is_loopback(host)


def test_names_of_this_server() -> None:
    assert is_own_name("127.0.0.1:7700", ())
    assert is_own_name("[::1]:7700", ())
    assert is_own_name("localhost.", ())
    assert not is_own_name("rebound.example:7700", ())
    assert is_own_name("Shop.example:7700", ["shop.example"])
    ours = {"origins": ["https://page.example"], "names": ["shop.example"]}
    assert may_connect("https://page.example", "anything", **ours)
    assert may_connect("https://shop.example", "shop.example:7700", **ours)
    assert not may_connect("https://rebound.example", "rebound.example:7700", **ours)
    assert not may_connect("null", "127.0.0.1:7700", **ours)

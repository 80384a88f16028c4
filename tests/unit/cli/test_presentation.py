"""How figures and foreign texts look to a person."""

import pytest

from heliograph.cli.presentation import bytes_of, count_of, duration_of, harmless, rate_of

pytestmark = pytest.mark.req("X4")


def test_counts_agree_with_their_noun() -> None:
    assert [count_of(number, "message") for number in (0, 1, 12000)] == [
        "0 messages",
        "1 message",
        "12,000 messages",
    ]


def test_sizes_have_the_unit_that_fits() -> None:
    assert [bytes_of(number) for number in (0, 1023, 1536, 20 * 2**20, 2**60)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "20 MiB",
        "1024 PiB",
    ]


def test_rates_show_decimals_only_where_they_matter() -> None:
    assert [rate_of(rate) for rate in (None, 0, 0.5, 9.96, 12345.6)] == ["–", "0", "0.5", "10.0", "12,346"]


def test_durations_have_two_units_at_most() -> None:
    assert [duration_of(seconds) for seconds in (0.25, 42, 200, 7500, 356_400)] == [
        "0.25 s",
        "42 s",
        "3 min 20 s",
        "2 h 5 min",
        "4 d 3 h",
    ]


@pytest.mark.req("X2")
def test_a_text_from_outside_cannot_command_the_terminal() -> None:
    assert harmless("grün\n\tfine") == "grün\n\tfine"
    assert harmless("\x1b[2Jgone\x07\u202e") == "\\x1b[2Jgone\\x07\\u202e"

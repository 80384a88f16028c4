"""What several sub-clusters answered, as one answer."""

from __future__ import annotations

from heliograph.bus.commands import Answered, Asked
from heliograph.nodes.combining import combined


def test_a_list_that_only_some_know_of_is_in_the_answer_of_all() -> None:
    """Nodes of an earlier version say less."""
    asked = Asked(7, "client.subscriptions", {"client": "c"})
    early = Answered(7, {"subscriptions": ["a"]})
    late = Answered(7, {"subscriptions": ["b"], "places": [["b", "topic:b"]]})
    for first, second in ((early, late), (late, early)):
        answer = combined(asked, {"east": first, "west": second})
        assert isinstance(answer, Answered)
        assert sorted(answer.body["subscriptions"]) == ["a", "b"]
        assert answer.body["places"] == [["b", "topic:b"]]

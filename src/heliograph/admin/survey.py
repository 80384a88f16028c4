"""One question to several nodes, and the one reply that their answers become (M13).

    {"expected": 2, "replies": [{"node": "1.1", "ok": true, "body": {…}},
                                {"node": "1.2", "ok": false, "error": {"code": …, "sentence": …}}]}

`expected` says how many nodes were meant. Each of them has a place among the replies, also one that is not there or
has not answered: nobody has to guess who is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.limits import SURVEY_BYTES, SURVEY_SECONDS

Answer = dict[str, Any] | HeliographError
_encode = msgspec.msgpack.Encoder().encode


class Survey:
    """The answers to one question, as they come."""

    def __init__(self, nodes: Sequence[str], here: Collection[str]) -> None:
        """`nodes` are meant, `here` are those that can be asked."""
        self._answers: dict[str, Answer | None] = dict.fromkeys(nodes)
        for node in self.waits_for:
            if node not in here:
                self._answers[node] = ClientFault(
                    f"node {node[:60]} is not in the cluster; there are {', '.join(here)}",
                    code="node-unknown",
                )

    @property
    def waits_for(self) -> list[str]:
        return [node for node, answer in self._answers.items() if answer is None]

    def answered(self, node: str, answer: Answer) -> None:
        """The first word of a node that is meant is what counts."""
        if node in self._answers and self._answers[node] is None:
            self._answers[node] = answer

    def only_these_are_here(self, here: Collection[str]) -> None:
        for node in self.waits_for:
            if node not in here:
                self.answered(node, Unavailable(f"node {node} left before it answered", code="node-gone"))

    def give_up(self) -> None:
        for node in self.waits_for:
            sentence = f"node {node} is there and has not answered in {SURVEY_SECONDS:g} s"
            self.answered(node, Unavailable(sentence, code="node-silent"))

    def reply(self) -> dict[str, Any]:
        """Everything that was answered, as far as it fits."""
        replies = [reply_of(node, answer) for node, answer in self._answers.items() if answer is not None]
        sizes = [len(_encode(reply)) for reply in replies]
        while sum(sizes) > SURVEY_BYTES:
            at = sizes.index(max(sizes))
            replies[at] = reply_of(replies[at]["node"], _TOO_LARGE)
            sizes[at] = len(_encode(replies[at]))
        return {"expected": len(self._answers), "replies": replies}


_TOO_LARGE = ClientFault(
    "the answers of all nodes together are too large: ask this node alone", code="answer-too-large"
)


def reply_of(node: str, answer: Answer) -> dict[str, Any]:
    """A node's part of a reply."""
    if isinstance(answer, HeliographError):
        return {"node": node, "ok": False, "error": {"code": answer.code, "sentence": answer.sentence}}
    return {"node": node, "ok": True, "body": answer}

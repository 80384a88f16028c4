"""What several sub-clusters answered, as one answer."""

from __future__ import annotations

from typing import Any

from heliograph.bus.commands import Answered, Asked, Command, Rejected, SubscriptionEnded, TopicsWanted

Answers = dict[str, Answered | Rejected]


def combined(fact: Command, answers: Answers) -> Answered | Rejected:
    """Given in the order of the sub-clusters' names, whichever answered first."""
    ordered = [answers[name] for name in sorted(answers)]
    refusals = [answer for answer in ordered if isinstance(answer, Rejected)]
    bodies = {name: answer.body for name, answer in sorted(answers.items()) if isinstance(answer, Answered)}
    request = ordered[0].request
    if refusals and (not bodies or not isinstance(fact, SubscriptionEnded)):
        return refusals[0]
    if isinstance(fact, Asked):
        return Answered(request, _of_question(fact.subject, bodies))
    if isinstance(fact, TopicsWanted):
        return Answered(request, {"topics": [topic for body in bodies.values() for topic in body["topics"]]})
    return Answered(request, _of_session(list(bodies.values())))


def _of_session(bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """A session's lanes, blocks and consumers, wherever they are."""
    result: dict[str, Any] = {}
    for body in bodies:
        for key, value in body.items():
            if isinstance(value, list):
                result[key] = [*result.get(key, []), *value]
            elif isinstance(value, dict):
                result[key] = {**result.get(key, {}), **value}
            else:
                result[key] = value
    return result


def _of_question(subject: str, bodies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Lists are put one behind the other, each entry with its sub-cluster; of everything else the first says it for
    all, and `sub_clusters` has what each said."""
    first = next(iter(bodies.values()))
    result = dict(first)
    for key, value in first.items():
        if isinstance(value, list):
            result[key] = [
                {**entry, "sub_cluster": name} if isinstance(entry, dict) else entry
                for name, body in bodies.items()
                for entry in body.get(key, [])
            ]
    if subject == "server":
        result["journal"] = _summed([body["journal"] for body in bodies.values()])
        result["resident_bytes"] = sum(body["resident_bytes"] for body in bodies.values())
        result["disk_full"] = any(body["disk_full"] for body in bodies.values())
    result["sub_clusters"] = bodies
    return result


def _summed(figures: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        key: any(each[key] for each in figures)
        if isinstance(value, bool)
        else sum(each[key] for each in figures)
        for key, value in figures[0].items()
    }

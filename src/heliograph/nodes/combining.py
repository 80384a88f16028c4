"""What several sub-clusters answered, as one answer."""

from __future__ import annotations

from typing import Any

from heliograph.admin.finding import merged
from heliograph.admin.subjects import FIND, TOTALS
from heliograph.bus.commands import Answered, Asked, Command, Rejected, SubscriptionEnded, TopicsWanted
from heliograph.model.distribution import Distribution, all_members, member_of
from heliograph.model.limits import FOUND_ENTRIES

Answers = dict[str, Answered | Rejected]


def combined(fact: Command, answers: Answers) -> Answered | Rejected:
    """Given in the order of the sub-clusters' names, whichever answered first."""
    ordered = [answers[name] for name in sorted(answers)]
    refusals = [answer for answer in ordered if isinstance(answer, Rejected)]
    bodies = {name: answer.body for name, answer in sorted(answers.items()) if isinstance(answer, Answered)}
    request = ordered[0].request
    is_enough = isinstance(fact, SubscriptionEnded) or (
        isinstance(fact, Asked) and fact.subject == "pipeline.release"
    )
    if refusals and not (bodies and is_enough):  # what one of them knew is over
        return refusals[0]
    if isinstance(fact, Asked):
        return Answered(request, _of_question(fact, bodies))
    if isinstance(fact, TopicsWanted):
        return Answered(request, {"topics": [topic for body in bodies.values() for topic in body["topics"]]})
    return Answered(request, _of_session(list(bodies.values())))


def of_members(fact: Asked, distribution: Distribution, answers: Answers) -> Answered | Rejected:
    """A question about a distributed destination, which its members answered (U6). A member that nobody has used yet
    does not exist and has nothing to say."""
    ordered = [answers[name] for name in sorted(answers)]
    bodies = {name: answer.body for name, answer in sorted(answers.items()) if isinstance(answer, Answered)}
    for answer in ordered:
        if isinstance(answer, Rejected) and (answer.code != "destination-unknown" or not bodies):
            return answer
    first = next(iter(bodies.values()))
    result = {key: _joined([body[key] for body in bodies.values()]) for key in first}
    for name, body in bodies.items():
        for key in ("address", "destination"):
            if key in body:
                body[key] = member_of(body[key], name)
    result["routing"] = distribution.routing.value
    result["members"] = [
        {
            "sub_cluster": name,
            "reachable": name in answers,
            "leaving": name in distribution.leaving,
            **bodies.get(name, {}),
        }
        for name in all_members(distribution)
    ]
    return Answered(fact.request, result)


def _joined(values: list[Any]) -> Any:
    """Figures are added up, lists put one behind the other; of texts, the first that says something."""
    if isinstance(values[0], bool):
        return any(values)
    if isinstance(values[0], int | float):
        return sum(values)
    if isinstance(values[0], list):
        return [entry for value in values for entry in value]
    return next((value for value in values if value), values[0])


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


def _of_question(fact: Asked, bodies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Lists are put one behind the other, each entry with its sub-cluster; of everything else the first says it for
    all, and `sub_clusters` has what each said."""
    subject = fact.subject
    if subject == FIND:
        # Behind the end of a page there may be others that a longer one would have brought.
        return merged(list(bodies.values()), fact.arguments.get("limit", FOUND_ENTRIES))
    first = next(iter(bodies.values()))
    if subject == TOTALS:
        return {**_summed(list(bodies.values())), "sub_clusters": bodies}
    result = dict(first)
    lists = {key: None for body in bodies.values() for key, value in body.items() if isinstance(value, list)}
    for key in lists:  # those that only some say, too: nodes of an earlier version say less
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

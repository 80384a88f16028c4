"""Patterns evaluated the plain way: by their definition, over all events, with nothing shared with the pipeline."""

from __future__ import annotations

import ast
from typing import Any

from heliograph.spark.pipelines.patterns import Event

Ids = tuple[str, ...]
_BITS = {"a": 1, "b": 2, "c": 4}


def evaluate(text: str, events: list[Event], window: int, bits: dict[str, int] | None = None) -> list[Ids]:
    """The ids of each match. `text` is read as a Python expression, which it is but for its words."""
    words = text.replace("and(", "and_(").replace("or(", "or_(").replace("not(", "not_(")
    tree = ast.parse(words, mode="eval").body
    found, start = [], 0
    while start < len(events):
        inside = [e for e in events[start:] if e.time <= events[start].time + window]
        result = _match(tree, inside, 0, bits or _BITS)
        if result is not None and result[1][0] == 0:
            found.append(tuple(inside[place].id for place in result[1]))
            start += result[0] + 1
        else:
            start += 1
    return found


def _match(node: Any, events: list[Event], start: int, bits: dict[str, int]) -> tuple[int, list[int]] | None:
    """Where it ends, and the places that it took."""
    if isinstance(node, ast.Name):
        places = [n for n in range(start, len(events)) if events[n].kinds & bits[node.id]]
        return (places[0], places[:1]) if places else None
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    word, arguments = node.func.id, list(node.args)
    if word == "times":
        first = arguments[0]
        assert isinstance(first, ast.Constant)
        assert isinstance(first.value, int)
        word, arguments = "seq", [arguments[1]] * first.value
    if word == "seq":
        return _sequence(arguments, events, start, bits)
    results = [_match(argument, events, start, bits) for argument in arguments]
    if word == "and_":
        if any(result is None for result in results):
            return None
        known = [result for result in results if result is not None]
        return max(end for end, _ in known), sorted({place for _, taken in known for place in taken})
    known = [result for result in results if result is not None]
    return min(known, key=lambda result: result[0]) if known else None


def _sequence(
    parts: list[Any], events: list[Event], start: int, bits: dict[str, int]
) -> tuple[int, list[int]] | None:
    taken: list[int] = []
    at = start
    since = start
    forbidden: list[Any] = []
    for part in parts:
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "not_":
            forbidden.append(part.args[0])
            continue
        result = _match(part, events, at, bits)
        if result is None:
            return None
        for name in forbidden:
            if any(events[n].kinds & bits[name.id] for n in range(since, result[1][0])):
                return None
        forbidden = []
        taken += result[1]
        at = since = result[0] + 1
    for name in forbidden:
        if any(events[n].kinds & bits[name.id] for n in range(since, len(events))):
            return None
    return at - 1, taken

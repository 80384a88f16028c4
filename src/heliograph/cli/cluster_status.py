"""`helio cluster status`: every part of a cluster that can be reached, what it is and what it holds back (P10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer

from heliograph.cli.admin_nodes import CLIENTS, MESSAGES, role_of, states_of
from heliograph.cli.at_server import Server, at_server
from heliograph.cli.connecting import ServerAddress, connected
from heliograph.cli.outcome import NoServer
from heliograph.cli.presentation import count_of, harmless
from heliograph.model.errors import HeliographError

Facts = dict[str, Any]
_COLOURS = {"A": "green", "B": "yellow", "C": "yellow", "D": "red"}


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that hear each other, as they answered. `asked`: the addresses from which they were reached."""

    asked: tuple[str, ...]
    composite: Facts

    @property
    def answers(self) -> dict[str, Facts]:
        return {reply["node"]: reply["body"] for reply in self.composite["replies"] if reply["ok"]}

    @property
    def is_cluster(self) -> bool:
        return all("cluster" in facts for facts in self.answers.values())

    def is_that_of(self, other: Part) -> bool:
        """Whether one of those who answered answered there too. Nobody is in two parts."""
        return any(node in other.answers for node in self.answers)

    @property
    def partitions(self) -> dict[str, Facts]:
        """Each sub-cluster that somebody here has a view of, the newest where they differ for a moment."""
        found: dict[str, Facts] = {}
        for facts in self.answers.values():
            for name, view in facts.get("partitions", {}).items():
                if view.get("view", 0) >= found.get(name, {}).get("view", 0):
                    found[name] = view
        return dict(sorted(found.items()))

    def managers(self, sub_cluster: str) -> dict[str, Facts]:
        return {
            node: facts[MESSAGES]
            for node, facts in self.answers.items()
            if facts.get(MESSAGES, {}).get("sub_cluster") == sub_cluster
        }

    @property
    def as_json(self) -> Facts:
        return {"asked": list(self.asked), **self.composite}


# ---- asking


@at_server
def status(server: Server) -> None:
    """Say what each part of the cluster is, who leads, who is missing and what is held back, and why.

    If the URL names several servers, each is asked: those that cannot reach each other are in different parts.
    """
    import uvloop

    parts, unreachable = uvloop.run(survey(each_of(server.address)))
    body = {"parts": [part.as_json for part in parts], "unreachable": unreachable}
    server.tell(body, lambda _: show(parts, unreachable))


def each_of(address: ServerAddress) -> list[ServerAddress]:
    """The servers that an address names, one by one. Raises ClientFault."""
    from heliograph.client.addresses import parse_url

    servers = parse_url(address.url)
    known = replace(address, user=address.user or servers.user, password=address.password or servers.password)
    urls = [
        f"helio://[{host}]:{port}" if ":" in host else f"helio://{host}:{port}"
        for host, port in servers.hosts
    ]
    return [replace(known, url=url) for url in urls]


async def survey(addresses: Sequence[ServerAddress]) -> tuple[list[Part], dict[str, str]]:
    """The parts of the cluster, and which addresses did not answer, and why. Raises NoServer if none did."""
    import asyncio

    answers = await asyncio.gather(*(_ask(address) for address in addresses), return_exceptions=True)
    parts: list[Part] = []
    unreachable: dict[str, str] = {}
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, HeliographError):
            unreachable[address.shown] = answer.sentence
        elif isinstance(answer, BaseException):
            raise answer
        else:
            _add(parts, Part((address.shown,), answer))
    if not parts:
        raise next(each for each in answers if isinstance(each, HeliographError))
    return parts, unreachable


async def _ask(address: ServerAddress) -> Facts:
    async with connected(address, purpose="cluster status") as connection:
        try:
            return await connection.ask("nodes.ask", command="node")
        except TimeoutError:
            raise NoServer(f"{address.shown} does not answer") from None


def _add(parts: list[Part], part: Part) -> None:
    for place, known in enumerate(parts):
        if part.is_that_of(known):
            parts[place] = replace(known, asked=(*known.asked, *part.asked))
            return
    parts.append(part)


# ---- telling


def show(parts: Sequence[Part], unreachable: dict[str, str]) -> None:
    if not all(part.is_cluster for part in parts):
        typer.echo("this server stands alone: it is not a node of a cluster")
        return
    _show_title(parts)
    for number, part in enumerate(parts, 1):
        if len(parts) > 1:
            typer.secho(f"\npart {number}: {_all_of(part.answers)}", bold=True)
        _show_part(part)
    for address, sentence in unreachable.items():
        typer.secho(f"\n{harmless(address)}: {harmless(sentence)}", fg="red")


def _show_title(parts: Sequence[Part]) -> None:
    names = [facts["cluster"] for part in parts for facts in part.answers.values()]
    there = count_of(sum(part.composite["expected"] for part in parts), "node")
    title = f"cluster {harmless(names[0] if names else '')}: {there}"
    if len(parts) > 1:
        title += f" in {len(parts)} parts that do not reach each other"
    typer.secho(title, bold=True)


def _show_part(part: Part) -> None:
    for sub_cluster, view in part.partitions.items():
        managers = part.managers(sub_cluster)
        typer.secho(f"\n  {harmless(sub_cluster)}: {_in_short(view)}", fg=_COLOURS.get(view.get("state", "")))
        for line in sentences(view, managers):
            typer.echo(f"    {harmless(line)}")
    typer.echo("")
    indexes = {
        name: manager["index"]
        for name in part.partitions
        for manager in part.managers(name).values()
        if manager["standing"] == "leads"
    }
    for reply in part.composite["replies"]:
        _show_node(reply, indexes, several=len(part.partitions) > 1)
    for lacks in sorted({facts["lacks"] for facts in part.answers.values() if facts["lacks"]}):
        typer.secho(f"\n  it waits for {harmless(lacks)}", fg="yellow")


def _in_short(view: Facts) -> str:
    if not view:
        return "no view: the nodes that are here have to agree first"
    unrestricted = view["state"] != "D"
    force = ", not in force yet" if unrestricted and not view["in_force"] else ""
    return f"{view['state']}, {view['title']}{force} (view {view['view']})"


def sentences(view: Facts, managers: dict[str, Facts]) -> list[str]:
    """How a sub-cluster stands, for a person: only what is out of the ordinary, and who leads."""
    if not view:
        return []
    told = [_who_leads(view)]
    if view["missing"]:
        told.append(f"missing: {_all_of(view['missing'])}")
    if view["awaited"]:
        told.append(f"nothing is decided before more is heard from {_all_of(view['awaited'])}")
    told += _held_back(managers)
    told += _branches(managers)
    if view["state"] != "A":
        ends = view["ends"]
        told += [f"why: {view['sentence'].partition(': ')[2]}", f"it ends when {ends[:1].lower()}{ends[1:]}"]
    return told


def _who_leads(view: Facts) -> str:
    told = f"{view['leads']} leads" if view["leads"] else "nobody leads"
    if view["follow"]:
        told += f", {_all_of(view['follow'])} {'follows' if len(view['follow']) == 1 else 'follow'}"
    if view["catch_up"]:
        verb = "catches up" if len(view["catch_up"]) == 1 else "catch up"
        told += f", {_all_of(view['catch_up'])} {verb if view['leads'] else 'wait'}"
    return told


def _held_back(managers: dict[str, Facts]) -> list[str]:
    for manager in managers.values():
        if manager.get("held_back"):
            return [f"{count_of(manager['held_back'], 'message')} held back: {manager['held_back_why']}"]
    return []


def _branches(managers: dict[str, Facts]) -> list[str]:
    told = [
        f"{node} has {count_of(manager['branches'], 'branch')} of another part that waits to be merged".replace(
            "branchs", "branches"
        )
        for node, manager in managers.items()
        if manager.get("branches")
    ]
    told += [f"{node} merges" for node, manager in managers.items() if manager.get("merging")]
    if any(manager.get("whole") is False for manager in managers.values()):
        told.append("not whole: another part may have accepted what is not known here")
    return told


def _show_node(reply: Facts, indexes: dict[str, int], *, several: bool) -> None:
    node = harmless(reply["node"])
    if not reply["ok"]:
        typer.secho(f"  {node:<8} {harmless(reply['error']['sentence'])}", fg="red")
        return
    facts = reply["body"]
    states = "; ".join(states_of(facts, indexes))
    sub_cluster = facts.get(MESSAGES, {}).get("sub_cluster", "")
    if sub_cluster and several:
        states = f"{harmless(sub_cluster)}: {states}"
    address = facts.get(CLIENTS, {}).get("address", "")
    mark = typer.style("●", fg="green" if not facts["lacks"] else "yellow")
    typer.echo(f"  {mark} {node:<8} {role_of(facts):<16} {states}{'  ' + address if address else ''}")


def _all_of(names: Iterable[str]) -> str:
    """`1.1, 1.2 and 1.3`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last

"""Several sub-clusters as one: the bus of a client manager that speaks to all of them (M2).

A fact about a destination goes to the sub-cluster that keeps it, one about a session to all. Where a destination is,
is asked of all by broadcast and then remembered; one that is nowhere yet is placed by its registrar, the
sub-cluster that its name alone decides on (`model/rendezvous.py`), so that whoever asks is told the same.

    fact ── address ──▶ known? ──▶ its sub-cluster
      │                   └─ no ──▶ sought everywhere ──▶ found, or placed by the registrar, the least loaded
      ├── session ───▶ all of them; their answers become one
      ├── member ────▶ its sub-cluster, under its plain name (`members.py`); refused while nobody leads there
      ├── commit ────▶ where it has to do with; with several, in two phases (`sessions/coordinating.py`)
      └── transfer ──▶ where it was begun

A sub-cluster in which nobody leads holds up what is for its own destinations. A session that was opened without it
is opened there when it is back: its client is asked to come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import msgspec

from heliograph.admin.subjects import FIND, PIPELINE_RAISE
from heliograph.bus.commands import (
    Answered,
    Asked,
    ChunkSent,
    Command,
    CommitAsked,
    DestinationDeleted,
    DestinationGone,
    DestinationMade,
    DestinationSought,
    DestinationWanted,
    Dispatched,
    FetchAllowed,
    FetchBegun,
    FetchEnded,
    OutcomeWanted,
    Parcelled,
    PathsUnused,
    PathWanted,
    PlacementWanted,
    Published,
    Rejected,
    RollbackAsked,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionResumed,
    SubscriptionEnded,
    TopicsWanted,
    UploadBegun,
    UploadDropped,
    UploadEnded,
)
from heliograph.bus.interface import Receiver
from heliograph.model.destination import TEMPORARY_PREFIX, Address, at_sub_cluster, name_of
from heliograph.model.distribution import (
    NOTHING_DISTRIBUTED,
    Distribution,
    Distributions,
    all_members,
    member_of,
    service_unreachable,
    unreachable,
)
from heliograph.model.ids import ConsumerId, SessionId, session_of
from heliograph.model.rendezvous import chosen
from heliograph.nodes.cluster_clients import ClusterClients
from heliograph.nodes.combining import combined, of_members
from heliograph.nodes.members import Members
from heliograph.nodes.path_checks import PathChecks
from heliograph.sessions.coordinating import Coordinating, Effect, Part, Say

_TRANSFERS: Final = (ChunkSent, UploadEnded, UploadDropped, FetchAllowed, FetchEnded)
_OF_ALL: Final = (SessionOpened, SessionResumed, SubscriptionEnded, TopicsWanted)
_ENDS: Final = (SessionLost, SessionClosed)
_PAGED: Final = ("destinations", "sessions", "transactions")
_PAGE_BITS: Final = 40
_PAGE_MASK: Final = (1 << _PAGE_BITS) - 1
SESSION_UNKNOWN: Final = "session-unknown"


class _Gathering(msgspec.Struct):
    """Answers to one request that several sub-clusters were asked."""

    fact: Command
    awaited: dict[str, None]
    answers: dict[str, Answered | Rejected]
    early: list[Command] = []  # what consumers get again, and may hear of only when all is rolled back


class _Search(msgspec.Struct):
    """A destination that nobody here knows the place of, and what waits for it, in order."""

    awaited: dict[int, str]  # request → sub-cluster
    facts: list[Command]
    loads: dict[str, float]
    is_placing: bool = False


class SubClusters:
    """All sub-clusters, for the client manager of this process."""

    def __init__(
        self,
        parts: dict[str, ClusterClients],
        *,
        next_request: Callable[[], int],
        on_missed: Callable[[], None],
        distributions: Distributions = NOTHING_DISTRIBUTED,
    ) -> None:
        """`next_request` numbers what is asked here. `on_missed`: a sub-cluster is back that was asked nothing when
        sessions were opened; clients have to come again."""
        self.parts = parts
        self._next_request = next_request
        self._on_missed = on_missed
        self._receivers: list[tuple[Receiver, Collection[type[Command]] | None]] = []
        self._places: dict[Address, str] = {}
        self._searches: dict[Address, _Search] = {}
        self._own: dict[int, Callable[[Answered | Rejected], None]] = {}
        self._gathering: dict[int, _Gathering] = {}
        self._rolled_back: dict[ConsumerId, _Gathering] = {}  # where they are, and not everywhere yet
        self._paging: dict[int, int] = {}
        self._transfers: dict[tuple[SessionId, int], str] = {}
        self._staged: dict[SessionId, dict[str, int]] = {}  # messages of open transactions
        self._resumed: dict[
            SessionId, None
        ] = {}  # and no commit was asked since: it may be one that was asked before
        self._coordinating = Coordinating(next_request)
        self._missing: dict[str, None] = {}  # sub-clusters that sessions were opened without
        self._members = Members(distributions)
        self._path_checks = PathChecks(self._ask_one, self._say_to)
        self._away: dict[str, None] = {}  # sub-clusters that nobody leads, as producers were told
        self._naming: dict[int, tuple[Address, str]] = {}  # questions about members
        for name, part in parts.items():
            part.join(partial(self._heard, name))

    def join(self, receiver: Receiver, kinds: Collection[type[Command]] | None = None) -> None:
        self._receivers.append((receiver, kinds))

    # ---- facts

    def multicast(self, fact: Command) -> None:
        if isinstance(fact, Published):
            self._publish(fact)
        elif isinstance(fact, DestinationDeleted):
            self._end(fact)
        elif isinstance(fact, _TRANSFERS):
            self._go_on_with_transfer(fact)
        elif isinstance(fact, _OF_ALL):
            if isinstance(fact, SessionResumed):
                self._staged.pop(fact.session, None)
                self._resumed[fact.session] = None
            self._ask(fact, dict.fromkeys(self.parts, fact))
        elif isinstance(fact, _ENDS):
            self._end_session(fact)
        elif isinstance(fact, RollbackAsked):
            self._staged.pop(fact.session, None)
            self._ask(fact, {name: self._share(fact, name) for name in self.parts})
        elif isinstance(fact, CommitAsked):
            self._commit(fact)
        elif isinstance(fact, Asked):
            self._administer(fact)
        elif isinstance(fact, PathWanted):
            self._find_path(fact)
        else:
            self._send(fact)

    def _publish(self, fact: Published) -> None:
        place = self._places.get(fact.address)
        if place is None:
            address, place = self._there(fact.address)
            if place is None:
                self._seek(address, fact)
                return
            fact.address = address
        if fact.staged:
            self._count_staged(fact, place)
        self.parts[place].multicast(fact)

    def _count_staged(self, fact: Published, place: str) -> None:
        staged = self._staged.setdefault(session_of(fact.block.lane), {})
        staged[place] = staged.get(place, 0) + fact.block.count

    def _send(self, fact: Any) -> None:
        """To where its destination is."""
        address, place = self._there(fact.address)
        if place is None:
            self._seek(address, fact)
            return
        if address != fact.address:
            if not self.parts[place].may_speak and self._is_refused(fact, place):
                return
            fact = msgspec.structs.replace(fact, address=address)
        if isinstance(fact, UploadBegun | FetchBegun):
            self._transfers[fact.session, fact.transfer] = place
        self.parts[place].multicast(fact)

    def _is_refused(self, fact: Any, place: str) -> bool:
        """Whether something for a member is answered here, because nobody leads its sub-cluster."""
        answer = self._members.refusal(fact)
        if answer is None:
            return False
        self._tell(answer)
        if isinstance(answer, Rejected):
            self._missing[place] = None  # when it is back, clients come again and have what they wanted
        return isinstance(answer, Rejected)

    def _there(self, address: Address) -> tuple[Address, str | None]:
        """The sub-cluster of a destination, if it is known, and what it is called there."""
        member = self._members.place_of(address)
        if member is not None:
            return member
        plain, name = at_sub_cluster(address)
        if name:  # a sub-cluster that there is not has no such destination: any other says so
            return (plain, name) if name in self.parts else (address, next(iter(self.parts)))
        return address, self.place_of(address)

    def _called(self, name: str, address: Address) -> Address:
        """By what a client means this one: the server's own are in every sub-cluster."""
        own = name_of(address)
        if own.startswith("_") and not own.startswith(TEMPORARY_PREFIX):
            return Address(f"{address}@{name}")
        return self._members.at(name, address)

    def place_of(self, address: Address) -> str | None:
        """The sub-cluster of a destination, if it is known."""
        place = self._places.get(address)
        if place is None and name_of(address).startswith("_"):
            # Temporary: nobody else makes one of that name. The server's own: there is one in each.
            place = self._places[address] = chosen(address.encode(), list(self.parts))
        return place

    def _end(self, fact: DestinationDeleted) -> None:
        """Everywhere: the registrar forgets where it placed it."""
        for part in self.parts.values():
            part.multicast(fact)

    def _go_on_with_transfer(self, fact: Command) -> None:
        session, transfer = fact.session, fact.transfer  # type: ignore[attr-defined]
        place = self._transfers.get((session, transfer))
        if place is None:
            return  # it is over
        if isinstance(fact, UploadDropped | FetchEnded):
            del self._transfers[session, transfer]
        self.parts[place].multicast(fact)

    def _end_session(self, fact: SessionLost | SessionClosed) -> None:
        self._forget_session(fact.session)
        for part in self.parts.values():
            part.multicast(fact)

    def taken(self, session: SessionId) -> None:
        """Another client manager has it, as one sub-cluster has heard. The others may hear of it much later."""
        self._forget_session(session)
        for part in self.parts.values():
            part.leave(session)

    def _forget_session(self, session: SessionId) -> None:
        self._staged.pop(session, None)
        self._resumed.pop(session, None)
        for key in [key for key in self._transfers if key[0] == session]:
            del self._transfers[key]
        # What still waits for a place would come behind the end of its session: a consumer that nobody has.
        for search in self._searches.values():
            search.facts = [each for each in search.facts if _session_of(each) != session]

    def _find_path(self, fact: PathWanted) -> None:
        distribution = self._members.distribution_of(fact.address)
        assert distribution is not None, "the session has looked at it"
        if self.parts[distribution.keeper].may_speak:
            self.parts[distribution.keeper].multicast(fact)
            return
        error = service_unreachable(fact.address)
        self._tell(Rejected(fact.request, error.code, error.sentence))

    def _ask_one(
        self, name: str, make: Callable[[int], Command], heard: Callable[[Answered | Rejected], None]
    ) -> None:
        if name in self.parts and self.parts[name].may_speak:
            request = self._next_request()
            self._own[request] = heard
            self.parts[name].multicast(make(request))

    def _say_to(self, name: str, fact: Command) -> None:
        if self.parts[name].may_speak:
            self.parts[name].multicast(fact)

    def _share(self, fact: RollbackAsked, name: str) -> RollbackAsked:
        """What of a rollback concerns one sub-cluster."""
        there = [(*self._there(address), consumer, seen) for address, consumer, seen in fact.consumers]
        consumers = [(address, consumer, seen) for address, place, consumer, seen in there if place == name]
        return msgspec.structs.replace(fact, consumers=consumers)

    # ---- transactions

    def _commit(self, fact: CommitAsked) -> None:
        staged = self._staged.pop(fact.session, {})
        parts = {name: Part(count, []) for name, count in staged.items()}
        anywhere = next(iter(parts), "") or chosen(fact.session, list(self.parts))
        for named, consumer, ranges in fact.consumed:
            # Of a consumer that is gone nothing is known: anybody can say so.
            address, place = self._there(named) if named else (named, None)
            parts.setdefault(place or anywhere, Part(0, [])).consumed.append((address, consumer, ranges))
        missing = fact.messages - sum(staged.values())
        if missing:  # not all of it came here: whoever counts them will say so
            parts.setdefault(anywhere, Part(0, [])).messages += missing
        again = self._resumed.pop(fact.session, False) is None
        self._carry_out(self._coordinating.commit(fact, parts, list(self.parts), again=again))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Say):
                self.parts[effect.sub_cluster].multicast(effect.fact)
            elif effect.refusal:
                self._tell(Rejected(effect.request, effect.refusal, effect.sentence))
            else:
                self._tell(Answered(effect.request, {}))

    # ---- administration

    def _administer(self, fact: Asked) -> None:
        named = fact.arguments.get("destination")
        if isinstance(named, str) and "*" in named and fact.subject.startswith("pipeline."):
            self._ask_history(fact, named)
        elif isinstance(named, str) and ":" in named:
            distribution = self._members.distribution_of(Address(named))
            if distribution is not None:
                self._ask_members(fact, distribution)
                return
            address, place = self._there(Address(named))
            if place is None:
                self._seek(address, fact)
                return
            if address != named:
                arguments = {**fact.arguments, "destination": str(address)}
                self._naming[fact.request] = (address, place)
                fact = msgspec.structs.replace(fact, arguments=arguments)
            self.parts[place].multicast(fact)
        elif fact.subject in _PAGED:
            self._turn_page(fact)
        else:
            self._ask(fact, dict.fromkeys(self.parts, fact))

    def _ask_history(self, fact: Asked, pattern: str) -> None:
        """Each sub-cluster has a log, and positions of its own: `*@east` means all destinations in the east."""
        plain, at, name = pattern.rpartition("@")
        if not at:
            plain, name = pattern, next(iter(self.parts)) if len(self.parts) == 1 else ""
        if name not in self.parts:
            names = " or ".join(f"{plain}@{each}" for each in self.parts)
            sentence = f"positions are those of one sub-cluster: name it, as in {names}"
            self._tell(Rejected(fact.request, "sub-cluster-needed", sentence))
            return
        arguments = {**fact.arguments, "destination": plain}
        self.parts[name].multicast(msgspec.structs.replace(fact, arguments=arguments))

    def _ask_members(self, fact: Asked, distribution: Distribution) -> None:
        """A question about a distributed destination. What changes something is done in all members, or not begun."""
        named = fact.arguments["destination"]
        members = all_members(distribution)
        away = [name for name in members if not self.parts[name].may_speak]
        if fact.subject.startswith(("message.", "pipeline.")):
            sentence = (
                f"{named} is distributed: name a member, such as {member_of(named, distribution.members[0])}"
            )
            self._tell(Rejected(fact.request, "destination-distributed", sentence))
        elif away and (fact.subject != "destination.show" or len(away) == len(members)):
            error = unreachable(member_of(named, away[0]))
            self._tell(Rejected(fact.request, error.code, error.sentence))
        else:
            self._ask(fact, dict.fromkeys(members, fact))

    def _turn_page(self, fact: Asked) -> None:
        """One sub-cluster after the other: the upper bits of the page's number say which."""
        after = fact.arguments.get("after", 0)
        which = after >> _PAGE_BITS if isinstance(after, int) else 0
        names = list(self.parts)
        name = names[min(max(which, 0), len(names) - 1)]
        if isinstance(after, int):
            fact = msgspec.structs.replace(fact, arguments={**fact.arguments, "after": after & _PAGE_MASK})
        self._paging[fact.request] = which
        self.parts[name].multicast(fact)

    def _page(self, answer: Answered, which: int) -> None:
        name = list(self.parts)[min(max(which, 0), len(self.parts) - 1)]
        for entry in answer.body.get("destinations", []):
            entry["address"] = self._members.at(name, entry["address"])
        behind = answer.body["next"]
        if behind:
            answer.body["next"] = which << _PAGE_BITS | behind
        elif which + 1 < len(self.parts):
            answer.body["next"] = which + 1 << _PAGE_BITS

    # ---- one request, several answers

    def _ask(self, fact: Command, shares: dict[str, Any]) -> None:
        """Of all in which somebody leads. If that is nobody, of all, and the answers come when there is somebody."""
        here = {name: share for name, share in shares.items() if self.parts[name].may_speak} or shares
        if isinstance(fact, SessionOpened | SessionResumed):
            self._missing.update(dict.fromkeys(name for name in shares if name not in here))
        self._gathering[fact.request] = _Gathering(fact, dict.fromkeys(here), {})  # type: ignore[attr-defined]
        for name, share in here.items():
            self.parts[name].multicast(share)

    def _gather(self, name: str, gathering: _Gathering, answer: Answered | Rejected) -> None:
        gathering.awaited.pop(name, None)
        gathering.answers[name] = answer
        fact, answers = gathering.fact, gathering.answers
        if isinstance(answer, Answered):
            if isinstance(fact, SessionResumed):
                self._members.resumed(name, answer.body)
                self._learn(name, answer.body)
            elif isinstance(fact, Asked) and fact.subject == FIND:
                for entry in answer.body["destinations"]:
                    entry["address"] = self._called(name, entry["address"])
            elif isinstance(fact, TopicsWanted):
                topics = answer.body["topics"]
                answer.body["topics"] = [self._members.at(name, topic) for topic in topics]
        if isinstance(fact, RollbackAsked):
            self._rolled_back.update((each[1], gathering) for each in self._share(fact, name).consumers)
        if gathering.awaited:
            return
        if isinstance(fact, SessionResumed) and (
            self._ask_the_rest(fact, gathering) or self._open_where_unknown(fact, gathering)
        ):
            return
        del self._gathering[answer.request]
        self._tell(self._combined(fact, answers))
        if isinstance(fact, RollbackAsked):
            self._hand_out_again(fact, gathering)

    def _hand_out_again(self, fact: RollbackAsked, gathering: _Gathering) -> None:
        """A client drops what comes before it hears that everything was returned: it takes that for what it had."""
        for _, consumer, _ in fact.consumers:
            self._rolled_back.pop(consumer, None)
        for decision in gathering.early:
            self._tell(decision)

    def _combined(self, fact: Command, answers: dict[str, Answered | Rejected]) -> Answered | Rejected:
        if isinstance(fact, Asked) and "destination" in fact.arguments:
            distribution = self._members.distribution_of(Address(fact.arguments["destination"]))
            if distribution is not None:
                return of_members(fact, distribution, answers)
        return combined(fact, answers)

    def _ask_the_rest(self, fact: SessionResumed, gathering: _Gathering) -> bool:
        """Nobody who leads knows the session. Where nobody led when it came back it may be known, and have sent
        something that was accepted: a client that begins anew would send that twice. It waits for them."""
        answers = gathering.answers
        rest = [name for name in self.parts if name not in answers]
        is_unknown = all(
            isinstance(answer, Rejected) and answer.code == SESSION_UNKNOWN for answer in answers.values()
        )
        if not rest or not is_unknown:
            return False
        gathering.awaited.update(dict.fromkeys(rest))
        for name in rest:
            self.parts[name].multicast(fact)
        return True

    def _open_where_unknown(self, fact: SessionResumed, gathering: _Gathering) -> bool:
        """A sub-cluster that was away when the session was opened does not know it; the others vouch for it."""
        answers = gathering.answers
        unknown = [
            name
            for name, answer in answers.items()
            if isinstance(answer, Rejected) and answer.code == SESSION_UNKNOWN
        ]
        if not unknown or len(unknown) == len(answers):
            return False
        gathering.awaited.update(dict.fromkeys(unknown))
        for name in unknown:
            request = self._next_request()
            self._own[request] = partial(self._opened, fact.request, name)
            self.parts[name].multicast(
                SessionOpened(request, fact.session, fact.user, fact.token, fact.connection, fact.client)
            )
        return True

    def _opened(self, request: int, name: str, answer: Answered | Rejected) -> None:
        gathering = self._gathering.get(request)
        if gathering is not None:
            answer.request = request
            self._gather(name, gathering, answer)

    def _learn(self, name: str, body: dict[str, Any]) -> None:
        """Where the lanes and consumers of a resumed session lead."""
        for _, address, _ in [*body.get("lanes", []), *_addresses(body.get("consumers", []))]:
            if self._members.place_of(Address(address)) is None:
                self._places[Address(address)] = name

    # ---- where is it?

    def _seek(self, address: Address, fact: Command) -> None:
        search = self._searches.get(address)
        if search is not None:
            search.facts.append(fact)
            return
        search = self._searches[address] = _Search({}, [fact], {})
        for name, part in self.parts.items():
            request = self._next_request()
            search.awaited[request] = name
            self._own[request] = partial(self._sought, address)
            part.multicast(DestinationSought(request, address))

    def _sought(self, address: Address, answer: Answered | Rejected) -> None:
        search = self._searches.get(address)
        if search is None:
            return  # it was found elsewhere
        name = search.awaited.pop(answer.request)
        body = answer.body if isinstance(answer, Answered) else {}
        if body.get("here"):
            self._found(address, name)
            return
        search.loads[name] = body.get("load", 0.0)
        if not search.awaited and not search.is_placing:
            self._place(address, search)

    def _place(self, address: Address, search: _Search) -> None:
        """It is nowhere. If nobody wants to make it, its registrar says so."""
        registrar = chosen(address.encode(), list(self.parts))
        if not any(_makes(fact) for fact in search.facts):
            self._let_go(address, registrar)
            return
        search.is_placing = True
        request = self._next_request()
        self._own[request] = partial(self._placed, address)
        loads = sorted(search.loads.items())
        self.parts[registrar].multicast(PlacementWanted(request, address, registrar, loads))

    def _placed(self, address: Address, answer: Answered | Rejected) -> None:
        if isinstance(answer, Answered):
            self._found(address, answer.body["sub_cluster"])
        elif address in self._searches:
            self._let_go(address, chosen(address.encode(), list(self.parts)))

    def _found(self, address: Address, name: str) -> None:
        self._places[address] = name
        if address in self._searches:  # otherwise somebody else made it meanwhile
            self._let_go(address, name)

    def _let_go(self, address: Address, name: str) -> None:
        """What waited for the place of a destination goes there."""
        search = self._searches.pop(address)
        for request in search.awaited:
            self._own.pop(request, None)
        for fact in search.facts:
            if isinstance(fact, Published) and fact.staged:
                self._count_staged(fact, name)
            elif isinstance(fact, UploadBegun | FetchBegun):
                self._transfers[fact.session, fact.transfer] = name
            self.parts[name].multicast(fact)

    # ---- what comes back

    def _heard(self, name: str, command: Command) -> None:
        command = self._members.heard(name, command)
        if isinstance(command, Answered | Rejected):
            if command.request in self._coordinating:
                self._carry_out(self._coordinating.heard(command))
                return
            asked = self._own.pop(command.request, None)
            if asked is not None:
                asked(command)
                return
            which = self._paging.pop(command.request, None)
            if which is not None and isinstance(command, Answered):
                self._page(command, which)
            naming = self._naming.pop(command.request, None)
            if naming is not None and isinstance(command, Answered):
                _rename(command.body, *naming)
            gathering = self._gathering.get(command.request)
            if gathering is not None:
                self._gather(name, gathering, command)
                return
        elif isinstance(command, Dispatched | Parcelled):
            gathering = self._rolled_back.get(command.consumer) if self._rolled_back else None
            if gathering is not None:
                gathering.early.append(command)
                return
        elif isinstance(command, OutcomeWanted):
            self._carry_out(self._coordinating.wanted(command))
        elif isinstance(command, PathsUnused):
            self._path_checks.unused(name, command)
            return
        elif isinstance(command, DestinationMade):
            self._made(name, command.address)
        elif isinstance(command, DestinationGone) and self._places.get(command.address) == name:
            del self._places[command.address]
        self._tell(command)

    def _made(self, name: str, address: Address) -> None:
        if not name_of(address).startswith("_") and self._members.place_of(address) is None:
            self._found(address, name)

    def _tell(self, command: Command) -> None:
        kind = type(command)
        for receive, kinds in self._receivers:
            if kinds is None or kind in kinds:
                receive(command)

    # ---- sub-clusters come and go

    def leads(self, name: str) -> None:
        """Somebody leads a sub-cluster."""
        if name in self._away:
            del self._away[name]
            self._tell_reachability(name, is_led=True)
        if name in self._missing:
            del self._missing[name]
            self._on_missed()

    def away(self, name: str) -> None:
        """Nobody leads a sub-cluster: whoever sends to a member there is told at once."""
        if name not in self._away:
            self._away[name] = None
            self._tell_reachability(name, is_led=False)

    def _tell_reachability(self, name: str, *, is_led: bool) -> None:
        for news in self._members.reachability(name, is_led=is_led):
            self._tell(news)

    def forget(self, name: str) -> None:
        """Nothing that a sub-cluster was asked or said counts."""
        self._places = {address: place for address, place in self._places.items() if place != name}
        self._transfers = {key: place for key, place in self._transfers.items() if place != name}
        # Clients come again: nobody waits for any of it.
        self._searches.clear()
        self._own.clear()
        self._gathering.clear()
        self._rolled_back.clear()
        self._paging.clear()
        self._naming.clear()
        self._staged.clear()
        self._carry_out(self._coordinating.another_leads(name))


def _makes(fact: Command) -> bool:
    if isinstance(fact, Asked):
        return fact.subject == "destination.create" or (
            fact.subject == PIPELINE_RAISE and bool(fact.arguments.get("create"))
        )
    return bool(getattr(fact, "create", False))


def _session_of(fact: Command) -> SessionId | None:
    if isinstance(fact, Published):
        return session_of(fact.block.lane)
    if isinstance(fact, DestinationWanted):
        return session_of(fact.lane)
    session: SessionId | None = getattr(fact, "session", None)
    return session


def _rename(body: dict[str, Any], address: Address, name: str) -> None:
    """An answer about a member calls it what its asker does."""
    for key in ("address", "destination"):
        if body.get(key) == address:
            body[key] = member_of(address, name)


def _addresses(consumers: list[tuple[int, bytes, str]]) -> list[tuple[int, str, int]]:
    return [(number, address, 0) for number, _, address in consumers]

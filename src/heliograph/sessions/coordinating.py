"""The client manager as transaction manager (M10, docs/decisions/0013): who is asked what, in which order, until a
transaction over several sub-clusters has one outcome everywhere and its client knows it.

    inquiring ──nobody knows of it──▶ preparing ──all READY──▶ deciding ──committed──▶ finishing ──▶ over
        │                                 └──one is not──▶ aborting ──────▶ telling the others ──▶ over
        └──somebody does──▶ deciding, aborting, or finishing
    resolving ──what the decider says──▶ finishing, or telling the others

Answers in, things to say out; nothing here must survive. Another client manager may be at the same transaction: the
decider's journal has the last word, and whatever is said twice means the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from heliograph.bus.commands import (
    Answered,
    CommitAsked,
    CommitStateAsked,
    FinalAsked,
    OutcomeAsked,
    OutcomeWanted,
    PrepareAsked,
    Rejected,
)
from heliograph.model.destination import Address
from heliograph.model.ids import ConsumerId, SessionId
from heliograph.model.limits import MAX_COORDINATED_TRANSACTIONS

Saying = CommitAsked | PrepareAsked | OutcomeAsked | FinalAsked | CommitStateAsked
Key = tuple[SessionId, int]
_ROLLED_BACK: Final = ("transaction-rolled-back", "the transaction was rolled back")


class Part(msgspec.Struct):
    """What a sub-cluster has of a transaction: as many messages were sent there, and these consumed."""

    messages: int = 0
    consumed: list[tuple[Address, ConsumerId, list[tuple[int, int]]]] = []

    @property
    def has_content(self) -> bool:
        return bool(self.messages or self.consumed)


class Say(msgspec.Struct):
    """Tell a sub-cluster. The answer, under the number of the request, goes to `answered` or `rejected`."""

    sub_cluster: str
    fact: Saying


class Tell(msgspec.Struct):
    """Answer the commit that was asked under this number: it took effect, or, with the code of a refusal, it did
    not."""

    request: int
    refusal: str = ""
    sentence: str = ""


Effect = Say | Tell


class _Transaction(msgspec.Struct):
    """What is known of one. `requests`: the commits that wait for its outcome."""

    session: SessionId
    number: int
    requests: list[int] = []
    parts: dict[str, Part] = {}
    everybody: list[str] = []
    step: Callable[[_Transaction, str, dict[str, Any]], list[Effect]] | None = None
    decider: str = ""
    participants: list[str] = []
    waiting: dict[str, Saying] = {}  # the last thing said to each sub-cluster that has not answered
    states: dict[str, str] = {}  # of a commit that is asked again
    outcome: str = ""
    refusal: tuple[str, str] = _ROLLED_BACK  # what the client hears if it is not to be

    @property
    def key(self) -> Key:
        return self.session, self.number


class Coordinating:
    """The transactions of a client manager that touch more than one sub-cluster."""

    def __init__(self, next_request: Callable[[], int]) -> None:
        """`next_request` gives numbers under which nothing else was asked."""
        self._next_request = next_request
        self._transactions: dict[Key, _Transaction] = {}
        self._requests: dict[int, tuple[_Transaction, str]] = {}

    def __contains__(self, request: int) -> bool:
        """Whether an answer is for `answered` or `rejected`."""
        return request in self._requests

    def __len__(self) -> int:
        return len(self._transactions)

    # ---- what comes in

    def commit(
        self, asked: CommitAsked, parts: dict[str, Part], everybody: list[str], *, again: bool = False
    ) -> list[Effect]:
        """A client commits. `everybody`: all sub-clusters. `again`: the session was resumed since it was begun, so
        that it may have been asked before, here or elsewhere."""
        key = (asked.session, asked.number)
        known = self._transactions.get(key)
        if known is not None:
            known.requests.append(asked.request)
            known.parts, known.everybody = parts, everybody
            return self._told(known) if known.outcome else []
        involved = sorted(name for name, part in parts.items() if part.has_content)
        if not again and len(involved) <= 1:
            name = involved[0] if involved else everybody[0]
            part = parts.get(name, Part())
            return [Say(name, msgspec.structs.replace(asked, messages=part.messages, consumed=part.consumed))]
        if len(self._transactions) >= MAX_COORDINATED_TRANSACTIONS:
            sentence = f"{MAX_COORDINATED_TRANSACTIONS} transactions are under way here already"
            return [Tell(asked.request, "too-many-transactions", sentence)]
        transaction = _Transaction(*key, [asked.request], parts, everybody)
        self._transactions[key] = transaction
        return self._inquire(transaction) if again else self._prepare(transaction)

    def wanted(self, wanted: OutcomeWanted) -> list[Effect]:
        """A sub-cluster is in doubt. Whoever is at it already goes on."""
        key = (wanted.session, wanted.number)
        if key in self._transactions or len(self._transactions) >= MAX_COORDINATED_TRANSACTIONS:
            return []
        transaction = self._transactions[key] = _Transaction(*key)
        transaction.decider, transaction.participants = wanted.decider, wanted.participants
        return self._resolve(transaction)

    def heard(self, answer: Answered | Rejected) -> list[Effect]:
        """An answer to something that was said."""
        if isinstance(answer, Answered):
            return self.answered(answer.request, answer.body)
        return self.rejected(answer.request, answer.code, answer.sentence)

    def answered(self, request: int, body: dict[str, Any]) -> list[Effect]:
        transaction, name = self._is_answered(request)
        assert transaction.step is not None, "it was asked something"
        return transaction.step(transaction, name, body)

    def _is_answered(self, request: int) -> tuple[_Transaction, str]:
        transaction, name = self._requests.pop(request)
        del transaction.waiting[name]
        return transaction, name

    def rejected(self, request: int, code: str, sentence: str) -> list[Effect]:
        transaction, name = self._requests[request]
        fact = transaction.waiting[name]
        if isinstance(fact, PrepareAsked):
            self._is_answered(request)
            return self._refused(transaction, name, code, sentence)
        if isinstance(fact, OutcomeAsked) and code == "transaction-aborted":
            return self.answered(request, {"outcome": "aborted"})
        if isinstance(fact, CommitAsked):
            self._is_answered(request)
            transaction.refusal = (code, sentence)
            return self._over(transaction, "aborted")
        if code == "transaction-in-doubt":
            # PROTOCOL 7.6: a part that was cut off cannot say. Whoever promised asks when it can be known.
            transaction.refusal = (code, sentence)
            return self._told(transaction) + self._forget(transaction)
        return []  # nobody could say: it is asked again when another leads

    def another_leads(self, sub_cluster: str) -> list[Effect]:
        """What was said to a sub-cluster, and is not answered, is said again: as something new, since the answer may
        have been given while this client manager was elsewhere, and is given once."""
        said: list[Effect] = []
        for transaction in self._transactions.values():
            fact = transaction.waiting.get(sub_cluster)
            if fact is not None:
                del self._requests[fact.request]
                again = msgspec.structs.replace(fact, request=self._next_request())
                said.append(self._say(transaction, sub_cluster, again))
        return said

    # ---- has it been asked before?

    def _inquire(self, transaction: _Transaction) -> list[Effect]:
        transaction.step = self._inquired
        transaction.states = {}
        return [
            self._say(transaction, name, CommitStateAsked(self._next_request(), *transaction.key))
            for name in transaction.everybody
        ]

    def _inquired(self, transaction: _Transaction, name: str, body: dict[str, Any]) -> list[Effect]:
        states = transaction.states
        states[name] = body["state"]
        if body["decider"]:
            transaction.decider, transaction.participants = body["decider"], body["participants"]
        known = dict.fromkeys(states.values())
        if "committed" in known:
            return self._learned(transaction, "committed")
        if transaction.decider:
            if all(states.get(each) == "prepared" for each in transaction.participants):
                return self._decide(transaction)
            missing = [each for each in transaction.participants if each not in states]
            return [] if missing and "aborted" not in known else self._abort(transaction)
        if transaction.waiting:
            return []
        if "aborted" in known:
            return self._over(transaction, "aborted")
        return self._prepare(transaction)

    # ---- the first phase

    def _prepare(self, transaction: _Transaction) -> list[Effect]:
        parts = transaction.parts
        involved = sorted(name for name, part in parts.items() if part.has_content)
        if len(involved) <= 1:
            return self._commit_at_one(transaction, involved[0] if involved else transaction.everybody[0])
        transaction.step = self._is_ready
        transaction.decider, transaction.participants = involved[0], involved
        return [
            self._say(
                transaction,
                name,
                PrepareAsked(
                    self._next_request(),
                    *transaction.key,
                    parts[name].messages,
                    parts[name].consumed,
                    involved[0],
                    involved,
                    name,
                ),
            )
            for name in involved
        ]

    def _commit_at_one(self, transaction: _Transaction, name: str) -> list[Effect]:
        """Nobody knew of it, and one sub-cluster has all of it."""
        part = transaction.parts.get(name, Part())
        transaction.step = lambda done, _name, _body: self._over(done, "committed")
        asked = CommitAsked(self._next_request(), *transaction.key, part.messages, part.consumed)
        return [self._say(transaction, name, asked)]

    def _is_ready(self, transaction: _Transaction, _name: str, _body: dict[str, Any]) -> list[Effect]:
        return [] if transaction.waiting else self._decide(transaction)

    def _refused(self, transaction: _Transaction, _name: str, code: str, sentence: str) -> list[Effect]:
        transaction.refusal = (code, sentence)
        return self._abort(transaction)

    # ---- the second phase

    def _decide(self, transaction: _Transaction) -> list[Effect]:
        self._stop_waiting(transaction)
        transaction.step = self._decided
        decision = OutcomeAsked(self._next_request(), *transaction.key, True)
        return [self._say(transaction, transaction.decider, decision)]

    def _abort(self, transaction: _Transaction) -> list[Effect]:
        """The decider first: another client manager may have had it committed."""
        self._stop_waiting(transaction)
        transaction.step = self._decided
        return [self._final(transaction, transaction.decider, is_commit=False)]

    def _resolve(self, transaction: _Transaction) -> list[Effect]:
        transaction.step = self._decided
        question = OutcomeAsked(self._next_request(), *transaction.key, False)
        return [self._say(transaction, transaction.decider, question)]

    def _decided(self, transaction: _Transaction, _name: str, body: dict[str, Any]) -> list[Effect]:
        outcome = body["outcome"]
        if outcome in ("committed", "aborted"):
            return self._learned(transaction, outcome)
        if transaction.requests:  # a client asked for it meanwhile, or again
            return self._inquire(transaction)
        return self._forget(transaction)  # somebody else is at it

    def _learned(self, transaction: _Transaction, outcome: str) -> list[Effect]:
        """This is how it is: the client hears it, and so do those who wait for it. They are told first, so that they
        are through with it before they hear what the client does next."""
        self._stop_waiting(transaction)
        transaction.outcome = outcome
        transaction.step = self._finished
        others = [name for name in transaction.participants if name != transaction.decider]
        said: list[Effect] = [
            self._final(transaction, name, is_commit=outcome == "committed") for name in others
        ]
        said += self._told(transaction)
        return said if others else said + self._forget(transaction)

    def _finished(self, transaction: _Transaction, name: str, _body: dict[str, Any]) -> list[Effect]:
        if transaction.waiting:
            return []
        if transaction.outcome == "committed" and name != transaction.decider:
            return [self._final(transaction, transaction.decider, is_commit=True)]
        return self._forget(transaction)

    # ---- all the same

    def _over(self, transaction: _Transaction, outcome: str) -> list[Effect]:
        transaction.outcome = outcome
        return self._told(transaction) + self._forget(transaction)

    def _told(self, transaction: _Transaction) -> list[Effect]:
        requests, transaction.requests = transaction.requests, []
        refusal = ("", "") if transaction.outcome == "committed" else transaction.refusal
        return [Tell(request, *refusal) for request in requests]

    def _final(self, transaction: _Transaction, name: str, *, is_commit: bool) -> Say:
        request = self._next_request()
        final = FinalAsked(request, *transaction.key, is_commit, transaction.decider, name)
        return self._say(transaction, name, final)

    def _say(self, transaction: _Transaction, name: str, fact: Saying) -> Say:
        transaction.waiting[name] = fact
        self._requests[fact.request] = (transaction, name)
        return Say(name, fact)

    def _stop_waiting(self, transaction: _Transaction) -> None:
        """What was asked so far is not of interest any more."""
        for fact in transaction.waiting.values():
            del self._requests[fact.request]
        transaction.waiting = {}

    def _forget(self, transaction: _Transaction) -> list[Effect]:
        self._stop_waiting(transaction)
        del self._transactions[transaction.key]
        return []

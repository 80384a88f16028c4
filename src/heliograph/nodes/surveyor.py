"""Questions to nodes, each for itself (M13): who is asked, what a node answers, and how the answers come together.

A question travels on the bus like everything else, so that all nodes answer for the same moment: whatever was said
before it they have heard, and nothing of what was said behind it.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Sequence
from typing import Any, Final

from heliograph.admin.administration import Administration
from heliograph.admin.subjects import Arguments
from heliograph.admin.survey import Answer, Survey
from heliograph.bus.commands import Command, NodeAnswered, NodesAsked
from heliograph.model.errors import ClientFault, HeliographError, Unavailable
from heliograph.model.limits import MAX_SURVEYS, SURVEY_SECONDS
from heliograph.nodes.administrator import Administrator
from heliograph.nodes.clock import CLOCK, Clock

Tell = Callable[[Answer], None]
_QUESTION_BYTES: Final = 16


class Surveyor:
    """Asks for this node, and answers for it."""

    def __init__(
        self,
        node: str,
        *,
        loop: AbstractEventLoop,
        say: Callable[[Command], None] | None = None,
        members: Callable[[], Sequence[str]],
        leading: Callable[[], Administrator | None],
        leader: Callable[[], str],
        clock: Clock = CLOCK,
    ) -> None:
        """`say` takes a question to those whom it names and raises Unavailable; without it this node is alone.
        `members` are the names of all nodes that are here; `leading` is who answers for all of them, if it is here,
        and `leader` the name of the node where it is."""
        self.administration = Administration()  # what this node answers for itself
        self._node = node
        self._loop = loop
        self._say = say or self._ask_itself
        self._members = members
        self._leading = leading
        self._leader = leader
        self.keeper = leader  # the node that answers for what is kept in one place for all
        self._secret = clock.secret
        self._open: dict[bytes, tuple[Survey, TimerHandle, Callable[[dict[str, Any]], None]]] = {}

    def is_led_by(self, administrator: Administrator) -> bool:
        return self._leading() is administrator

    # ---- asking

    def ask(
        self,
        subject: str,
        arguments: Arguments,
        nodes: Sequence[str] | None,
        then: Callable[[dict[str, Any]], None],
    ) -> None:
        """`nodes`: who is meant, by name; None: all. Raises HeliographError if nobody can be asked now."""
        if len(self._open) >= MAX_SURVEYS:
            raise Unavailable("too many questions at once: try again in a moment", code="too-many-questions")
        here = self._members()
        survey = Survey(here if nodes is None else list(nodes), here)
        wanted = survey.waits_for
        if not wanted:
            then(survey.reply())
            return
        question = self._secret(_QUESTION_BYTES)
        timer = self._loop.call_later(SURVEY_SECONDS, lambda: self._give_up(question))
        self._open[question] = survey, timer, then
        try:
            self._say(NodesAsked(question, subject, arguments, wanted))
        except Unavailable:
            timer.cancel()
            del self._open[question]
            raise

    def members_changed(self) -> None:
        """Nobody waits for a node that is gone."""
        here = self._members()
        for question, (survey, _, _) in list(self._open.items()):
            survey.only_these_are_here(here)
            self._end_if_complete(question)

    def _give_up(self, question: bytes) -> None:
        self._open[question][0].give_up()
        self._end_if_complete(question)

    def _end_if_complete(self, question: bytes) -> None:
        survey, timer, then = self._open[question]
        if not survey.waits_for:
            timer.cancel()
            del self._open[question]
            then(survey.reply())

    # ---- what comes from the bus

    def _ask_itself(self, command: Command) -> None:
        self.on_command(command, self._ask_itself)

    def on_command(self, command: Command, say: Callable[[Command], None]) -> None:
        """`say` multicasts where this was said, and raises Unavailable."""
        if isinstance(command, NodesAsked):
            if self._node in command.nodes:
                question = command.question
                self._carry_out(
                    command.subject, command.arguments, lambda answer: self._answer(question, answer, say)
                )
        elif isinstance(command, NodeAnswered) and command.question in self._open:
            answer: Answer = command.body
            if command.refusal:
                answer = HeliographError(command.sentence, code=command.refusal)
            self._open[command.question][0].answered(command.node, answer)
            self._end_if_complete(command.question)

    def _answer(self, question: bytes, answer: Answer, say: Callable[[Command], None]) -> None:
        said = NodeAnswered(question, self._node)
        if isinstance(answer, HeliographError):
            said.refusal, said.sentence = answer.code, answer.sentence
        else:
            said.body = answer
        # Not from inside a delivery: whoever leads has effects to carry out first.
        self._loop.call_soon(_say_if_possible, say, said)

    def _carry_out(self, subject: str, arguments: Arguments, tell: Tell) -> None:
        leading = self._leading()
        try:
            if self.administration.answers_to(subject):
                tell(self.administration.ask(subject, arguments).body)
            elif leading is not None:
                leading.put(subject, arguments, tell)
            else:
                leader = self._leader()
                raise ClientFault(
                    f"node {self._node} does not answer to {subject[:60]!r}:"
                    f" {'ask ' + leader + ', which leads' if leader else 'nobody leads now'}",
                    code="not-leading",
                )
        except HeliographError as error:
            tell(error)


def _say_if_possible(say: Callable[[Command], None], answer: Command) -> None:
    """If the bus has no room now, whoever asked hears that this node was silent, and may ask again."""
    try:
        say(answer)
    except Unavailable:
        return

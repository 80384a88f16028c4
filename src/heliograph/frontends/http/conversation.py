"""The server's side of an HTTP connection as a state machine.

    idle ──request──▶ proving ──admitted──▶ answering ──reply──▶ idle
      │                  └─ 401 ─▶ closed       └─ a stream of events, until the client leaves
      └── upgrade: a WebSocket's conversation from here on

One request is answered at a time; what comes behind it waits. Who asks is proved for each request that says so in
other words than the one before, since whatever stands between may put requests of several people on one connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from heliograph.frontends.conversation import (
    NOTHING,
    Answered,
    AnyHappening,
    Broken,
    Conversation,
    Greeted,
    Left,
    Parts,
    Recognised,
    Requested,
)
from heliograph.frontends.http.asking import OUR_HEADER, check_asked_here, hello_of, token_of
from heliograph.frontends.http.front_desk import FrontDesk
from heliograph.frontends.http.replies import Reply, event, framed, refusal, stream_head
from heliograph.frontends.http.requests import BadRequest, Request, RequestReader
from heliograph.frontends.http.steps import AnyStep, Call, Leave, Proof, Question, Steps, Streaming, Topic
from heliograph.frontends.http.streams import Stream
from heliograph.frontends.http.working import Working
from heliograph.frontends.native import frames as native
from heliograph.frontends.proxy import SESSION
from heliograph.frontends.websocket.conversation import WebSocketConversation
from heliograph.model.errors import (
    ClientFault,
    HeliographError,
    NotAuthenticated,
    Unavailable,
    from_code,
)
from heliograph.model.limits import (
    HTTP_AHEAD_BYTES,
    HTTP_ANSWER_SECONDS,
    HTTP_ANSWERED_BYTES,
    HTTP_IDLE_SECONDS,
    HTTP_REQUEST_SECONDS,
    MAX_HTTP_STREAMS,
)
from heliograph.sessions.commands import AnySessionEffect

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_MICROSECONDS: Final = 1_000_000


class HttpConversation(Conversation):
    """One connection."""

    def __init__(
        self,
        desk: FrontDesk,
        recognise: Callable[[bytes], Conversation | None],
        origins: Sequence[str] = (),
        *,
        is_secure: bool = False,
    ) -> None:
        """`is_secure`: it is within TLS."""
        self._desk = desk
        self._recognise = recognise
        self._origins = origins
        self._is_secure = is_secure
        self._reader = RequestReader()
        self._now = 0.0
        self._begun = 0.0  # since when there is part of a request
        self._is_open = self._is_closed = False
        self._happenings: list[AnyHappening] = []
        self._request: Request | None = None  # that is being answered
        self._steps: Steps | None = None
        self._hello: native.Hello | None = None  # whom the shell takes this connection for
        self._user = ""
        self._proving: Callable[[], None] | None = None
        self._unwritten = 0  # bytes of replies that the network may not have yet
        self._asked = 0
        self._waiting_for = 0  # the number of the question whose answer the handler waits for
        self._since = 0.0
        self._working: Working | None = None
        self._opening: tuple[Working, AnyStep] | None = None
        self._stream: Stream | None = None

    # ---- what the shell asks

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def is_visit(self) -> bool:
        return True

    @property
    def is_waiting(self) -> bool:
        is_busy = self._request is not None or self._proving is not None or self._is_unread
        return is_busy and self._reader.held > HTTP_AHEAD_BYTES

    @property
    def patience_seconds(self) -> float:
        return 0.0 if self._request is not None else HTTP_IDLE_SECONDS

    # ---- in

    def receive(self, data: bytes, now: int = 0) -> Sequence[AnyHappening]:
        self._now = now / _MICROSECONDS
        if self._is_closed or self._stream is not None:
            return NOTHING
        if not self._reader.is_in_the_middle:
            self._begun = self._now
        self._reader.feed(data)
        return self._act(lambda: None)

    def _act(self, work: Callable[[], None]) -> list[AnyHappening]:
        """Some work, and then what came meanwhile."""
        for each in (work, self._go_on):
            try:
                each()
            except BadRequest as fault:
                self._end(fault)
            except ClientFault as fault:
                self._conclude(refusal(fault))
        if self._working is not None:
            self._working.proxy.now = int(self._now * _MICROSECONDS)
            self._happenings += self._working.proxy.take()
        happenings, self._happenings = self._happenings, []
        return happenings

    def _go_on(self) -> None:
        """Answer what came, one after the other."""
        while self._is_free:
            if not self._is_open and self._turns_into_websocket():
                return
            request = self._reader.next()
            if request is None:
                if not self._asks_who_comes() and self._reader.expects_word:
                    self._happenings.append(Answered(_CONTINUE))
                return
            self._is_open = True
            self._begun = self._now
            self._begin(request)

    @property
    def _is_free(self) -> bool:
        is_busy = self._request is not None or self._stream is not None or self._proving is not None
        return not is_busy and not self._is_unread and not self._is_closed

    @property
    def _is_unread(self) -> bool:
        """The client has asked for more than it has taken."""
        return self._unwritten > HTTP_ANSWERED_BYTES

    def _asks_who_comes(self) -> bool:
        """Whether somebody has to prove who they are before their body is taken in."""
        head = self._reader.announced
        if head is None or self._desk.is_open:
            return False
        request = Request(head)
        check_asked_here(request, self._desk, self._origins, is_secure=self._is_secure)
        try:
            hello = hello_of(request, self._desk, self._now)
        except NotAuthenticated as fault:
            raise BadRequest(fault.sentence, 401, code=fault.code) from None
        if hello == self._hello and self._is_still(hello):
            return False
        self._prove(hello, lambda: None)
        return True

    def _turns_into_websocket(self) -> bool:
        head = self._reader.peek()
        if head is None or not head.wants_websocket:
            return False
        self._is_closed = True
        conversation = WebSocketConversation(self._recognise, self._origins, self._desk.hosts)
        self._happenings.append(Recognised(conversation, self._reader.raw))
        return True

    def _begin(self, request: Request) -> None:
        self._request = request
        self._since = self._now
        try:
            check_asked_here(request, self._desk, self._origins, is_secure=self._is_secure)
            found = self._desk.find(request, self._call)
        except ClientFault as fault:
            self._conclude(refusal(fault))
            return
        if found.is_public:
            self._run(found.handle)
            return
        try:
            hello = hello_of(request, self._desk, self._now)
        except NotAuthenticated as fault:
            self._conclude(self._unproved(fault))
            return
        if hello == self._hello and self._is_still(hello):
            self._run(found.handle)
        else:
            self._prove(hello, lambda: self._run(found.handle))

    # ---- who asks

    def _is_still(self, hello: native.Hello) -> bool:
        """Whether who was proved need not be asked again; a log-in was looked up a moment ago."""
        if hello.mechanism == "plain" and not self._desk.is_open:
            return self._desk.remembers(hello.user, hello.password, self._now)
        return True

    def _prove(self, hello: native.Hello, then: Callable[[], None]) -> None:
        self._hello = hello
        self._proving = then
        self._happenings.append(Greeted(hello))

    def admit(self, welcome: native.Welcome) -> bytes:
        self._user = welcome.user
        hello = self._hello
        if hello is not None and hello.mechanism == "plain" and not self._desk.is_open:
            self._desk.remember(hello.user, hello.password, self._now)
        return b""

    def begin(self) -> Sequence[AnyHappening]:
        then, self._proving = self._proving, None
        return self._act(then) if then is not None else NOTHING

    def _unproved(self, fault: NotAuthenticated) -> Reply:
        """A browser that is shown this challenge asks for a password by itself, which the console does better."""
        reply = refusal(fault)
        if self._request is None or not self._request.header(OUR_HEADER):
            reply.headers.append(("WWW-Authenticate", 'Basic realm="Heliograph", charset="UTF-8"'))
        return reply

    # ---- what a handler wants

    def _call(self, path: dict[str, str], query: Any, body: Any) -> Call:
        assert self._request is not None
        return Call(
            path=path,
            query=query,
            body=body,
            user=self._user,
            token=token_of(self._request),
            is_secure=self._is_secure,
            headers=self._request.head.headers,
            now=self._now,
        )

    def _run(self, handle: Callable[[], Steps]) -> None:
        self._steps = handle()
        self._send(None)

    def _send(self, outcome: Any) -> None:
        steps = self._steps
        if steps is not None:
            self._advance(lambda: steps.send(outcome))

    def _throw(self, error: HeliographError) -> None:
        steps = self._steps
        if steps is not None:
            self._advance(lambda: steps.throw(error))

    def _advance(self, go: Callable[[], AnyStep]) -> None:
        try:
            step = go()
        except StopIteration as end:
            self._steps = None
            self._conclude(end.value)
        except HeliographError as error:
            self._steps = None
            self._conclude(refusal(error))
        except Exception as bug:
            # A mistake in how something is shown must not stop a server that has messages to keep.
            self._steps = None
            self._conclude(refusal(HeliographError(f"the server has a defect: {bug!r}", code="defect"), 500))
        else:
            self._step(step)

    def _step(self, step: AnyStep) -> None:
        if isinstance(step, Question):
            self._waiting_for = self._ask(step)
        elif isinstance(step, Proof):
            hello = native.Hello(client="http", mechanism="plain", user=step.user, password=step.password)
            self._prove(hello, lambda: self._send(self._desk.log_in(self._user, self._now)))
        elif isinstance(step, Leave):
            self._desk.log_out(step.token)
            self._send(None)
        elif isinstance(step, Streaming):
            self._begin_stream(step.topics)
        else:
            self._work(step)

    def _ask(self, question: Question) -> int:
        self._asked += 1
        self._happenings.append(
            Requested(native.Ask(self._asked, question.subject, dict(question.arguments)))
        )
        return self._asked

    def _work(self, step: AnyStep) -> None:
        if self._working is not None:
            self._working.begin(step)
            return
        working = self._working = Working(self._send, self._throw)
        self._asked += 1
        self._waiting_for = self._asked
        self._opening = (working, step)
        self._happenings.append(Requested(native.OpenSession(self._asked, SESSION)))

    def say(self, message: native.Control, into: Parts) -> Sequence[AnyHappening]:
        return self._act(lambda: self._said(message))

    def _said(self, message: native.Control) -> None:
        stream = self._stream
        if isinstance(message, native.Answer | native.Failed) and stream is not None:
            self._tell_stream(stream, message)
        elif isinstance(message, native.Failed | native.Answer | native.SessionOpened):
            if message.request != self._waiting_for:
                return  # nobody waits for it any more
            self._waiting_for = 0
            if isinstance(message, native.Failed):
                self._throw(from_code(message.code, message.sentence))
            elif isinstance(message, native.Answer):
                self._send(message.body)
            else:
                assert self._opening is not None
                working, step = self._opening
                self._opening = None
                working.opened(message)
                working.begin(step)

    def tell(self, number: int, effect: AnySessionEffect, into: Parts) -> Sequence[AnyHappening]:
        working = self._working
        if working is None:
            return NOTHING
        return self._act(lambda: working.tell(effect))

    # ---- out

    def _conclude(self, reply: Reply) -> None:
        """The request has its reply."""
        request, self._request = self._request, None
        self._close_session()
        self._steps, self._waiting_for, self._proving = None, 0, None
        keeps_alive = request is not None and request.head.keeps_alive
        is_head = request is not None and request.head.method == "HEAD"
        answer = framed(reply, keeps_alive=keeps_alive, is_head=is_head)
        self._unwritten += len(answer)
        self._happenings.append(Answered(answer))
        if not keeps_alive:
            self._leave()

    def _close_session(self) -> None:
        working, self._working = self._working, None
        if working is not None:
            self._happenings += working.proxy.take()
            self._asked += 1
            self._happenings.append(Requested(native.CloseSession(self._asked, SESSION)))

    def _leave(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._happenings.append(Left("closed"))

    def _end(self, fault: BadRequest) -> None:
        """What is behind a request that is not understood is not looked at."""
        self._request = None
        self._happenings.append(Broken(fault, framed(refusal(fault), keeps_alive=False)))
        self._is_closed = True

    # ---- streams

    def _begin_stream(self, topics: list[Topic]) -> None:
        if self._desk.streams >= MAX_HTTP_STREAMS:
            self._throw(
                Unavailable("there are as many streams of events as there may be", code="too-many-streams")
            )
            return
        self._desk.streams += 1
        self._stream = Stream(topics)
        self._steps = None
        self._happenings.append(Answered(stream_head() + b"retry: 1000\n\n"))
        self._ask_for_news(self._stream)

    def _ask_for_news(self, stream: Stream) -> None:
        for topic in stream.due(self._now):
            stream.asked(self._ask(topic.question), topic)

    def _tell_stream(self, stream: Stream, message: native.Answer | native.Failed) -> None:
        topic = stream.answered(message.request)
        if topic is None:
            return
        if isinstance(message, native.Failed):
            news: Any = {"code": message.code, "sentence": message.sentence}
            self._happenings.append(Answered(event("trouble", {"topic": topic.name, **news})))
        else:
            news = topic.news(message.body)
            if news is not None:
                self._happenings.append(Answered(event(topic.name, news)))
                stream.is_written = False

    def written(self) -> Sequence[AnyHappening]:
        if self._stream is not None:
            self._stream.is_written = True
        was_unread, self._unwritten = self._is_unread, 0
        return self._act(lambda: None) if was_unread and not self._is_closed else NOTHING

    # ---- time, and the end

    def time_passed(self, now: int) -> Sequence[AnyHappening]:
        self._now = now / _MICROSECONDS
        if self._is_closed:
            return NOTHING
        return self._act(self._look_at_the_clock)

    def _look_at_the_clock(self) -> None:
        if self._stream is not None:
            self._ask_for_news(self._stream)
        elif self._request is not None:
            if self._working is not None:
                self._working.time_passed()
            if self._now - self._since > HTTP_ANSWER_SECONDS and self._proving is None:
                self._give_up()
        elif self._reader.is_in_the_middle and self._now - self._begun > HTTP_REQUEST_SECONDS:
            raise BadRequest("the request did not come to its end in time", 408)

    def _give_up(self) -> None:
        working = self._working
        if working is not None and working.waits_for_room:
            late: HeliographError = Unavailable(
                "the destination asks its producers to wait: nothing was sent", code="destination-full"
            )
        else:
            late = Unavailable("nobody answered in time: try again", code="answer-late")
        self._conclude(refusal(late))

    def lost(self) -> Sequence[AnyHappening]:
        self._is_closed = True
        self._end_stream()
        return NOTHING

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream = None
            self._desk.streams -= 1

    def break_off(self, error: HeliographError) -> Broken:
        """The shell ends it: nobody was proved, or the server leaves."""
        if self._is_closed or self._stream is not None:
            self._is_closed = True
            self._end_stream()
            return Broken(error, b"")
        self._is_closed = True
        self._hello = None
        reply = self._unproved(error) if isinstance(error, NotAuthenticated) else refusal(error)
        is_head = self._request is not None and self._request.head.method == "HEAD"
        return Broken(error, framed(reply, keeps_alive=False, is_head=is_head))

"""HTTP as a state machine: requests however they are cut, what is refused and how, and who may ask."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

import msgspec
import pytest

from heliograph.frontends.conversation import (
    Answered,
    AnyHappening,
    Broken,
    Greeted,
    Left,
    Recognised,
    Requested,
)
from heliograph.frontends.detect import recognise
from heliograph.frontends.http.conversation import HttpConversation
from heliograph.frontends.http.front_desk import FrontDesk
from heliograph.frontends.http.replies import Reply, status_of
from heliograph.frontends.http.requests import BadRequest, Request, RequestReader, parse_head
from heliograph.frontends.http.steps import Call, Found, Question, Steps
from heliograph.frontends.native import frames
from heliograph.frontends.websocket.conversation import WebSocketConversation
from heliograph.model.errors import HeliographError, from_code
from heliograph.model.limits import (
    HTTP_ANSWER_SECONDS,
    HTTP_ANSWERED_BYTES,
    HTTP_REQUEST_SECONDS,
    HTTP_UNPROVED_BYTES,
    LOG_IN_IDLE_SECONDS,
    MAX_HTTP_BODY_BYTES,
    MAX_HTTP_HEAD_BYTES,
)

pytestmark = pytest.mark.req("X3")
NOW = 1_700_000_000
WELCOME = frames.Welcome(version=1, server="x", user="ann", heartbeat_seconds=10.0)


def echo(request: Request, call: Callable[..., Call]) -> Found:
    """Says who asked what; `/ask` asks somebody else first, `/bug` has one."""

    def handle() -> Steps:
        path = request.head.target
        if path == "/ask":
            body = yield Question("server")
            return Reply(200, body)
        if path == "/bug":
            raise KeyError("nobody thought of it")
        yield from ()
        return Reply(200, [path, request.body.decode(), call({}, None, None).user])

    return Found(handle, is_public=request.head.target == "/public")


def talk(desk: FrontDesk | None = None) -> HttpConversation:
    return HttpConversation(desk or FrontDesk(echo), recognise)


def said(happenings: object) -> list[tuple[int, object]]:
    """Status and body of each reply."""
    found = []
    for happening in happenings:  # type: ignore[attr-defined]
        raw = happening.data if isinstance(happening, Answered) else getattr(happening, "farewell", b"")
        while raw.startswith(b"HTTP/1.1 "):
            head, _, rest = raw.partition(b"\r\n\r\n")
            length = next((int(x[16:]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length: ")), 0)
            found.append((int(head[9:12]), msgspec.json.decode(rest[:length]) if length else None))
            raw = rest[length:]
    return found


def asks(method: str = "GET", path: str = "/public", body: bytes = b"", **headers: str) -> bytes:
    given = {"Host": "localhost:7700", **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body:
        given["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def act(conversation: HttpConversation, data: bytes, now: float = NOW) -> list[AnyHappening]:
    return list(conversation.receive(data, int(now * 1e6)))


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_however_it_is_cut_each_request_is_answered_in_turn(step: int) -> None:
    data = asks("POST", "/public", b"hello", X_Heliograph="1") * 3 + asks(Connection="close")
    conversation = talk()
    happenings: list[AnyHappening] = []
    for start in range(0, len(data), step):
        happenings += act(conversation, data[start : start + step])
    assert said(happenings) == [(200, ["/public", "hello", ""])] * 3 + [(200, ["/public", "", ""])]
    assert isinstance(happenings[-1], Left)


@pytest.mark.parametrize("body", [b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", b"x" * 40_000])
def test_a_body_is_never_taken_for_a_request(body: bytes) -> None:
    whole = asks("POST", "/public", body, X_Heliograph="1")
    conversation = talk()
    happenings: list[AnyHappening] = []
    for start in range(0, len(whole), 1000 if len(body) > 1000 else 5):
        happenings += act(conversation, whole[start : start + (1000 if len(body) > 1000 else 5)])
    assert said(happenings) == [(200, ["/public", body.decode(), ""])]


def test_two_thousand_requests_at_once_are_answered_one_after_the_other() -> None:
    assert len(said(act(talk(), asks() * 2000))) == 2000


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"GET /\r\n\r\n", 400, "request-malformed"),
        (b"GET / HTTP/2.0\r\n\r\n", 505, "version-unknown"),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400, "request-malformed"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "request-malformed"),
        (b"GET / HTTP/1.1\r\nA: b\r\n c: folded\r\n\r\n", 400, "request-malformed"),
        (b"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", 400, "request-malformed"),
        (asks("POST", Transfer_Encoding="chunked"), 411, "request-malformed"),
        (asks("POST", Content_Length="-1"), 400, "request-malformed"),
        (asks("POST", Content_Length=str(MAX_HTTP_BODY_BYTES + 1)), 413, "request-too-large"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * MAX_HTTP_HEAD_BYTES, 431, "request-too-large"),
    ],
)
def test_what_is_not_understood_ends_the_connection(request_bytes: bytes, status: int, code: str) -> None:
    happenings = act(talk(), request_bytes)
    assert isinstance(happenings[-1], Broken)
    ((found, body),) = said(happenings)
    assert found == status
    assert body == {"error": {"code": code, "sentence": body["error"]["sentence"]}}  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Host": "evil.example"}, 421),  # a name that somebody made to lead here
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:7700"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:7700"}, 200),
        ({"Origin": "http://localhost:9999"}, 403),
    ],
)
def test_pages_of_others_may_not_ask_an_open_server(changes: dict[str, str], status: int) -> None:
    ((found, _),) = said(act(talk(), asks("GET", "/public", b"", **changes)))
    assert found == status


@pytest.mark.req("X2")
def test_a_form_of_another_page_cannot_change_anything() -> None:
    ((status, body),) = said(act(talk(), asks("POST", "/public", b"a=b")))
    assert status == 403
    assert body["error"]["code"] == "header-missing"  # type: ignore[index]
    from_elsewhere = asks("POST", "/public", X_Heliograph="1", Sec_Fetch_Site="cross-site")
    assert said(act(talk(), from_elsewhere))[0][0] == 403
    assert said(act(talk(), asks("POST", "/public", X_Heliograph="1")))[0][0] == 200


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def test_who_asks_is_proved_for_each_who_asks() -> None:
    conversation = talk(FrontDesk(echo, is_open=False))
    assert said(act(conversation, asks(path="/x")))[0][0] == 401
    (greeted,) = act(conversation, asks(path="/x", Authorization=basic("ann", "secret")))
    assert isinstance(greeted, Greeted)
    assert (greeted.hello.user, greeted.hello.password) == ("ann", "secret")
    assert conversation.admit(WELCOME) == b""
    assert said(conversation.begin()) == [(200, ["/x", "", "ann"])]
    again = act(conversation, asks(path="/x", Authorization=basic("ann", "secret")))
    assert said(again) == [(200, ["/x", "", "ann"])], "a moment later it need not be proved again"
    (other,) = act(conversation, asks(path="/x", Authorization=basic("bob", "secret")))
    assert isinstance(other, Greeted), "another user on the same connection is another user"
    refused = conversation.break_off(from_code("not-authenticated", "no"))
    assert said([refused])[0][0] == 401


@pytest.mark.req("X2")
def test_a_large_body_is_taken_in_when_it_is_known_who_sends_it() -> None:
    body = b"x" * (HTTP_UNPROVED_BYTES + 100)
    whole = asks("POST", "/x", body, X_Heliograph="1", Authorization=basic("ann", "secret"))
    conversation = talk(FrontDesk(echo, is_open=False))
    (greeted,) = act(conversation, whole[:-10])
    assert isinstance(greeted, Greeted), "before its body is here"
    assert not act(conversation, whole[-10:-5])
    assert conversation.is_waiting, "nothing more is read meanwhile"
    conversation.admit(WELCOME)
    assert not conversation.begin()
    assert not conversation.is_waiting
    ((status, said_back),) = said(act(conversation, whole[-5:]))
    assert (status, said_back) == (200, ["/x", body.decode(), "ann"])
    stranger = talk(FrontDesk(echo, is_open=False))
    head = asks("POST", "/x", body, X_Heliograph="1")[: -len(body)]
    assert said(act(stranger, head))[0][0] == 401


def test_a_log_in_is_good_until_it_ends() -> None:
    desk = FrontDesk(echo, is_open=False, secret=lambda size: bytes(range(size)))
    token = desk.log_in("ann", NOW)
    conversation = talk(desk)
    (greeted,) = act(conversation, asks(path="/x", Cookie=f"other=1; heliograph={token}"))
    assert isinstance(greeted, Greeted)
    assert (greeted.hello.mechanism, greeted.hello.password) == ("cookie", token)
    conversation.admit(WELCOME)
    assert said(conversation.begin())[0][0] == 200
    late = act(conversation, asks(path="/x", Cookie=f"heliograph={token}"), NOW + LOG_IN_IDLE_SECONDS + 1)
    assert said(late)[0][0] == 401
    token = desk.log_in("ann", NOW)
    desk.log_out(token)
    assert said(act(talk(desk), asks(path="/x", Cookie=f"heliograph={token}")))[0][0] == 401


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    conversation = talk()
    (greeted,) = act(conversation, asks(path="/ask"))
    conversation.admit(WELCOME)
    (requested,) = conversation.begin()
    assert isinstance(requested, Requested)
    assert isinstance(requested.message, frames.Ask)
    late = conversation.time_passed(int((NOW + HTTP_ANSWER_SECONDS + 1) * 1e6))
    assert [status for status, _ in said(late)] == [503]
    assert not conversation.say(frames.Answer(requested.message.request, {"a": 1}), [])
    (again,) = act(conversation, asks(path="/ask"))
    assert isinstance(again, Requested)
    answer = frames.Answer(again.message.request, {"a": 1})
    assert said(conversation.say(answer, [])) == [(200, {"a": 1})]


def test_who_begins_a_request_and_does_not_end_it_is_let_go() -> None:
    conversation = talk()
    assert not act(conversation, asks() + b"GET /")[1:]
    (broken,) = conversation.time_passed(int((NOW + HTTP_REQUEST_SECONDS + 1) * 1e6))
    assert isinstance(broken, Broken)
    assert said([broken])[0][0] == 408


def test_a_mistake_of_ours_is_said_and_goes_no_further() -> None:
    conversation = talk()
    act(conversation, asks(path="/bug"))
    conversation.admit(WELCOME)
    ((status, body),) = said(conversation.begin())
    assert status == 500
    assert body["error"]["code"] == "defect"  # type: ignore[index]


def test_a_large_body_is_announced_and_welcome() -> None:
    conversation = talk()
    whole = asks("POST", "/public", b"later", X_Heliograph="1", Expect="100-continue")
    head, body = whole[:-5], whole[-5:]
    (welcome,) = act(conversation, head)
    assert isinstance(welcome, Answered)
    assert welcome.data == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert said(act(conversation, body)) == [(200, ["/public", "later", ""])]


def test_requests_of_one_read_are_answered_as_the_network_takes_the_answers() -> None:
    """Or some bytes of a stranger would become as many megabytes."""
    page = b"x" * 10_000

    def answer(_request: Request, _call: Callable[..., Call]) -> Found:
        def handle() -> Steps:
            yield from ()
            return Reply(200, page)

        return Found(handle, is_public=True)

    conversation = talk(FrontDesk(answer))
    first = act(conversation, asks() * 1000)
    assert sum(
        len(each.data) for each in first if isinstance(each, Answered)
    ) < HTTP_ANSWERED_BYTES + 2 * len(page)
    answered = len(first)
    while more := conversation.written():
        assert len(more) <= len(first)
        answered += len(more)
    assert answered == 1000


def test_a_websocket_is_still_one() -> None:
    data = asks(Upgrade="websocket", Connection="Upgrade")
    (recognised,) = act(talk(), data)
    assert isinstance(recognised, Recognised)
    assert isinstance(recognised.conversation, WebSocketConversation)
    assert recognised.rest == data


def test_the_head_of_a_reply_alone_for_head() -> None:
    (answered,) = act(talk(), asks("HEAD"))
    assert isinstance(answered, Answered)
    assert answered.data.endswith(b"\r\n\r\n")
    assert b"Content-Length: " in answered.data


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("not-authenticated", 401),
        ("not-allowed", 403),
        ("destination-unknown", 404),
        ("user-exists", 409),
        ("destination-not-paused", 409),
        ("too-many-logins", 429),
        ("argument-invalid", 400),
        ("unavailable", 503),
        ("not-leading", 503),
        ("storage-full", 507),
    ],
)
def test_an_error_has_the_status_that_says_who_must_act(code: str, status: int) -> None:
    assert status_of(HeliographError("x", code=code)) == status


def test_a_reader_holds_no_more_than_it_was_given() -> None:
    reader = RequestReader()
    reader.feed(asks() + b"\r\n\r\n" + asks())
    assert reader.next() is not None
    assert reader.next() is not None
    assert reader.next() is None
    assert reader.held == 0
    with pytest.raises(BadRequest):
        parse_head(b"GET / HTTP/1.1\r\n\x00: x\r\n\r\n")

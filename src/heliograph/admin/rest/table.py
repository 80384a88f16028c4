"""All routes of the API in one table: who answers, what may be said, and what the API is described by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from heliograph.admin.rest import about_alerts as alerts
from heliograph.admin.rest import about_destinations as destinations
from heliograph.admin.rest import about_messages as messages
from heliograph.admin.rest import about_server as server
from heliograph.admin.rest import forms, watching
from heliograph.admin.rest.metrics import health, metrics
from heliograph.frontends.http.requests import BadRequest, Request
from heliograph.frontends.http.steps import Call, Found, Steps
from heliograph.model.errors import ClientFault

ROOT: Final = "/api/v1"


class Route(msgspec.Struct, frozen=True):
    """One of them. `path` has its variable parts in braces, `status` is that of an ordinary reply."""

    method: str
    path: str
    handle: Callable[[Call], Steps]
    summary: str
    tag: str
    query: type[forms.Form] = forms.Nothing
    body: type[forms.Form] | None = None
    status: int = 200
    is_public: bool = False
    content_type: str = "application/json"

    @property
    def name(self) -> str:
        return f"{self.tag}.{self.handle.__name__}".replace(" ", "_")


_DESTINATION: Final = f"{ROOT}/destinations/{{destination}}"
_MESSAGES: Final = f"{_DESTINATION}/messages"
_CHANNEL: Final = f"{ROOT}/alerts/{{channel}}"

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "POST",
        f"{ROOT}/login",
        server.log_in,
        "Log in: the reply sets a cookie",
        "log-in",
        body=forms.LogInForm,
        is_public=True,
    ),
    Route("POST", f"{ROOT}/logout", server.log_out, "Log out", "log-in", status=204, is_public=True),
    Route("GET", f"{ROOT}/me", server.me, "Who am I?", "log-in"),
    Route("GET", f"{ROOT}/overview", server.overview, "Everything in a few figures", "server"),
    Route(
        "GET", f"{ROOT}/sessions", server.sessions, "Sessions, a page at a time", "server", forms.PageQuery
    ),
    Route(
        "GET",
        f"{ROOT}/transactions",
        server.transactions,
        "Transactions over several sub-clusters that wait for their outcome",
        "server",
        forms.PageQuery,
    ),
    Route(
        "GET",
        f"{ROOT}/policies",
        server.policies,
        "The defaults and rules by which destinations get their policies",
        "server",
    ),
    Route("GET", f"{ROOT}/configuration", server.configuration, "The settings of this node", "server"),
    Route("GET", f"{ROOT}/log", server.log, "The last events", "server"),
    Route(
        "GET",
        f"{ROOT}/events",
        watching.events,
        "A stream of server-sent events",
        "server",
        forms.EventsQuery,
        content_type="text/event-stream",
    ),
    Route("GET", f"{ROOT}/users", server.users, "The users", "users"),
    Route("POST", f"{ROOT}/users", server.add_user, "Add a user", "users", body=forms.UserForm, status=201),
    Route("DELETE", f"{ROOT}/users/{{name}}", server.remove_user, "Remove a user", "users"),
    Route("GET", f"{ROOT}/access", server.rules, "The access rules", "users"),
    Route(
        "POST",
        f"{ROOT}/access/grant",
        server.grant,
        "Give rights to users and roles",
        "users",
        body=forms.GrantForm,
    ),
    Route(
        "POST",
        f"{ROOT}/access/revoke",
        server.revoke,
        "Take rights from users and roles",
        "users",
        body=forms.RevokeForm,
    ),
    Route(
        "GET",
        f"{ROOT}/cluster",
        server.cluster,
        "Nodes, sub-clusters, who leads, partition states, what is held back",
        "cluster",
    ),
    Route(
        "POST",
        f"{ROOT}/cluster/override",
        server.override,
        "The other part is gone for good: hand out everything",
        "cluster",
    ),
    Route(
        "DELETE", f"{ROOT}/cluster/nodes/{{node}}", server.remove_node, "A node is gone for good", "cluster"
    ),
    Route(
        "GET", f"{ROOT}/units", destinations.stuck_units, "Units of order that are stopped, wherever", "units"
    ),
    Route(
        "GET",
        f"{ROOT}/destinations",
        destinations.find,
        "Destinations, sorted, a page at a time",
        "destinations",
        forms.FindQuery,
    ),
    Route(
        "POST",
        f"{ROOT}/destinations",
        destinations.create,
        "Create a destination",
        "destinations",
        body=forms.CreateForm,
        status=201,
    ),
    Route("GET", _DESTINATION, destinations.show, "All about a destination", "destinations"),
    Route(
        "PATCH", _DESTINATION, destinations.change, "Change its policy", "destinations", body=forms.PolicyForm
    ),
    Route("DELETE", _DESTINATION, destinations.delete, "Delete it", "destinations", forms.DeleteQuery),
    Route("POST", f"{_DESTINATION}/purge", destinations.purge, "Drop all that waits in it", "destinations"),
    Route(
        "POST", f"{_DESTINATION}/pause", destinations.pause, "Pause it", "destinations", body=forms.PauseForm
    ),
    Route(
        "POST",
        f"{_DESTINATION}/resume",
        destinations.resume,
        "Let it go on",
        "destinations",
        body=forms.PauseForm,
    ),
    Route(
        "GET",
        f"{_DESTINATION}/consumers",
        destinations.consumers,
        "Who consumes",
        "destinations",
        forms.PageQuery,
    ),
    Route(
        "GET",
        f"{_DESTINATION}/units",
        destinations.units,
        "Units of order that wait, and for what",
        "units",
        forms.PageQuery,
    ),
    Route(
        "POST",
        f"{_DESTINATION}/units/{{unit}}/resume",
        destinations.resume_unit,
        "Let a stopped unit go on",
        "units",
        body=forms.ResumeUnitForm,
    ),
    Route(
        "GET", _MESSAGES, messages.look, "Look at messages that wait in a queue", "messages", forms.LookQuery
    ),
    Route("POST", _MESSAGES, messages.send, "Send a message", "messages", body=forms.SendForm, status=201),
    Route(
        "GET", f"{_MESSAGES}/{{id}}", messages.peek, "One message with its body", "messages", forms.PeekQuery
    ),
    Route(
        "POST",
        f"{_MESSAGES}/move",
        messages.move,
        "Move messages of a paused queue to another",
        "messages",
        body=forms.MoveForm,
    ),
    Route(
        "POST",
        f"{_MESSAGES}/delete",
        messages.delete,
        "Delete messages of a paused queue",
        "messages",
        body=forms.WhichForm,
    ),
    Route(
        "POST",
        f"{_MESSAGES}/redrive",
        messages.redrive,
        "Send dead messages again to where they came from",
        "messages",
        body=forms.RedriveForm,
    ),
    Route("GET", _CHANNEL, alerts.listed, "Live alerts, the most urgent first", "alerts", forms.AlertsQuery),
    Route("POST", _CHANNEL, alerts.publish, "Publish an alert", "alerts", body=forms.AlertForm, status=201),
    Route("GET", f"{_CHANNEL}/{{id}}", alerts.audit, "The life of an alert", "alerts"),
    Route("DELETE", f"{_CHANNEL}/{{id}}", alerts.cancel, "Cancel an alert", "alerts"),
    Route(
        "GET",
        "/metrics",
        metrics,
        "For Prometheus",
        "watching",
        forms.MetricsQuery,
        content_type="text/plain",
    ),
    Route("GET", "/health", health, "Does the process run?", "watching", is_public=True),
)


class Table:
    """Finds who answers."""

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._by_shape: dict[int, list[tuple[list[str], Route]]] = {}
        for route in routes:
            parts = route.path.split("/")
            self._by_shape.setdefault(len(parts), []).append((parts, route))

    def find(self, request: Request, call: Callable[..., Call]) -> Found:
        """Raises BadRequest."""
        path, _, query = request.head.target.partition("?")
        method = "GET" if request.head.method == "HEAD" else request.head.method
        parts = path.split("/")
        matching = [
            (route, found)
            for shape, route in self._by_shape.get(len(parts), ())
            if (found := _match(shape, parts)) is not None
        ]
        if not matching:
            raise BadRequest(f"there is nothing at {path[:80]}", 404, code="path-unknown")
        for route, found in matching:
            if route.method == method:
                return Found(_bound(route, found, query, request, call), route.is_public)
        allowed = ", ".join(dict.fromkeys(route.method for route, _ in matching))
        raise BadRequest(f"here the methods are {allowed}", 405, code="method-unknown")


def _match(shape: list[str], parts: list[str]) -> dict[str, str] | None:
    """The variable parts of a path; None: it is another one. What is spelt out goes before what varies."""
    found: dict[str, str] = {}
    for expected, part in zip(shape, parts, strict=True):
        if expected.startswith("{"):
            found[expected[1:-1]] = unquote(part)
        elif expected != part:
            return None
    return found if all(found.values()) else None


def _bound(
    route: Route, path: dict[str, str], query: str, request: Request, call: Callable[..., Call]
) -> Callable[[], Steps]:
    """Parameters and body are looked at when it is known who asks."""

    def handle() -> Steps:
        parameters = _query(route.query, query)
        body = _body(route.body, request) if route.body is not None else None
        return (yield from route.handle(call(path, parameters, body)))

    return handle


def _query(form: type[forms.Form], text: str) -> Any:
    pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=50) if text else []
    if len(dict(pairs)) < len(pairs):
        raise ClientFault("each parameter is given once", code="argument-invalid")
    try:
        return msgspec.convert(dict(pairs), form, strict=False)
    except msgspec.ValidationError as fault:
        raise ClientFault(f"a parameter is wrong: {fault}", code="argument-invalid") from None


def _body(form: type[forms.Form], request: Request) -> Any:
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if request.body and kind != "application/json":
        raise BadRequest("a body is JSON: Content-Type: application/json", 415, code="argument-invalid")
    try:
        return msgspec.json.decode(request.body or b"{}", type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise ClientFault(f"the body is wrong: {fault}", code="argument-invalid") from None

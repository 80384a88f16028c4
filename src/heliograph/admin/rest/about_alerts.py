"""Answers about alerts: which are live, what became of one, publishing and cancelling."""

from __future__ import annotations

from typing import Any

from heliograph.frontends.http.replies import Reply
from heliograph.frontends.http.steps import Call, Order, Steps
from heliograph.model.alert import AlertHeader, parse_alert_id, text_of_alert
from heliograph.sessions.commands import AuditAlert, CancelAlert, ListAlerts, PublishAlert


def listed(call: Call) -> Steps:
    after = parse_alert_id(call.query.after) if call.query.after else b""
    topics = call.query.topics
    body = yield Order(lambda request: ListAlerts(request, _channel(call), topics, after))
    return Reply(
        200,
        {
            "alerts": [_shown(alert) for alert in body["alerts"]],
            "next": text_of_alert(body["next"]) if body["next"] else "",
            "live": body["live"],
        },
    )


def audit(call: Call) -> Steps:
    identity = parse_alert_id(call.path["id"])
    body = yield Order(lambda request: AuditAlert(request, _channel(call), identity))
    return Reply(200, _plain(body))


def publish(call: Call) -> Steps:
    form = call.body
    header = AlertHeader(form.destination, form.priority, form.duration, persistent=form.persistent)
    raw = form.body.encode(errors="replace")
    body = yield Order(lambda request: PublishAlert(request, _channel(call), 1, 1, header, raw))
    return Reply(201, {"id": text_of_alert(body["id"])})


def cancel(call: Call) -> Steps:
    identity = parse_alert_id(call.path["id"])
    body = yield Order(lambda request: CancelAlert(request, _channel(call), identity))
    return Reply(200, _plain(body))


def _channel(call: Call) -> str:
    name = call.path["channel"]
    return name if name.startswith("alerts:") else f"alerts:{name}"


def _shown(alert: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(alert)
    return plain


def _plain(value: Any) -> Any:
    """What is an id becomes the text of it, what is a body a text."""
    if isinstance(value, dict):
        return {str(key): _said(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


def _said(key: str, value: Any) -> Any:
    if isinstance(value, bytes) and key == "body":
        return value.decode(errors="replace")
    return _plain(value)

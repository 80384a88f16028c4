"""The description of the API (OpenAPI 3.1), made from the table that answers: it cannot say anything else."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from heliograph import __version__
from heliograph.admin.rest.forms import ADDRESS, Form
from heliograph.admin.rest.table import ROUTES, Route

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "sentence"],
            "properties": {
                "code": {"type": "string", "description": "Stable: docs/reference/errors.md lists them."},
                "sentence": {"type": "string", "description": "For a person."},
            },
        }
    },
}
_SHAPES: dict[str, dict[str, Any]] = {
    "destination": {"pattern": ADDRESS, "examples": ["queue:orders"]},
    "channel": {"minLength": 1, "examples": ["alerts:ops"]},
    "name": {"minLength": 1},
    "node": {"minLength": 1, "examples": ["1.1"]},
    "unit": {"minLength": 1},
    "id": {"pattern": "^[0-9A-Za-z.:_/-]+$"},
}
_OUR_HEADER: dict[str, Any] = {
    "name": "X-Heliograph",
    "in": "header",
    "required": True,
    "schema": {"type": "string", "enum": ["1"]},
    "description": "Whatever it says: a form of a page from elsewhere cannot send it.",
}


def document() -> dict[str, Any]:
    bodies = [route.body for route in ROUTES if route.body is not None]
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Heliograph",
            "version": __version__,
            "description": "Everything that an administrator can see and do. Rights are those of the user.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "heliograph"},
            },
        },
        "security": [{"basic": []}, {"cookie": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    content = {} if route.status == 204 else {"content": {route.content_type: {"schema": _answer(route)}}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_of_path(route), *_of_query(route.query)],
        "responses": {
            str(route.status): {"description": "Done", **content},
            "default": {
                "description": "It could not be done, and why",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if route.method != "GET":
        operation["parameters"].append(_OUR_HEADER)
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if route.is_public:
        operation["security"] = []
    return operation


def _answer(route: Route) -> dict[str, Any]:
    return {"type": "object"} if route.content_type == "application/json" else {"type": "string"}


def _of_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", **_SHAPES.get(name, {})}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]


def _of_query(form: type[Form]) -> list[dict[str, Any]]:
    """A parameter for each field."""
    (reference,), components = msgspec.json.schema_components([form], ref_template="{name}")
    schema = components[reference["$ref"]]
    parameters = []
    for name, field in schema["properties"].items():
        plain = {key: value for key, value in field.items() if key != "description"}
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": False,
                "schema": plain,
                "description": field.get("description", ""),
            }
        )
    return parameters


def reference() -> str:
    """The table of docs/reference/api.md."""
    rows = [f"| `{route.method} {route.path}` | {route.summary} |" for route in ROUTES]
    return "\n".join(["| request | what |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    print(reference(), end="")

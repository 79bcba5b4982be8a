"""The OpenAPI description of the server, served at `/openapi.json`."""

from __future__ import annotations

from typing import Any, Final

from siftline import __version__

_ERROR: Final = {"$ref": "#/components/responses/Error"}
_TICKET: Final[list[dict[str, list[str]]]] = [{"ticket": []}, {"key": []}]
_KEY: Final[list[dict[str, list[str]]]] = [{"key": []}, {}]
_ID: Final = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_EVENT: Final = {"type": "object", "additionalProperties": True}
_TIME: Final = {"type": "string", "format": "date-time"}
_VALIDITY: Final = {
    "description": "seconds, or text such as 45s, 30m, 12h, 7d",
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": "^[0-9]{1,12} *[smhd]$"}],
    "default": "1d",
}
_EXPRESSIONS: Final[dict[str, Any]] = {
    "expression": {"type": "string", "description": "in the text language"},
    "pattern": {"type": "object", "description": "an event pattern"},
    "filters": {"type": "array", "items": {"type": "object"}, "description": "CloudEvents filters"},
    "dialect": {"enum": ["text", "eventbridge", "sns", "cloudevents"]},
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


def _body(schema: dict[str, Any], *, is_required: bool = True) -> dict[str, Any]:
    return {"required": is_required, "content": _json(schema)}


def _operation(
    summary: str,
    status: int,
    schema: dict[str, Any] | None = None,
    *,
    errors: tuple[int, ...] = (),
    security: list[dict[str, list[str]]] | None = None,
    body: dict[str, Any] | None = None,
    parameters: tuple[dict[str, Any], ...] = (),
    media: str = "application/json",
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": summary}
    if schema is not None:
        answer["content"] = {media: {"schema": schema}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {str(status): answer} | {str(number): _ERROR for number in errors},
    }
    if body is not None:
        operation["requestBody"] = body
    if parameters:
        operation["parameters"] = list(parameters)
    if security is not None:
        operation["security"] = security
    return operation


def _for_admins(
    summary: str, schema: dict[str, Any], *, errors: tuple[int, ...] = (), **options: Any
) -> dict[str, Any]:
    return _operation(f"{summary} (admins)", 200, schema, errors=(*_ADMIN, *errors), security=_KEY, **options)


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema}


_LIMIT: Final = _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000})
_AFTER: Final = _query("after", {"type": "string", "pattern": "^[0-9]{1,18}-[0-9]{1,9}$"})
_LAST: Final = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_AFTER_QUERY: Final = _query("after", {"type": "integer", "minimum": 0, "maximum": 10**15})
_LIMIT_QUERY: Final = _query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000})
_NAMED: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "a repeated publish with the same key gets the first answer, and nobody is notified twice",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_OWNED: Final = (400, 401, 403, 404, 408, 413, 422, 429, 503)
_ADMIN: Final = (400, 401, 403, 404, 408, 413, 415, 422, 503)
_SHOWN: Final = {
    "type": "object",
    "required": ["id", "expression", "dialect", "expires"],
    "properties": {
        "id": {"type": ["string", "integer"]},
        "expression": _TEXT,
        "dialect": _TEXT,
        "weight": {"type": "number"},
        "owner": {"type": ["string", "null"]},
        "created": _TIME,
        "expires": {"type": ["string", "null"], "format": "date-time"},
    },
}


def _stream(summary: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    return _operation(
        f"{summary}, as server-sent events; the same path with /ws is a WebSocket",
        200,
        _TEXT,
        errors=(401, 403, 404, 422, 503),
        security=_TICKET,
        parameters=(*parameters, _AFTER, _LAST),
        media="text/event-stream",
    )


_EVENTS: Final = {
    "required": True,
    "content": {
        "application/json": {"schema": {"anyOf": [_EVENT, {"type": "array", "items": _EVENT}]}},
        "application/x-ndjson": {"schema": _TEXT},
        "application/cloudevents+json": {"schema": _EVENT},
        "application/cloudevents-batch+json": {"schema": {"type": "array", "items": _EVENT}},
    },
}

_PATHS: Final[dict[str, Any]] = {
    "/subscriptions": {
        "post": _operation(
            "Subscribe; the ticket is shown only once",
            201,
            {
                "type": "object",
                "required": ["id", "ticket", "expires"],
                "properties": {
                    "id": {"type": ["string", "integer"]},
                    "ticket": _TEXT,
                    "expires": _TIME,
                    "secret": _TEXT,
                },
            },
            errors=(400, 401, 403, 408, 413, 422, 429, 503),
            security=_KEY,
            body=_body(
                _object(
                    _EXPRESSIONS
                    | {
                        "validity": _VALIDITY,
                        "owner": {"type": "string", "maxLength": 200},
                        "weight": {"type": "number"},
                        "deliver": _object({"webhook": _TEXT, "secret": _TEXT}, "webhook"),
                    }
                )
            ),
        ),
        "get": _for_admins(
            "List and search subscriptions",
            {"type": "object", "properties": {"subscriptions": {"type": "array"}, "more": {"type": "boolean"}}},
            parameters=(_query("search", _TEXT), _query("owner", _TEXT), _LIMIT),
        ),
    },
    "/subscriptions/{id}": {
        "get": _operation("Show a subscription", 200, _SHOWN, errors=_OWNED, security=_TICKET, parameters=(_ID,)),
        "put": _operation(
            "Replace the expression atomically",
            200,
            _SHOWN,
            errors=_OWNED,
            security=_TICKET,
            parameters=(_ID,),
            body=_body(_object(_EXPRESSIONS)),
        ),
        "delete": _operation("Unsubscribe", 204, errors=_OWNED, security=_TICKET, parameters=(_ID,)),
    },
    "/subscriptions/{id}/renew": {
        "post": _operation(
            "Renew the lease",
            200,
            {"type": "object", "required": ["expires"], "properties": {"expires": _TIME}},
            errors=_OWNED,
            security=_TICKET,
            parameters=(_ID,),
            body=_body(_object({"validity": _VALIDITY}), is_required=False),
        )
    },
    "/subscriptions/{id}/notifications": {
        "get": _operation(
            "Notifications in the log, oldest first",
            200,
            {"type": "object", "properties": {"gap": {"type": ["object", "null"]}, "notifications": {"type": "array"}}},
            errors=_OWNED,
            security=_TICKET,
            parameters=(_ID, _AFTER, _LAST, _LIMIT),
        )
    },
    "/subscriptions/{id}/stream": {"get": _stream("Notifications of one subscription", _ID)},
    "/owners/{owner}/subscriptions": {
        "get": _operation(
            "Subscriptions of an owner in the order of their ids; `next` is the `after` of the next page, or null",
            200,
            _object(
                {"subscriptions": {"type": "array", "items": _SHOWN}, "next": {"type": ["string", "null"]}},
                "subscriptions",
                "next",
            ),
            errors=_OWNED,
            security=_KEY,
            parameters=(_ID | {"name": "owner"}, _query("after", _TEXT), _LIMIT),
        )
    },
    "/owners/{owner}/stream": {"get": _stream("Notifications of an owner", _ID | {"name": "owner"})},
    "/stream": {"get": _stream("Notifications of all subscriptions (admins)")},
    "/events": {
        "post": _operation(
            "Publish one event or several: all of them, or none if one is invalid",
            202,
            {"type": "object", "required": ["accepted"], "properties": {"accepted": {"type": "integer"}}},
            errors=(400, 401, 403, 408, 413, 415, 422, 429, 503),
            security=_KEY,
            body=_EVENTS,
            parameters=(_NAMED,),
        ),
        "get": _operation(
            "Published events, for a cluster that matches them (admins; with --match-elsewhere)",
            200,
            _object({"first": _NUMBER, "last": _NUMBER, "events": {"type": "array"}}, "first", "last", "events"),
            errors=_ADMIN,
            security=_KEY,
            parameters=(_AFTER_QUERY, _LIMIT_QUERY),
        ),
    },
    "/matches": {
        "post": _for_admins(
            "Matches that a cluster has found, as JSON Lines; repeated matches are ignored",
            _object({"delivered": _NUMBER, "repeated": _NUMBER, "unknown": _NUMBER}, "delivered"),
            body={"required": True, "content": {"application/x-ndjson": {"schema": _TEXT}}},
        )
    },
    "/changes": {
        "get": _for_admins(
            "Changes of subscriptions after a number",
            _object({"last": _NUMBER, "ids": _TEXT, "changes": {"type": "array"}}, "last", "ids", "changes"),
            errors=(410,),
            parameters=(_AFTER_QUERY, _LIMIT_QUERY),
        )
    },
    "/readers/{name}": {
        "put": _operation(
            "Acknowledge that a reader has all changes up to a number; later ones are kept for it (admins)",
            204,
            errors=_ADMIN,
            security=_KEY,
            parameters=(_ID | {"name": "name"},),
            body=_body(_object({"sequence": _NUMBER}, "sequence")),
        )
    },
    "/match": {
        "post": _for_admins(
            "The subscriptions that an event matches, without notifying them",
            {
                "type": "object",
                "required": ["matches", "subscriptions"],
                "properties": {"matches": {"type": "integer"}, "subscriptions": {"type": "array"}},
            },
            body=_EVENTS,
        )
    },
    "/explain": {
        "post": _for_admins(
            "Why an event matches an expression or a subscription, or does not",
            {"type": "object"},
            body=_body(_object(_EXPRESSIONS | {"id": {"type": ["string", "integer"]}, "event": _EVENT}, "event")),
        )
    },
    "/recent": {
        "get": _for_admins(
            "A few of the newest notifications of all subscriptions; `position` is the next `after`",
            _object({"position": _TEXT, "notifications": {"type": "array"}}, "position", "notifications"),
            parameters=(_AFTER, _LAST, _query("limit", {"type": "integer", "minimum": 1, "maximum": 100})),
        )
    },
    "/dead-letters": {
        "get": _for_admins(
            "Dead letters: notifications that webhooks did not accept", {"type": "object"}, parameters=(_LIMIT,)
        )
    },
    "/stats": {"get": _for_admins("Counts", {"type": "object"})},
    "/metrics": {"get": _for_admins("Counts for Prometheus", _TEXT, media="text/plain")},
    "/healthz": {"get": _operation("The process is alive", 200, {"type": "object"})},
    "/readyz": {"get": _operation("The server accepts requests", 200, {"type": "object"}, errors=(503,))},
}

DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Siftline",
        "version": __version__,
        "description": "Subscriptions with leases and tickets, published events, notifications at least once.",
    },
    "paths": _PATHS,
    "components": {
        "securitySchemes": {
            "ticket": {
                "type": "http",
                "scheme": "bearer",
                "description": "the ticket of the subscription, or the key of its owner",
            },
            "key": {"type": "http", "scheme": "bearer", "description": "an API key"},
        },
        "responses": {
            "Error": {
                "description": "What is wrong, where, and how to correct it",
                "content": _json(
                    _object(
                        {
                            "error": {
                                "type": "object",
                                "required": ["status", "reason"],
                                "properties": {
                                    "status": {"type": "integer"},
                                    "reason": _TEXT,
                                    "kind": _TEXT | {"description": "the exception of the Python library"},
                                    "position": {"type": "integer"},
                                    "line": {"type": "integer"},
                                    "column": {"type": "integer"},
                                    "path": _TEXT,
                                    "hint": _TEXT,
                                },
                            }
                        },
                        "error",
                    )
                ),
            }
        },
    },
}

"""The descriptions of the protocol for programs: OpenAPI for HTTP, AsyncAPI for WebSockets.

    python -m ingeborg.broker.http.description docs

Owns: the two documents. Must never: define a field (``schema`` does).

The endpoint serves them at `/openapi.json` and `/asyncapi.json`. The command writes them into a directory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import orjson

from ..version import VERSION
from . import schema
from .commands import EVENTS, LIST_MAX, POST, ROUTES, Route

_LICENCE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_ABOUT: Final = "The protocol is specified in protocol/SPEC.md. A program makes this description from the code."

_SUMMARIES: Final = {
    "/publish": "Publish a message, or a list of messages",
    "/broadcast": "Send a message to every client that listens",
    "/subscribe": "Subscribe a client to topics",
    "/unsubscribe": "Remove a client's subscriptions to topics",
    "/events": "Receive messages as an event stream",
    "/subscriptions": "Read one page of a client's subscriptions",
    "/subscribers": "Read one page of a topic's subscribers",
    "/history": "Read the kept messages of a topic",
}

#: The HTTP statuses of failed commands, and the reason for each status.
_FAILURES: Final = {
    "400": "The request or a field is wrong; `info` names the reason",
    "401": "There is no acceptable token",
    "403": "The token or the page's origin does not permit the command",
    "409": "The deduplication key belongs to a message with another payload",
    "413": "The body or the payload is too large",
    "415": "The body is not JSON",
    "422": "The client has too many topics",
    "429": "There are too many connections from the client's address",
    "500": "Only some subscribers got the message, or the endpoint failed. Repeating the request does not help",
    "503": "The store or another endpoint does not answer. Repeat the request after Retry-After seconds",
}
_PUBLISHING: Final = frozenset(("409",))


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document."""
    schemas: dict[str, Any] = {"Rule": schema.RULE, "Error": schema.ERROR, "Refused": schema.REFUSED}
    for route in ROUTES.values():
        if route.command != EVENTS:
            name = _title(route.command)
            schemas[name] = schema.command(route.command, over_http=True)
            schemas[f"{name}Success"] = schema.success(route.command)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": schema.DIALECT,
        "info": {"title": "Ingeborg over HTTP", "version": VERSION, "license": _LICENCE, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}, {"tokenInQuery": []}],
        "paths": {path: {route.methods[0].lower(): _operation(path, route)} for path, route in ROUTES.items()},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "tokenInQuery": {"type": "apiKey", "in": "query", "name": "access_token"},
            },
        },
    }


def _title(command: str) -> str:
    return command.title()


def _operation(path: str, route: Route) -> dict[str, Any]:
    name = _title(route.command)
    made: dict[str, Any] = {"operationId": route.command, "summary": _SUMMARIES[path]}
    if route.command == EVENTS:
        made["parameters"] = _parameters_of_stream()
        made["responses"] = {
            "200": {
                "description": "The stream (SPEC 1.8)",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            "204": {"description": "Another connection listens as this client, or the client's token was revoked"},
            **_failures("400", "401", "403", "422", "429"),
        }
        return made
    success = schema.ref(f"{name}Success")
    if route.methods is POST:
        item = schema.ref(name)
        body = schema.either(item, schema.listed(item, minItems=1, maxItems=LIST_MAX))
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        one = schema.either(success, schema.ref("Error"))
        answer = schema.either(success, schema.listed(one))
    else:
        made["parameters"] = _parameters(route)
        answer = success
    made["responses"] = {"200": _json("Every command succeeded", answer)}
    if route.methods is POST:
        mixed = schema.listed(schema.either(success, schema.ref("Error")))
        made["responses"]["207"] = _json("The results of the commands in the list differ", mixed)
    if route.publishes:
        made["parameters"] = [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "Identifies the request, so that the broker recognizes a repetition (SPEC 1.7)",
                "schema": {"type": "string", "minLength": 1, "maxLength": 124},
            }
        ]
    left_out = set() if route.publishes else set(_PUBLISHING)
    if route.methods is not POST:
        left_out |= {"413", "415", "422"}
    made["responses"].update(_failures(*(status for status in _FAILURES if status not in left_out)))
    return made


def _json(description: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": answer}}}


def _failures(*statuses: str) -> dict[str, Any]:
    one = schema.either(schema.ref("Error"), schema.ref("Refused"), schema.listed(schema.ref("Error")))
    return {status: _json(_FAILURES[status], one) for status in statuses}


def _parameters(route: Route) -> list[dict[str, Any]]:
    required, optional, own = schema.COMMANDS[route.command]
    client = {"type": "string", "minLength": 1, "maxLength": 128}
    made: list[dict[str, Any]] = [{"name": "client_id", "in": "query", "schema": client}]
    for field in (*required, *optional):
        given = own.get(field, schema.FIELDS.get(field, {}))
        if field == "cursor":
            given = {"type": "string"}
        if field == "filter":
            made.append({"name": field, "in": "query", "content": {"application/json": {"schema": given}}})
        else:
            made.append({"name": field, "in": "query", "required": field in required, "schema": given})
    return made


def _parameters_of_stream() -> list[dict[str, Any]]:
    return [
        {"name": "topic", "in": "query", "required": True, "explode": True, "schema": schema.listed(schema.TOPIC)},
        {"name": "filter", "in": "query", "content": {"application/json": {"schema": schema.FILTER}}},
        {"name": "bounds", "in": "query", "schema": {"type": "string"}, "description": "A preset, or JSON (SPEC 2.8)"},
        {"name": "client_id", "in": "query", "schema": {"type": "string", "minLength": 1, "maxLength": 128}},
        {"name": "last_event_id", "in": "query", "schema": {"type": "string"}},
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
    ]


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI document."""
    sent = {name: schema.command(name) for name in schema.COMMANDS}
    heard = {f"{name}-success": schema.success(name) for name in schema.COMMANDS if name != "credit"}
    heard |= {"error": schema.ERROR, **schema.MESSAGES}
    every = {**{f"{name}-command": one for name, one in sent.items()}, **heard}
    components = {
        "schemas": {"Rule": schema.RULE},
        "messages": {name: {"contentType": "application/json", "payload": one} for name, one in every.items()},
    }
    channel = "#/channels/connection"
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Ingeborg over WebSockets",
            "version": VERSION,
            "license": {"name": "Apache-2.0"},
            "description": _ABOUT,
        },
        "defaultContentType": "application/json",
        "channels": {
            "connection": {
                "address": "/",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in every},
                "bindings": {"ws": {}},
            }
        },
        "operations": {
            "send": {
                "action": "receive",
                "channel": {"$ref": channel},
                "summary": "Commands that the endpoint receives",
                "messages": [{"$ref": f"{channel}/messages/{name}-command"} for name in sent],
            },
            "hear": {
                "action": "send",
                "channel": {"$ref": channel},
                "summary": "Replies and messages that the endpoint sends",
                "messages": [{"$ref": f"{channel}/messages/{name}"} for name in heard],
            },
        },
        "components": components,
    }


#: The documents, indexed by file name.
DOCUMENTS: Final = {"openapi.json": openapi, "asyncapi.json": asyncapi}


def encoded(name: str) -> bytes:
    """Return the document with this file name as JSON."""
    return orjson.dumps(DOCUMENTS[name](), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def main() -> None:
    """Write the documents into the directory that is the first argument."""
    for name in DOCUMENTS:
        (Path(sys.argv[1]) / name).write_bytes(encoded(name))


if __name__ == "__main__":
    main()

"""The descriptions agree with the code that checks frames, with SPEC.md, and with a real endpoint."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ingeborg.broker.http import description, schema
from ingeborg.broker.http.commands import EVENTS, ROUTES
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import _COMMANDS, check
from tests.fuzz import malformed

from ..running import Running, plain
from .talking import talk

ROOT = Path(__file__).parents[3]

ASYNC = description.asyncapi()
OPEN = description.openapi()


def validator(document: dict[str, Any], part: Any) -> Draft202012Validator:
    """Validates one schema, whose references lead into the document's components."""
    return Draft202012Validator({**part, "components": document["components"]})


def of_message(name: str) -> Draft202012Validator:
    return validator(ASYNC, ASYNC["components"]["messages"][name]["payload"])


COMMANDS = {name: of_message(f"{name}-command") for name in schema.COMMANDS}


def is_accepted(value: dict[str, Any]) -> bool:
    try:
        check(value, 1 << 20)
    except ProtocolError:
        return False
    return True


@pytest.mark.parametrize("name", description.DOCUMENTS)
def test_the_committed_document_is_made_from_the_code(name: str) -> None:
    """If this fails: python -m ingeborg.broker.http.description docs."""
    assert (ROOT / "docs" / name).read_bytes() == description.encoded(name)


def test_every_schema_is_one() -> None:
    for part in ASYNC["components"]["messages"].values():
        Draft202012Validator.check_schema(part["payload"])
    for part in OPEN["components"]["schemas"].values():
        Draft202012Validator.check_schema(part)


def test_every_reference_leads_somewhere() -> None:
    for document in (ASYNC, OPEN):
        for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))):
            found: Any = document
            for key in reference.split("/"):
                found = found[key]


def test_every_command_and_path_is_described() -> None:
    assert list(schema.COMMANDS) == list(_COMMANDS)
    assert OPEN["paths"].keys() == ROUTES.keys()
    for path, route in ROUTES.items():
        operation = OPEN["paths"][path][route.methods[0].lower()]
        if route.command == EVENTS or route.methods != ("POST",):
            names = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
            assert names | {"access_token"} == route.names


def test_the_fields_of_the_commands_are_those_of_the_specification() -> None:
    text = (ROOT / "protocol" / "SPEC.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text.partition("### 2.2 ")[2].partition("### 2.3")[0], re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", fields)) for name, fields in rows} == {
        name: {*required, *optional} for name, (required, optional, _) in schema.COMMANDS.items()
    }


def test_the_code_accepts_what_a_schema_accepts() -> None:
    rng = random.Random(1)
    for _ in range(1_000):
        value = malformed._fields(rng)
        assert is_accepted(value), value
        errors = list(COMMANDS[str(value["command"])].iter_errors(value))
        assert not errors, (value, errors)


def test_the_code_refuses_what_a_schema_refuses() -> None:
    rng = random.Random(2)
    seen = set()
    for _ in range(3_000):
        value = malformed._fields(rng)
        name = rng.choice([name for name in value if name in malformed.WRONG and name != "command"])
        value[name] = rng.choice(malformed.WRONG[name])
        if is_accepted(value) or not json.dumps(value, ensure_ascii=False).isascii():
            continue
        # A schema does not describe which characters a topic may have, nor the members of a filter.
        if name in ("topic", "filter") and isinstance(value[name], str | list | dict):
            continue
        if isinstance(number := value[name], float) and number.is_integer():
            continue  # for JSON Schema, 1.0 is an integer
        seen.add((value["command"], name))
        assert not COMMANDS[str(value["command"])].is_valid(value), value
    assert len(seen) >= 25


@pytest.mark.usefixtures("transport", "logged")
@pytest.mark.above_sockets
@pytest.mark.over_tcp
@pytest.mark.asyncio(loop_scope="module")
async def test_a_real_endpoint_says_what_the_descriptions_say(shared: Running, name: str) -> None:
    client = {"client_id": name}
    asks: list[dict[str, Any]] = [
        {"command": "subscribe", "topic": ["a", name], "until": "disconnect", "ttl_s": 60},
        {"command": "subscribe", "topic": name, "filter": {"a": [1]}},
        {"command": "listen", "bounds": [{"prefix": "", "interval_ms": 10}], "window": 5},
        {"command": "bounds", "bounds": "wall"},
        {"command": "publish", "topic": name, "payload": {"a": 1}, "ack": True, "mid": True},
        {"command": "publish", "topic": name, "payload": {"a": 1}, "ack": True, "id": "again"},
        {"command": "broadcast", "payload": [name], "ack": True},
        {"command": "subscriptions", "limit": 10},
        {"command": "subscribers", "topic": name},
        {"command": "location"},
        {"command": "endpoints"},
        {"command": "history", "topic": name, "last": 1},
        {"command": "revoke", "jti": "t"},
        {"command": "unsubscribe", "topic": [name]},
        {"command": "unlisten"},
    ]
    notification, error = of_message("notification"), of_message("error")
    async with plain(shared.url) as connection, talk(shared.url) as backend:
        for number, ask in enumerate(asks):
            command = {**client, "id": number, **ask}
            COMMANDS[command["command"]].validate(command)
            reply = await connection.ask(command)
            while "key" in reply:
                notification.validate(reply)
                reply = await connection.hear()
            (error if "error" in reply else of_message(f"{command['command']}-success")).validate(reply)
        for path, route in ROUTES.items():
            if route.command == EVENTS:
                continue
            if route.methods == ("POST",):
                item = {**client, "topic": name, "payload": 1}
                if route.command == "broadcast":
                    del item["topic"]
                part = OPEN["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
                for body in (item, [item, item]):
                    validator(OPEN, part).validate(body)
                    answer = await backend.post(path, body)
                    responses = OPEN["paths"][path]["post"]["responses"]
                    said = responses[str(answer.status)]["content"]["application/json"]["schema"]
                    validator(OPEN, said).validate(answer.json)
            else:
                topic = "&topic=a" if "topic" in route.names else ""
                answer = await backend.get(f"{path}?client_id={name}{topic}")
                responses = OPEN["paths"][path]["get"]["responses"]
                said = responses[str(answer.status)]["content"]["application/json"]["schema"]
                validator(OPEN, said).validate(answer.json)
    for document, make in description.DOCUMENTS.items():
        async with talk(shared.url) as page:
            answer = await page.get(f"/{document}")
            assert answer.json == make()

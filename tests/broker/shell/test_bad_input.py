"""Bad commands get the error the protocol names, change nothing, and the connection stays usable. SPEC sections 2-5."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from ingeborg.broker.core.limits import Limits
from ingeborg.protocol.errors import ERRORS

from ..running import Running, plain, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
]

SUCCESS = {"result": "success"}


def command(name: str, /, **fields: Any) -> bytes:
    return orjson.dumps({"command": name, "client_id": "c", **fields})


def spelled(text: str) -> str:
    """Return a publish whose payload has this spelling."""
    return f'{{"command":"publish","client_id":"c","topic":"t","payload":{text}}}'


TOPICS = command("subscribe", topic="t").replace(b'"t"', b"%b")

# Frame, error code, and a part of the info.
BAD: dict[str, tuple[str | bytes, str, str]] = {
    # Not one JSON object
    "empty": ("", "bad_json", ""),
    "empty-binary": (b"", "bad_json", ""),
    "text": ("listen", "bad_json", ""),
    "half-object": ('{"command":"listen","client_id":1', "bad_json", ""),
    "two-objects": ('{"command":"listen","client_id":1}{}', "bad_json", ""),
    "trailing-comma": ('{"command":"listen","client_id":1,}', "bad_json", ""),
    "comment": ('{"command":"listen","client_id":1}//', "bad_json", ""),
    "single-quotes": ("{'command':'listen','client_id':1}", "bad_json", ""),
    "array": ('[{"command":"listen","client_id":1}]', "bad_json", "object"),
    "number": ("1", "bad_json", "object"),
    "string": ('"listen"', "bad_json", "object"),
    "null": ("null", "bad_json", "object"),
    "binary-garbage": (bytes(range(256)), "bad_json", ""),
    "binary-not-utf8": (TOPICS % b'"\xff"', "bad_json", ""),
    "binary-utf16": ('{"command":"listen","client_id":1}'.encode("utf-16"), "bad_json", ""),
    "byte-order-mark": ('\ufeff{"command":"listen","client_id":1}', "bad_json", ""),
    "nan": (spelled("NaN"), "bad_json", ""),
    "infinity": (spelled("[-Infinity]"), "bad_json", ""),
    "control-character": (spelled('"\t"'), "bad_json", ""),
    "lone-surrogate": (spelled(r'"\ud800"'), "bad_json", ""),
    "lone-surrogate-in-topic": (TOPICS % rb'"\udc00"', "bad_json", ""),
    "lone-surrogate-in-key": (spelled(r'{"\ud800":1}'), "bad_json", ""),
    "duplicate-key": ('{"command":"listen","client_id":1,"client_id":2}', "bad_json", '"client_id" is given twice'),
    "duplicate-key-within": (spelled('[{"a":1,"b":2,"a":1}]'), "bad_json", '"a" is given twice'),
    "integer-over": (spelled(str(2**64)), "bad_json", "64 bits"),
    "integer-under": (spelled(str(-(2**63) - 1)), "bad_json", "64 bits"),
    "integer-huge": (spelled("1" * 100_000), "bad_json", ""),
    "integer-long": (spelled("1" * 300), "bad_json", "64 bits"),
    "integer-huge-client": ('{"command":"listen","client_id":%s}' % ("9" * 30), "bad_json", "64 bits"),
    "deep-arrays": (spelled("[" * 300 + "]" * 300), "bad_json", "deep"),
    "deep-objects": (spelled('{"a":' * 300 + "1" + "}" * 300), "bad_json", "deep"),
    "very-deep": (spelled("[" * 100_000 + "]" * 100_000), "bad_json", ""),
    "very-deep-unclosed": ("[" * 500_000, "bad_json", ""),
    # The command and its fields
    "no-fields": ("{}", "bad_state", "Key 'command' not specified"),
    "no-command": ('{"client_id":1}', "bad_state", "Key 'command' not specified"),
    "command-number": ('{"command":7,"client_id":1}', "bad_state", "'command'"),
    "command-null": ('{"command":null,"client_id":1}', "bad_state", "'command'"),
    "command-unknown": (command("listne"), "bad_command", "'listne'"),
    "command-empty": (command(""), "bad_command", ""),
    "command-upper-case": (command("LISTEN"), "bad_command", ""),
    "command-long": (command("x" * 10_000), "bad_command", ""),
    "no-client": ('{"command":"listen"}', "bad_state", "Key 'client_id' not specified"),
    "client-null": (command("listen", client_id=None), "bad_state", "'client_id'"),
    "client-float": (command("listen", client_id=1.0), "bad_state", "'client_id'"),
    "client-bool": (command("listen", client_id=True), "bad_state", "'client_id'"),
    "client-list": (command("listen", client_id=["c"]), "bad_state", "'client_id'"),
    "client-empty": (command("listen", client_id=""), "bad_state", "1 to 128 bytes"),
    "client-long": (command("listen", client_id="c" * 129), "bad_state", "1 to 128 bytes"),
    "client-long-in-bytes": (command("listen", client_id="é" * 65), "bad_state", "1 to 128 bytes"),
    "id-float": (command("listen", id=1.5), "bad_state", "'id'"),
    "id-bool": (command("listen", id=False), "bad_state", "'id'"),
    "id-object": (command("listen", id={}), "bad_state", "'id'"),
    # Topics
    "no-topic": (command("subscribe"), "bad_state", "Key 'topic' not specified"),
    "no-topic-unsubscribe": (command("unsubscribe"), "bad_state", "Key 'topic' not specified"),
    "no-topic-publish": (command("publish", payload=1), "bad_state", "Key 'topic' not specified"),
    "topic-null": (command("subscribe", topic=None), "bad_state", "'topic'"),
    "topic-number": (command("subscribe", topic=1), "bad_state", "'topic'"),
    "topic-object": (command("subscribe", topic={"a": 1}), "bad_state", "'topic'"),
    "topic-list-publish": (command("publish", topic=["t"], payload=1), "bad_state", "'topic'"),
    "topics-number": (command("subscribe", topic=["new", 1]), "bad_state", "'topic'"),
    "topics-nested": (command("subscribe", topic=["new", ["t"]]), "bad_state", "'topic'"),
    "topic-empty": (command("subscribe", topic=""), "bad_topic", "empty"),
    "topic-empty-publish": (command("publish", topic="", payload=1), "bad_topic", "empty"),
    "topics-empty": (command("subscribe", topic=["new", ""]), "bad_topic", "empty"),
    "topic-long": (command("subscribe", topic="x" * 1025), "bad_topic", "1024 bytes"),
    "topic-long-in-bytes": (command("subscribe", topic="é" * 513), "bad_topic", "1024 bytes"),
    "topic-nul": (command("subscribe", topic="a\0b"), "bad_topic", "U+0000"),
    "topic-newline": (command("subscribe", topic="a\n"), "bad_topic", "U+000A"),
    "topic-delete": (command("publish", topic="\x7f", payload=1), "bad_topic", "U+007F"),
    "topic-c1": (command("subscribe", topic="a\x85b"), "bad_topic", "U+0085"),
    # Publishing
    "no-payload": (command("publish", topic="t"), "bad_state", "Key 'payload' not specified"),
    "no-payload-broadcast": (command("broadcast"), "bad_state", "Key 'payload' not specified"),
    "payload-large": (command("publish", topic="t", payload="x" * 2000), "too_large", "2002 bytes; the limit is 2000"),
    "payload-large-broadcast": (command("broadcast", payload="x" * 2000), "too_large", "the limit is 2000"),
    "ack-number": (command("publish", topic="t", payload=1, ack=1), "bad_state", "'ack'"),
    "ack-null": (command("broadcast", payload=1, ack=None), "bad_state", "'ack'"),
    "dedup-word": (command("publish", topic="t", payload=1, dedup="false"), "bad_state", "'dedup'"),
    "dedup-long": (command("broadcast", payload=1, dedup="x" * 129), "bad_state", "1 to 128 bytes"),
    "timestamp-text": (command("publish", topic="t", payload=1, timestamp="now"), "bad_state", "'timestamp'"),
    "timestamp-bool": (command("publish", topic="t", payload=1, timestamp=True), "bad_state", "'timestamp'"),
    # Paging
    "cursor-number": (command("subscriptions", cursor=1), "bad_state", "'cursor'"),
    "cursor-unknown": (command("subscriptions", cursor="x"), "bad_state", "'cursor'"),
    "limit-zero": (command("subscriptions", limit=0), "bad_state", "'limit'"),
    "limit-large": (command("subscriptions", limit=10_001), "bad_state", "'limit'"),
    "limit-float": (command("subscriptions", limit=1.0), "bad_state", "'limit'"),
    "limit-bool": (command("subscriptions", limit=True), "bad_state", "'limit'"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object
) -> AsyncIterator[Running]:
    """The usual endpoint, but with a limit on payloads that is easy to exceed."""
    async with running(tmp_path_factory.mktemp("store"), limits=Limits(payload_bytes=2000)) as endpoint:
        yield endpoint


@pytest.mark.parametrize(("frame", "code", "info"), BAD.values(), ids=BAD)
async def test_a_bad_command_gets_its_error_and_the_connection_stays_usable(
    shared: Running, frame: str | bytes, code: str, info: str
) -> None:
    async with plain(shared.url) as connection:
        reply = await connection.ask(frame)
        assert reply["error"] == code
        assert reply["message"] == ERRORS[code].message
        assert info in reply["info"]
        assert len(orjson.dumps(reply)) < 1000  # the reply does not repeat the command
        assert set(reply) <= {"error", "message", "info", "command"}
        assert await connection.ask(command("unlisten", id=1)) == {**SUCCESS, "id": 1}


async def test_nothing_else_changes(shared: Running) -> None:
    """Send all at once, among good commands of other clients: only the counted errors differ."""
    async with plain(shared.url) as connection, plain(shared.url) as witness:
        await witness.ask(command("listen", client_id="witness"))
        await witness.ask(command("subscribe", client_id="witness", topic=["t", "kept"]))
        before = await shared.metrics()
        for number, (frame, _, _) in enumerate(BAD.values()):
            await connection.send(frame, command("publish", topic="kept", payload=number, ack=True, id=number))
        for number, (_, code, _) in enumerate(BAD.values()):
            assert (await connection.hear())["error"] == code
            assert await connection.hear() == {**SUCCESS, "duplicate": False, "id": number}
        heard = [await witness.hear() for _ in BAD]
        assert heard == [{"key": "kept", "broadcast": number} for number in range(len(BAD))]
        page = await witness.ask(command("subscriptions", client_id="witness"))
        assert set(page["topic"]) == {"t", "kept"}
        assert (await witness.ask(command("subscriptions", client_id="c")))["topic"] == []
        after = await shared.metrics()
    changed = {series for series in after if after[series] != before.get(series, 0)}
    times = ("process_", "ingeborg_store_", "ingeborg_loop_lag_", "ingeborg_delivery_", "ingeborg_publish_seconds")
    changed -= {series for series in changed if series.startswith((*times, "ingeborg_errors_", "ingeborg_commands_"))}
    changed -= {series for series in changed if series.startswith("ingeborg_cache_requests_")}
    changed -= {"ingeborg_bounds_busy", "ingeborg_bounds_level"}  # the CPU time of the last half second, and its effect
    changed.discard("ingeborg_reader_starts_total")  # the idle reader may have ended meanwhile
    assert changed == {
        "ingeborg_publishes_received_total",
        'ingeborg_large_frames_total{result="read"}',
        "ingeborg_messages_delivered_total",
        "ingeborg_duplicate_keys",
        "ingeborg_routes",
        "ingeborg_routes_admitted_total",
    }
    assert after["ingeborg_publishes_received_total"] - before["ingeborg_publishes_received_total"] == len(BAD)
    for code in {code for _, code, _ in BAD.values()}:
        series = f'ingeborg_errors_total{{code="{code}"}}'
        expected = sum(1 for _, other, _ in BAD.values() if other == code)
        assert after[series] - before[series] == expected


@pytest.mark.parametrize("name", ["publish", "broadcast"])
async def test_the_error_of_a_publish_says_whose_it_is(shared: Running, name: str) -> None:
    async with plain(shared.url) as connection:
        reply = await connection.ask(command(name, topic="t", id="x"))
        assert (reply["error"], reply["command"], reply["id"]) == ("bad_state", name, "x")
        assert "command" not in await connection.ask(command("subscribe", id="x"))


@pytest.mark.parametrize(
    "frame",
    [
        command("subscribe", topic="x" * 1024),
        command("subscribe", topic="é" * 512),
        command("subscribe", topic="\U0001f600" * 256),
        command("subscribe", topic="\u00a0\u200b\u2028\ufffe\ufeff"),
        command("subscribe", topic=[]),
        command("subscribe", topic=["t"] * 5000),
        command("listen", client_id="c" * 128),
        command("listen", client_id=-(2**63)),
        command("listen", id=2**64 - 1, surplus={"fields": "do no harm"}),
        command("publish", topic="t", payload="x" * 1998, ack=True, timestamp=-1.5),
        spelled("[" * 200 + "]" * 200)[:-1] + ',"ack":true}',
        spelled('{"a":{"a":{"a":1}},"b":"\\"a\\":"}')[:-1] + ',"ack":true}',
        " \t\r\n" + spelled(r'"\ud83d\ude00\u0000"')[:-1] + ',"ack":true} ',
    ],
    ids=lambda frame: repr(frame)[:60],
)
async def test_what_is_just_within_the_rules_is_accepted(shared: Running, frame: str | bytes) -> None:
    async with plain(shared.url) as connection:
        assert (await connection.ask(frame)).get("result") == "success"


async def test_a_bad_topic_in_a_batch_leaves_the_batch_undone(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint, plain(endpoint.url) as connection:
        topics = [f"t{number}" for number in range(5000)]
        assert (await connection.ask(command("subscribe", topic=[*topics, "\0"])))["error"] == "bad_topic"
        assert (await connection.ask(command("subscriptions")))["topic"] == []
        assert (await endpoint.metrics())["ingeborg_subscriptions_changed_total"] == 0

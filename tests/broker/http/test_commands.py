"""Requests become frames, and replies become a status and a body."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.connections.large import Large
from ingeborg.broker.http.commands import (
    LIST_BYTES_MAX,
    LIST_MAX,
    ROUTES,
    Replies,
    batch_of,
    key_of,
    route_of,
    status_of,
)
from ingeborg.broker.http.parsing import BadRequest, HttpRequest
from ingeborg.protocol.errors import ERRORS, ProtocolError
from ingeborg.protocol.messages import failure, success

ANN = Grant("ann", ("",), ("",), True, 0.0)
GATEWAY = Grant("gw*", ("",), ("",), True, 0.0)


def request(
    path: str = "/publish", value: Any = None, method: str = "", keys: tuple[str, ...] = (), kind: str = ""
) -> HttpRequest:
    route = ROUTES.get(path.partition("?")[0])
    made = HttpRequest(method or (route.methods[0] if route else "GET"), path, "1.1", [])
    made.fields = [(b"Content-Type", (kind or "application/json").encode())]
    made.keys = list(keys)
    if value is not None:
        made.body += value if isinstance(value, bytes) else orjson.dumps(value)
        made.has_body = True
    return made


def frames(
    path: str, value: Any = None, grant: Grant | None = None, key: str | None = None
) -> list[dict[str, Any] | Any]:
    made = request(path, value)
    route = route_of(made)
    assert route is not None
    commands = batch_of(made, route, grant, key, LIST_BYTES_MAX).commands
    return [orjson.loads(command) if isinstance(command, bytes) else command for command in commands]


def why(path: str, value: Any = None, **options: Any) -> str:
    with pytest.raises(BadRequest) as error:
        frames(path, value, **options)
    assert error.value.status == 400
    return str(error.value)


def test_a_body_becomes_the_command_of_its_path() -> None:
    assert frames("/publish", {"client_id": 1, "topic": "a", "payload": [1.5, "ä"]}) == [
        {"client_id": 1, "topic": "a", "payload": [1.5, "ä"], "command": "publish", "ack": True, "mid": True}
    ]
    assert frames("/subscribe", {"client_id": "b", "topic": ["a", "b"], "ttl_s": 5}) == [
        {"client_id": "b", "topic": ["a", "b"], "ttl_s": 5, "command": "subscribe"}
    ]
    assert frames("/broadcast", {"payload": None, "mid": False, "command": "broadcast", "ack": True}) == [
        {"payload": None, "mid": False, "command": "broadcast", "ack": True}
    ]


def test_a_token_for_one_client_names_it() -> None:
    assert frames("/publish", {}, ANN)[0]["client_id"] == "ann"
    assert frames("/publish", {"client_id": "eve"}, ANN)[0]["client_id"] == "eve"  # which the core refuses
    assert "client_id" not in frames("/publish", {}, GATEWAY)[0]
    assert frames("/subscriptions", None, ANN) == [{"command": "subscriptions", "client_id": "ann"}]


def test_a_query_becomes_a_command() -> None:
    assert frames('/history?topic=a%2Fb+c&last=3&client_id=7&filter={"a":["x"]}&access_token=t') == [
        {"command": "history", "topic": "a/b c", "last": 3, "client_id": "7", "filter": {"a": ["x"]}}
    ]
    assert frames("/subscribers?topic=%C3%A4&limit=10&cursor=") == [
        {"command": "subscribers", "topic": "ä", "limit": 10, "cursor": ""}
    ]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/history?topic=a&topic=b", "too often"),
        ("/history?topc=a", "'topc'"),
        ("/history?last=-1", "'last' of the query has to be an integer"),
        ("/history?last=1e3", "'last' of the query has to be an integer"),
        ("/history?last=%C2%B2", "'last' of the query has to be an integer"),
        ("/history?topic=%ff", "UTF-8"),
        ("/history?filter={", "Not valid JSON"),
        ("/history?filter=[1,]", "Not valid JSON"),
        ("/history?" + "&".join(f"x{number}=1" for number in range(1_100)), "at most 1000 fields"),
        ("/publish?topic=a", "'topic'"),
    ],
)
def test_a_bad_query_is_refused(path: str, said: str) -> None:
    assert said in why(path, {} if path.startswith("/publish") else None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "Not valid JSON"),
        (b"{", "Not valid JSON"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b'[{"a": 1, "\\u0061": 2}]', "given twice"),
        (b'{"payload": 123456789012345678901}', "64 bits"),
        (b'{"payload": "\xff"}', "Not valid JSON"),
        ([], "1 to 1000 items"),
        ([{}] * (LIST_MAX + 1), "1 to 1000 items"),
        ({"command": "broadcast"}, "'command' can only be 'publish'"),
        ([{}, {"ack": False}], "'ack' cannot be false"),
    ],
)
def test_a_bad_body_is_refused(value: Any, said: str) -> None:
    assert said in why("/publish", value)


def test_an_item_that_is_no_object_is_left_to_the_core() -> None:
    assert frames("/publish", [5, "x", None, [], {}])[:4] == [5, "x", None, []]
    assert frames("/publish", 5) == [5]


def test_a_payload_that_is_nested_too_deeply_fails_alone() -> None:
    deep = b"[" * 300 + b"]" * 300
    made = request("/publish", b'[{"client_id": 1, "topic": "a", "payload": %b}, {"client_id": 1}]' % deep)
    route = route_of(made)
    assert route is not None
    taken = batch_of(made, route, None, None, LIST_BYTES_MAX).frames(1 << 20, None)
    errors = [frame.outcome.error for frame in taken if isinstance(frame, Large) and frame.outcome is not None]
    assert [error.info for error in errors if error] == [
        "Nested too deeply: 250 levels are allowed",
        "Key 'topic' not specified",
    ]


def test_a_large_body_is_not_read() -> None:
    payload = "x" * LIST_BYTES_MAX
    [frame] = frames("/publish", {"topic": "a", "payload": payload}, ANN, "k")
    assert frame.pop("payload") == payload
    expected = {"command": "publish", "ack": True, "mid": True, "dedup": "k", "client_id": "ann", "topic": "a"}
    assert frame == expected
    [frame] = frames("/subscribe", b' \n{"client_id": "bob", "topic": "' + payload.encode() + b'"}', ANN)
    assert (frame["command"], frame["client_id"]) == ("subscribe", "bob")
    with pytest.raises(BadRequest, match="send several requests") as error:
        frames("/publish", [{"payload": payload}])
    assert error.value.status == 413


def test_only_json_is_accepted_and_only_by_its_method() -> None:
    assert route_of(request("/nothing")) is None
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
        with pytest.raises(BadRequest, match="application/json") as error:
            route_of(request(kind=kind or "none"))
        assert error.value.status == 415
    assert route_of(request(kind="Application/JSON; charset=utf-8")) is ROUTES["/publish"]
    wrong = {"/publish": ("GET", "HEAD", "PUT"), "/history": ("POST",), "/events": ("HEAD", "POST")}
    for path, method in ((path, method) for path, methods in wrong.items() for method in methods):
        with pytest.raises(BadRequest) as error:
            route_of(request(path, method=method))
        assert error.value.status == 405
        assert error.value.headers["Allow"] == ", ".join((*ROUTES[path].methods, "OPTIONS"))
    assert route_of(request("/history", method="HEAD")) is ROUTES["/history"]
    with pytest.raises(BadRequest, match="cannot have a body"):
        route_of(request("/history", {}))


def test_an_idempotency_key_is_the_key_of_each_item() -> None:
    publish = ROUTES["/publish"]
    assert key_of(request(), publish, 60.0) is None
    assert key_of(request(keys=("k" * 124,)), publish, 60.0) == "k" * 124
    assert frames("/publish", {}, key="k")[0]["dedup"] == "k"
    assert [frame["dedup"] for frame in frames("/publish", [{}, {}], key="k")] == ["k.0", "k.1"]
    assert "not both" in why("/publish", {"dedup": False}, key="k")
    for keys in (("k" * 125,), ("",), ("k", "k"), ("ä",), ("retry",)):
        with pytest.raises(BadRequest, match="1 to 124 ASCII"):
            key_of(request(keys=keys), publish, 60.0)
    with pytest.raises(BadRequest, match="dedup-ttl is 0"):
        key_of(request(keys=("k",)), publish, 0.0)
    with pytest.raises(BadRequest, match="/publish and /broadcast only"):
        key_of(request("/subscribe", keys=("k",)), ROUTES["/subscribe"], 60.0)


#: The table of SPEC 1.7.
STATUSES = {
    200: (),
    400: ("bad_json", "bad_command", "bad_state", "bad_topic", "bad_filter"),
    403: ("unauthorized", "forbidden"),
    409: ("conflict",),
    413: ("too_large",),
    422: ("too_many_topics",),
    500: ("partial", "internal"),
    503: ("store_unavailable", "peer_unavailable"),
}


def test_each_error_has_a_status() -> None:
    assert {code for codes in STATUSES.values() for code in codes} == set(ERRORS)
    for status, codes in STATUSES.items():
        for code in codes:
            assert status_of(failure(None, ProtocolError(code, "why"))) == status
    assert status_of(success(None)) == status_of(success("error", duplicate=True)) == 200


def test_the_status_of_a_list_is_that_of_its_replies() -> None:
    good, bad = success(None), failure(None, ProtocolError("conflict", "why"))

    def answer(replies: list[bytes], is_list: bool) -> tuple[int, bytes]:
        collected = Replies(is_list)
        collected.add(replies[:1])
        if replies[1:]:
            collected.add(replies[1:])
        return collected.answer()

    assert answer([good], False) == (200, good)
    assert answer([bad], False) == (409, bad)
    assert answer([good, good], True) == (200, b"[%b,%b]" % (good, good))
    assert answer([bad], True) == (409, b"[%b]" % bad)
    status, body = answer([good, bad, good], True)
    assert status == 207
    assert [next(iter(reply)) for reply in orjson.loads(body)] == ["result", "error", "result"]

"""Checking commands, and writing replies and notifications: the listings of the thesis, and every refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.errors import ERRORS, ProtocolError
from ingeborg.protocol.messages import Command, check, failure, is_text_of, notification, reply_fields, success
from ingeborg.protocol.wire import canonical, decode

PAYLOAD_MAX = 1 << 20
COMMANDS = ("listen", "unlisten", "subscribe", "unsubscribe", "publish", "broadcast", "subscriptions")

#: One good example of each command, with its required fields only.
GOOD: dict[str, dict[str, Any]] = {
    "listen": {},
    "unlisten": {},
    "subscribe": {"topic": "t"},
    "unsubscribe": {"topic": "t"},
    "publish": {"topic": "t", "payload": 1},
    "broadcast": {"payload": 1},
    "subscriptions": {},
}


def command(text: str | bytes) -> Command:
    """Decode and check a frame, as an endpoint does."""
    return check(decode(text.encode() if isinstance(text, str) else text), PAYLOAD_MAX)


def good(name: str, **fields: Any) -> dict[str, Any]:
    """Return a good command with the given fields replaced."""
    return {"command": name, "client_id": 1, **GOOD[name], **fields}


def refusal(value: dict[str, Any]) -> ProtocolError:
    with pytest.raises(ProtocolError) as raised:
        check(value, PAYLOAD_MAX)
    return raised.value


# The listings


def test_listing_4_1_register_with_the_endpoint() -> None:
    assert command('{\n  "command": "listen",\n  "client_id": 1\n}') == Command("listen", "1")


def test_listing_4_2_subscribe_to_the_topic_some_topic() -> None:
    got = command('{\n  "command": "subscribe",\n  "client_id": 1,\n  "topic": "Some topic"\n}')
    assert got == Command("subscribe", "1", topics=("Some topic",))


def test_listing_4_3_subscribe_to_several_topics_at_once() -> None:
    got = command('{\n  "command": "subscribe",\n  "client_id": 1,\n  "topic": ["Topic 1", "Topic 2", "Topic 3"]\n}')
    assert got == Command("subscribe", "1", topics=["Topic 1", "Topic 2", "Topic 3"])


def test_listing_4_4_publish_information_to_a_topic() -> None:
    got = command(
        '{\n  "command": "publish",\n  "client_id": 1,\n  "topic": "Some topic",\n  "payload": "Payload data",\n'
        '  "timestamp": 1431104020907\n}'
    )
    assert got == Command("publish", "1", topics=("Some topic",), payload=b'"Payload data"')
    assert not got.ack
    assert got.dedup


def test_listing_4_5_the_previous_command_was_successful() -> None:
    assert json.loads(success(None)) == {"result": "success"}


def test_listing_4_6_the_previous_command_failed() -> None:
    value = decode(b'{"command": "subscribe", "client_id": 1}')
    reply = failure(None, refusal(value))
    assert json.loads(reply) == {"error": "bad_state", "message": "Error", "info": "Key 'topic' not specified"}


def test_listing_4_7_endpoint_broadcasts_notification() -> None:
    message = notification("Some topic", canonical("Payload data"))
    assert json.loads(message) == {"key": "Some topic", "broadcast": "Payload data"}


def test_a_broadcast_has_no_key() -> None:
    assert json.loads(notification("", b"[1]")) == {"key": None, "broadcast": [1]}


def test_the_misprints_of_the_listings_are_no_json() -> None:
    for printed in (
        '{\n  "command": "subscribe"\n  "client_id": 1,\n  "topic": "Some topic",\n}',
        '{\n  "command": "subscribe",\n  "client_id": 1,\n  "topic": "Some topic",\n}',
    ):
        with pytest.raises(ProtocolError, match="bad_json"):
            command(printed)


# Fields of every command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_good_examples_are_good(name: str) -> None:
    assert check(good(name), PAYLOAD_MAX).name == name
    assert check(good(name, unknown=[], colour="blue"), PAYLOAD_MAX) == check(good(name), PAYLOAD_MAX)


@pytest.mark.parametrize(("name", "field"), [(name, field) for name in COMMANDS for field in good(name)])
def test_a_missing_field_is_named(name: str, field: str) -> None:
    value = good(name)
    del value[field]
    error = refusal(value)
    assert (error.code, error.info) == ("bad_state", f"Key '{field}' not specified")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("command", [None, 1, True, [], {}, ["listen"]]),
        ("client_id", [None, 1.5, True, [], {}, "", "x" * 129, "é" * 65]),
        ("id", [1.5, True, [], {}]),
        ("topic", [None, 1, 1.5, True, {}, {"a": 1}]),
        ("timestamp", [None, "1431104020907", True, [], {}]),
        ("ack", [None, 0, 1, "true", [], {}]),
        ("dedup", [None, 0, 1, "false", "true", "retry", "", "x" * 129, "é" * 65, [], {}]),
        ("cursor", [0, 1.5, True, [], {}]),
        ("limit", [None, 0, -1, 10_001, 1.0, 2**64 - 1, True, "10", [], {}]),
    ],
)
def test_a_field_of_the_wrong_type_is_named(name: str, field: str, wrong: list[Any]) -> None:
    belongs = {
        "topic": ("subscribe", "unsubscribe", "publish"),
        "timestamp": ("publish",),
        "ack": ("publish", "broadcast"),
        "dedup": ("publish", "broadcast"),
        "cursor": ("subscriptions",),
        "limit": ("subscriptions",),
    }
    for item in wrong:
        value = good(name, **{field: item})
        if name in belongs.get(field, COMMANDS):
            error = refusal(value)
            assert error.code == "bad_state"
            assert f"Key '{field}'" in error.info
        else:
            assert check(value, PAYLOAD_MAX) == check(good(name), PAYLOAD_MAX)


@pytest.mark.parametrize("name", ["", "Listen", "listen ", "LISTEN", "register", "__class__", "x" * 100_000, "\x00"])
def test_an_unknown_command_is_named_and_the_known_ones_listed(name: str) -> None:
    error = refusal({"command": name, "client_id": 1})
    assert error.code == "bad_command"
    assert all(known in error.info for known in COMMANDS)
    assert len(error.info) < 500


@pytest.mark.parametrize("client", [7, "7"])
def test_a_number_and_its_text_are_one_client(client: str | int) -> None:
    assert check(good("listen", client_id=client), PAYLOAD_MAX).client == "7"


@pytest.mark.parametrize("client", [0, -1, 2**64 - 1, "a", " ", "x" * 128, "é" * 64, "🎵" * 32, "\x00\n"])
def test_client_ids_that_are_good(client: str | int) -> None:
    assert check(good("publish", client_id=client), PAYLOAD_MAX).client == str(client)


@pytest.mark.parametrize("number", [None, 0, -1, 2**64 - 1, "", "a", "x" * 1024, "é" * 512, "🎵" * 256])
def test_an_id_is_kept_as_it_is(number: Any) -> None:
    got = check(good("listen", id=number), PAYLOAD_MAX).id
    assert (got, type(got)) == (number, type(number))


# Topics


@pytest.mark.parametrize("name", ["subscribe", "unsubscribe", "publish"])
@pytest.mark.parametrize("topic", ["", "x" * 1025, "é" * 513, "a\x00", "a\nb", "\x7f", "\x85", "\t"])
def test_a_bad_topic_is_refused(name: str, topic: str) -> None:
    assert refusal(good(name, topic=topic)).code == "bad_topic"
    if name != "publish":
        assert refusal(good(name, topic=["good", topic, "good"])).code == "bad_topic"


@pytest.mark.parametrize("name", ["subscribe", "unsubscribe"])
def test_a_list_of_topics_may_be_empty_or_repeat_itself(name: str) -> None:
    assert list(check(good(name, topic=[]), PAYLOAD_MAX).topics) == []
    assert list(check(good(name, topic=["a", "a"]), PAYLOAD_MAX).topics) == ["a", "a"]


@pytest.mark.parametrize("item", [None, 1, True, {}, [], ["a"]])
def test_a_list_with_anything_but_strings_is_refused(item: Any) -> None:
    assert refusal(good("subscribe", topic=["a", item])).code == "bad_state"


def test_a_publish_has_one_topic() -> None:
    error = refusal(good("publish", topic=["a"]))
    assert (error.code, error.info) == ("bad_state", "Key 'topic' has to be a string")


# Payloads


@pytest.mark.parametrize("name", ["publish", "broadcast"])
def test_a_payload_may_be_any_value_null_too(name: str) -> None:
    payload: Any
    for payload in (None, False, 0, -0.5, "", [], {}, {"b": 1, "a": [None]}):
        assert check(good(name, payload=payload), PAYLOAD_MAX).payload == canonical(payload)


@pytest.mark.parametrize("name", ["publish", "broadcast"])
def test_a_payload_one_byte_over_the_limit_is_too_large(name: str) -> None:
    assert len(check(good(name, payload="x" * 98), 100).payload) == 100
    with pytest.raises(ProtocolError) as raised:
        check(good(name, payload="x" * 99), 100)
    assert raised.value.code == "too_large"
    assert "101" in raised.value.info


@pytest.mark.parametrize("name", ["publish", "broadcast"])
def test_a_payload_nested_too_deeply_is_bad_json(name: str) -> None:
    payload: Any = 1
    for _ in range(300):
        payload = [payload]
    assert refusal(good(name, payload=payload)).code == "bad_json"


def test_acknowledgement_and_deduplication_are_asked_for() -> None:
    got = check(good("publish", ack=True, dedup=False), PAYLOAD_MAX)
    assert (got.ack, got.dedup) == (True, False)
    got = check(good("broadcast", ack=True, dedup=False), PAYLOAD_MAX)
    assert (got.ack, got.dedup) == (True, False)


@pytest.mark.parametrize("own_key", ["k", "x" * 128, "é" * 64, " ", "\0", "True", "0"])
def test_a_message_may_have_a_key_of_its_own(own_key: str) -> None:
    for name in ("publish", "broadcast"):
        assert check(good(name, dedup=own_key), PAYLOAD_MAX).dedup == own_key


def test_a_page_of_subscriptions_is_asked_for() -> None:
    assert check(good("subscriptions"), PAYLOAD_MAX)[7:9] == (None, 1_000)
    assert check(good("subscriptions", cursor=None, limit=1), PAYLOAD_MAX)[7:9] == (None, 1)
    assert check(good("subscriptions", cursor="c", limit=10_000), PAYLOAD_MAX)[7:9] == ("c", 10_000)


# Replies


def test_a_reply_echoes_the_id_that_was_given() -> None:
    assert json.loads(success(7)) == {"result": "success", "id": 7}
    assert json.loads(success("7", duplicate=True)) == {"result": "success", "duplicate": True, "id": "7"}
    assert json.loads(success(0)) == {"result": "success", "id": 0}
    assert json.loads(success("")) == {"result": "success", "id": ""}
    assert json.loads(success(None, topic=["a"], cursor=None)) == {"result": "success", "topic": ["a"], "cursor": None}


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_reply_has_the_tables_message(code: str) -> None:
    error = ProtocolError(code, "why", delivered=["a"], failed=["b"])
    assert json.loads(failure("7", error, "publish")) == {
        "error": code,
        "message": ERRORS[code].message,
        "info": "why",
        "delivered": ["a"],
        "failed": ["b"],
        "command": "publish",
        "id": "7",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, (None, None)),
        ({"id": 3, "command": "listen"}, (3, None)),
        ({"id": "3", "command": "publish"}, ("3", "publish")),
        ({"id": True, "command": "broadcast"}, (None, "broadcast")),
        ({"id": 1.5}, (None, None)),
        ({"id": ["x"], "command": ["publish"]}, (None, None)),
    ],
)
def test_what_the_reply_to_a_bad_command_echoes(value: dict[str, Any], expected: tuple[Any, Any]) -> None:
    assert reply_fields(value) == expected


# Any input

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "id"]), inner, max_size=3),
    max_leaves=6,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "command": st.sampled_from(COMMANDS) | json_values,
        "client_id": st.sampled_from([1, "c"]) | json_values,
        "id": json_values,
        "topic": st.sampled_from(["t", ["t", "u"]]) | json_values,
        "payload": json_values,
        "timestamp": st.just(1) | json_values,
        "ack": st.booleans() | json_values,
        "dedup": st.booleans() | json_values,
        "cursor": json_values,
        "limit": st.just(5) | json_values,
    },
)


@given(fields)
def test_any_object_is_a_command_or_is_refused_with_a_reply_that_can_be_sent(value: dict[str, Any]) -> None:
    got: Command | ProtocolError
    try:
        got = check(value, PAYLOAD_MAX)
    except ProtocolError as error:
        got = error
    if isinstance(got, ProtocolError):
        assert got.code in ERRORS
        number, name = reply_fields(value)
        reply = json.loads(failure(number, got, name))
        assert reply["error"] == got.code
        assert reply.get("id") == number
    else:
        assert got.name == value["command"]
        assert got.client == str(value["client_id"])
        assert all(type(topic) is str and topic for topic in got.topics)
        if got.name in ("publish", "broadcast"):
            assert got.payload == canonical(value["payload"])


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=30), json_values)
def test_a_notification_says_what_was_published(topic: str, payload: Any) -> None:
    got = check(good("publish", topic=topic, payload=payload), PAYLOAD_MAX)
    assert decode(notification(got.topics[0], got.payload)) == {"key": topic, "broadcast": payload}


@pytest.mark.parametrize(
    ("fields", "term"),
    [
        ({}, None),
        ({"until": "disconnect"}, (True, 0)),
        ({"ttl_s": 1}, (False, 1)),
        ({"until": "disconnect", "ttl_s": 2_592_000}, (True, 2_592_000)),
    ],
)
def test_a_subscription_may_say_when_it_ends(fields: dict[str, Any], term: tuple[bool, int] | None) -> None:
    assert check(good("subscribe", **fields), PAYLOAD_MAX).term == term


@pytest.mark.parametrize("last", [{}, {"last": 3}])
@pytest.mark.parametrize("replace", [{}, {"replace": False}, {"replace": True}])
@pytest.mark.parametrize("ends", [{}, {"until": "disconnect", "ttl_s": 7}])
@pytest.mark.parametrize("filtered", [{}, {"filter": {"a": [1]}}])
def test_it_may_have_all_of_it(
    last: dict[str, Any], replace: dict[str, Any], ends: dict[str, Any], filtered: dict[str, Any]
) -> None:
    got = check(good("subscribe", **last, **replace, **ends, **filtered), PAYLOAD_MAX)
    assert got == Command(
        *("subscribe", got.client, got.id, got.topics),
        last=last.get("last", 0),
        replace=replace.get("replace", False),
        term=(True, 7) if ends else None,
        filter='{"a":[1]}' if filtered else None,
    )


def test_replace_is_true_or_false() -> None:
    with pytest.raises(ProtocolError, match="'replace'"):
        check(good("subscribe", replace=1), PAYLOAD_MAX)


@pytest.mark.parametrize(
    "fields",
    [
        *({"until": until} for until in (None, True, "", "never", "Disconnect", 7, ["disconnect"])),
        *({"ttl_s": ttl_s} for ttl_s in (None, 0, -1, 1.5, 2_592_001, "7", True, [1])),
        {"until": "disconnect", "ttl_s": 0},
        {"until": "x", "ttl_s": 7},
    ],
)
def test_and_not_in_other_words(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as refused:
        check(good("subscribe", **fields), PAYLOAD_MAX)
    assert refused.value.code == "bad_state"
    assert next(iter(fields)) in refused.value.info or "ttl_s" in refused.value.info


def test_who_takes_back_says_nothing_of_the_end() -> None:
    assert check(good("unsubscribe", until="disconnect", ttl_s=-1), PAYLOAD_MAX).term is None


# Revocations


def test_a_token_is_revoked_by_its_id_or_its_subject_until_a_time() -> None:
    by_id = check({"command": "revoke", "client_id": "ops", "jti": "é" * 64, "expires_at": 5}, PAYLOAD_MAX)
    assert by_id.revoked == ("é" * 64, None, 5.0)
    by_subject = check({"command": "revoke", "client_id": "ops", "sub": "x" * 128 + "*", "jti": None}, PAYLOAD_MAX)
    assert by_subject.revoked == (None, "x" * 128 + "*", None)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "Either key 'jti' or key 'sub'"),
        ({"jti": "t", "sub": "ann"}, "not both"),
        ({"jti": 7}, "'jti' has to be a string"),
        ({"jti": ""}, "'jti' has to be a string"),
        ({"jti": "é" * 65}, "1 to 128 bytes"),
        ({"sub": ["ann"]}, "'sub' has to be a string"),
        ({"sub": "x" * 130}, "1 to 129 bytes"),
        ({"jti": "t", "expires_at": "tomorrow"}, "'expires_at'"),
        ({"jti": "t", "expires_at": True}, "'expires_at'"),
        ({"jti": "t", "expires_at": -1}, "'expires_at'"),
        ({"jti": "t", "expires_at": 253_402_300_800}, "'expires_at'"),
    ],
)
def test_what_revokes_nothing_is_refused(fields: dict[str, Any], word: str) -> None:
    refused = refusal({"command": "revoke", "client_id": "ops", **fields})
    assert (refused.code, word in refused.info) == ("bad_state", True)


def test_an_id_that_nobody_could_write_names_no_token() -> None:
    assert [is_text_of(text, 3) for text in ("", "é", "abc", "abcd", "éé", "\ud800", 7, None)] == [
        *(False, True, True, False, False),
        *(False, False, False),
    ]


def test_a_command_is_short_enough_for_pythons_free_lists() -> None:
    assert len(Command._fields) < 20

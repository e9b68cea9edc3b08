"""Messages survive their JSON, and bytes that are not a message cause an error with the reason."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.model import (
    NAME_CHARS_MAX,
    NUMBER_MAX,
    QUEUES_MAX,
    Beat,
    Bye,
    Flow,
    Held,
    Hello,
    Message,
    MessageError,
    Queue,
    Refused,
    Reign,
    Speeds,
    Start,
    Started,
    Stop,
    Stopped,
    Welcome,
    decode,
    encode,
)

LETTERS = st.characters(exclude_categories=["Cs"])  # JSON has no lone surrogates
NAMES = st.text(LETTERS, min_size=1, max_size=12)
WHOLE = st.integers(0, NUMBER_MAX)
POSITIVE = st.integers(1, NUMBER_MAX)
RATES = st.floats(0.0, allow_nan=False, allow_infinity=False)
QUEUE = st.builds(Queue, NAMES, WHOLE)
QUEUES = st.lists(QUEUE, max_size=4).map(tuple)
HELD = st.builds(Held, QUEUE, WHOLE, st.integers(-1, NUMBER_MAX), RATES, st.text(LETTERS, max_size=12))
FLOW = st.builds(Flow, QUEUE, RATES, RATES)
#: (part, parts)
PARTS = st.integers(1, 5).flatmap(lambda parts: st.tuples(st.integers(0, parts - 1), st.just(parts)))


def _beat(words: tuple[str, str], number: int, term: int, part: tuple[int, int], rate: float, held: Any) -> Beat:
    return Beat(*words, number, term, *part, rate, tuple(held), "f00d")


def _speeds(name: str, serial: int, part: tuple[int, int], window_s: float, flows: Any, missing: Any) -> Speeds:
    return Speeds(name, serial, *part, window_s, tuple(flows), tuple(missing))


MESSAGES: dict[type[Message], st.SearchStrategy[Message]] = {
    Hello: st.builds(Hello, NAMES, NAMES, RATES),
    Beat: st.builds(_beat, st.tuples(NAMES, NAMES), POSITIVE, WHOLE, PARTS, RATES, st.lists(HELD, max_size=4)),
    Started: st.builds(Started, NAMES, WHOLE, WHOLE, WHOLE, QUEUES),
    Stopped: st.builds(Stopped, NAMES, WHOLE, WHOLE, QUEUES),
    Refused: st.builds(Refused, NAMES, WHOLE, WHOLE, WHOLE, WHOLE, QUEUES),
    Bye: st.builds(Bye, NAMES, NAMES, WHOLE),
    Reign: st.builds(Reign, NAMES, WHOLE),
    Welcome: st.builds(Welcome, NAMES, NAMES, POSITIVE, WHOLE),
    Start: st.builds(Start, NAMES, WHOLE, WHOLE, QUEUES),
    Stop: st.builds(Stop, NAMES, WHOLE, QUEUES),
    Speeds: st.builds(_speeds, NAMES, WHOLE, PARTS, RATES, st.lists(FLOW, max_size=4), st.lists(NAMES, max_size=3)),
}

A = Queue("orders", 0)
#: A valid message of each kind.
EXAMPLES: list[Message] = [
    Hello("m", "n", 5.0, "f00d"),
    Beat("m", "n", 1, 7, 0, 1, 0.0, (Held(A, 7_000_001, -1, 1.5, "no such topic"),), "f00d"),
    Started("m", 0, 7, 7_000_001, (A,)),
    Stopped("m", 1, 7, (A,)),
    Refused("m", 1, 7, 7_000_001, 8_000_001, (A,)),
    Bye("m", "n", 0),
    Reign("c", 0),
    Welcome("m", "n", 1, 7),
    Start("m", 7, 7_000_001, (A,)),
    Stop("m", 7, (A,)),
    Speeds("mon", 3, 0, 1, 30.0, (Flow(A, 1.0, 2.0),), ("users",), "f00d"),
]
BY_KIND = {type(message).__name__.lower(): message for message in EXAMPLES}


@given(st.one_of(list(MESSAGES.values())))
def test_every_message_survives(message: Message) -> None:
    data = encode(message)
    assert b"\n" not in data
    found = decode(data)
    assert found == message
    assert type(found) is type(message)


def test_there_is_an_example_and_a_strategy_of_every_kind() -> None:
    kinds = set(Message.__args__)
    assert {type(message) for message in EXAMPLES} == kinds
    assert MESSAGES.keys() == kinds
    assert [decode(encode(message)) for message in EXAMPLES] == EXAMPLES


def test_as_it_stands_in_a_topic() -> None:
    data = encode(Start("m1", 7, 7_000_001, (A, Queue("users", 3))))
    queues = b'[["orders",0],["users",3]]'
    assert data == b'{"kind":"start","name":"m1","term":7,"epoch":7000001,"queues":' + queues + b',"nonce":""}'


def test_a_queue_as_people_read_it() -> None:
    assert str(Queue("orders", 12)) == "orders/12"


@pytest.mark.parametrize("message", EXAMPLES, ids=BY_KIND)
def test_fields_that_this_version_does_not_know_are_passed_over(message: Message) -> None:
    more = orjson.loads(encode(message)) | {"colour": ["blue"], "zone": None}
    assert decode(orjson.dumps(more)) == message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "not JSON: "),
        (b"", "not JSON: "),
        (b"{", "not JSON: "),
        (b"\xff\xfe", "not JSON: "),
        (b"[" * 5_000 + b"]" * 5_000, "not JSON: "),
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "kind is None, which this version does not know"),
        (b'{"kind":"hallo"}', "kind is 'hallo', which this version does not know"),
        (b'{"kind":7}', "kind is 7, which this version does not know"),
        (b'{"kind":["hello"]}', "kind is ['hello'], which this version does not know"),
        (b'{"kind":{}}', "kind is {}, which this version does not know"),
    ],
)
def test_what_is_no_message(data: bytes | None, words: str) -> None:
    with pytest.raises(MessageError) as caught:
        decode(data)
    assert str(caught.value).startswith(words)


def wrong(kind: str, **changes: Any) -> str:
    """Return the error for the valid example with these fields; ``...`` removes a field."""
    fields = orjson.loads(encode(BY_KIND[kind])) | changes
    data = orjson.dumps({key: value for key, value in fields.items() if value is not ...})
    with pytest.raises(MessageError) as caught:
        decode(data)
    return str(caught.value)


NO_WHOLE: list[Any] = [..., None, True, "1", 1.0, [], -2, NUMBER_MAX + 1]
NO_NUMBER: list[Any] = [..., None, False, "1.5", [], -0.5, -1]
NO_TEXT: list[Any] = [..., None, 1, [], ""]
NO_LIST: list[Any] = [..., None, "orders", {}, 7]
NO_QUEUE: list[Any] = [
    *(None, "orders/0", {}, [], ["orders"], ["orders", 0, 0], ["", 0], [0, "orders"]),
    *(["orders", "0"], ["orders", 0.0], ["orders", True], ["orders", -1], ["orders", NUMBER_MAX + 1], ["orders", None]),
]

FIELDS = [(kind, key) for kind, message in BY_KIND.items() for key in message._fields]
WHOLES = ("number", "term", "epoch", "newer", "serial", "part", "parts")
NUMBERS = ("capacity", "window_s")
TEXTS = ("name", "nonce", "controller", "monitor")
LISTS = ("held", "queues", "flows", "missing")
OPTIONAL = {("hello", "sink"), ("beat", "sink"), ("speeds", "topics"), ("start", "nonce"), ("stop", "nonce")}


def test_every_field_is_of_a_sort_that_is_tested() -> None:
    assert {key for _, key in FIELDS} == {*WHOLES, *NUMBERS, *TEXTS, *LISTS, "sink", "topics"}


@pytest.mark.parametrize(("kind", "key"), sorted(OPTIONAL))
def test_a_fingerprint_need_not_be_said(kind: str, key: str) -> None:
    found = orjson.loads(encode(BY_KIND[kind]))
    del found[key]
    assert decode(orjson.dumps(found)) == BY_KIND[kind]._replace(**{key: ""})  # type: ignore[arg-type]
    assert wrong(kind, **{key: 7}) == f"{key} is not a string of 0 to 253 characters"


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, key in FIELDS if key in WHOLES])
def test_a_wrong_whole_number_is_named(kind: str, key: str) -> None:
    for value in NO_WHOLE:
        assert wrong(kind, **{key: value}).startswith(f"{key} is not a whole number of at least "), value


@pytest.mark.parametrize(("kind", "key"), [("beat", "number"), ("welcome", "number"), ("beat", "parts")])
def test_some_begin_at_one(kind: str, key: str) -> None:
    assert wrong(kind, **{key: 0}) == f"{key} is not a whole number of at least 1"


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, key in FIELDS if key in NUMBERS])
def test_a_wrong_number_is_named(kind: str, key: str) -> None:
    for value in NO_NUMBER:
        assert wrong(kind, **{key: value}) == f"{key} is not a number of at least 0", value


def test_a_whole_number_is_a_number() -> None:
    found = decode(b'{"kind":"hello","name":"m","nonce":"n","capacity":5}')
    assert found == Hello("m", "n", 5.0)
    assert isinstance(found, Hello)
    assert isinstance(found.capacity, float)


@pytest.mark.parametrize(("kind", "key"), [each for each in FIELDS if each[1] in TEXTS and each not in OPTIONAL])
def test_a_wrong_text_is_named(kind: str, key: str) -> None:
    for value in [*NO_TEXT, "x" * (NAME_CHARS_MAX + 1)]:
        assert wrong(kind, **{key: value}) == f"{key} is not a string of 1 to {NAME_CHARS_MAX} characters", value


def test_a_name_may_be_as_long_as_one_of_a_pod() -> None:
    message = Reign("x" * NAME_CHARS_MAX, 1)
    assert decode(encode(message)) == message


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, key in FIELDS if key in LISTS])
def test_a_wrong_list_is_named(kind: str, key: str) -> None:
    good = list(getattr(BY_KIND[kind], key))[:1]
    for value in [*NO_LIST, good * (QUEUES_MAX + 1)]:
        shown = ... if value is ... else orjson.loads(orjson.dumps(value, default=tuple))
        assert wrong(kind, **{key: shown}) == f"{key} is not a list of at most {QUEUES_MAX:,} entries"


def test_a_list_may_be_as_long_as_that() -> None:
    message = Stop("m", 7, tuple(Queue("t", partition) for partition in range(QUEUES_MAX)))
    assert decode(encode(message)) == message


@pytest.mark.parametrize("value", NO_QUEUE, ids=repr)
def test_a_wrong_queue(value: Any) -> None:
    words = "a queue must be [topic, partition]"
    for kind in ("started", "stopped", "refused", "start", "stop"):
        assert wrong(kind, queues=[["orders", 1], value]) == words
    assert wrong("beat", held=[[value, 1, 0, 0.0, ""]]) == words
    assert wrong("speeds", flows=[[value, 1.0, 0.0]]) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a held queue must be [queue, epoch, next, bytes_per_s, problem]"),
        ({}, "a held queue must be [queue, epoch, next, bytes_per_s, problem]"),
        ([["t", 0], 1, 0, 0.0], "a held queue must be [queue, epoch, next, bytes_per_s, problem]"),
        ([["t", 0], 1, 0, 0.0, "", ""], "a held queue must be [queue, epoch, next, bytes_per_s, problem]"),
        ([["t", 0], -1, 0, 0.0, ""], "epoch is not a whole number of at least 0"),
        ([["t", 0], 1, -2, 0.0, ""], "next is not a whole number of at least -1"),
        ([["t", 0], 1, 0, -1.0, ""], "bytes_per_s is not a number of at least 0"),
        ([["t", 0], 1, 0, 0.0, None], "problem is not a string of 0 to 1000 characters"),
        ([["t", 0], 1, 0, 0.0, "x" * 1_001], "problem is not a string of 0 to 1000 characters"),
    ],
)
def test_a_wrong_holding(value: Any, words: str) -> None:
    assert wrong("beat", held=[value]) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "a flow must be [queue, bytes_per_s, stock]"),
        ([["t", 0], 1.0], "a flow must be [queue, bytes_per_s, stock]"),
        ([["t", 0], 1.0, 0.0, 0.0], "a flow must be [queue, bytes_per_s, stock]"),
        ([["t", 0], -1.0, 0.0], "bytes_per_s is not a number of at least 0"),
        ([["t", 0], 1.0, None], "stock is not a number of at least 0"),
    ],
)
def test_a_wrong_flow(value: Any, words: str) -> None:
    assert wrong("speeds", flows=[value]) == words


@pytest.mark.parametrize("value", [None, 1, "", ["t"]])
def test_a_wrong_topic(value: Any) -> None:
    assert wrong("speeds", missing=["users", value]) == "a topic must be a string"


@pytest.mark.parametrize("kind", ["beat", "speeds"])
@pytest.mark.parametrize(("part", "parts"), [(1, 1), (5, 3)])
def test_a_part_beyond_the_last(kind: str, part: int, parts: int) -> None:
    assert wrong(kind, part=part, parts=parts) == f"part is {part}, but parts is only {parts}"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(LETTERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(LETTERS, max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(EXAMPLES), st.data())
def test_whatever_a_field_is_it_is_read_or_refused(message: Message, data: st.DataObject) -> None:
    fields = orjson.loads(encode(message))
    for key in data.draw(st.sets(st.sampled_from(sorted(fields)), min_size=1, max_size=2)):
        fields[key] = data.draw(JSON)
    try:
        found = decode(orjson.dumps(fields))
    except MessageError:
        return
    assert decode(encode(found)) == found


@given(st.binary(max_size=60))
def test_whatever_bytes_come_there_is_no_other_error(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data)

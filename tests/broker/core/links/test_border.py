"""What comes over a link and has not the form of a request or an answer changes nothing, and is nobody's fault here."""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.cluster.slots import pack_slots
from ingeborg.broker.core.dedup.dedup import KEY_BYTES, key_of
from ingeborg.broker.core.links.border import REQUESTS, are_items, is_answer, is_refusal, is_request
from ingeborg.broker.core.links.calls import Kind
from ingeborg.protocol.hashes import SLOTS, slot_of

from ..talk import Cluster

KEY = key_of(slot_of("t"), "t", b"1").to_bytes(KEY_BYTES)

#: Of each kind, the arguments of requests that there are.
SOUND: dict[Kind, list[list[Any]]] = {
    Kind.PUBLISH: [["t", b"1", KEY, False], ["", b"1", b"", True]],
    Kind.CHANGE: [["anna", ["t", "u"], True], ["anna", [], False]],
    Kind.DELIVER: [
        ["o", 1, "t", b"1", ["anna"], False],
        ["o", 1, "t", b"1", None, True],
        ["o", 1, "t", b"1", None, "t\0ff"],
    ],
    Kind.BROADCAST: [["o", 1, b"1"]],
    Kind.LISTEN: [[[["anna", 1, "o", True], ["bert", 2, "o", False]]], [[]]],
    Kind.JOIN: [[1]],
    Kind.LEAVE: [[]],
    Kind.SEEN: [[[[KEY, 1.5], [KEY, 0], [KEY, "o"]]], [[]]],
    Kind.FIGURES: [[]],
    Kind.PREPARE: [[]],
    Kind.COPY_BEGINS: [[1, pack_slots([0, SLOTS - 1])], [1, b""]],
    Kind.COPY: [[1, "seen", b"1"]],
    Kind.COPIED: [[1, 7, False], [1, 0, True]],
    Kind.REVOKED: [[[["jti", "t-1", 0, 1_800_000_000], ["sub", "gw-*", 1_700_000_000, 1_800_000_000]]], [[]]],
    Kind.MARK: [[3, 7, ["line"], ["anna"], 2], [0, 0, [], [], 1], [7, 7, ["a", "b"], None, 3]],
    Kind.MISSED: [
        ["anna", -2, None, {}],
        ["anna", 7, ["t", "u"], {"latest": 1}],
        ["anna", 0, [], {"name": ["o", 1], "limit": 100, "of later": None}],
    ],
    Kind.FETCH: [[1]],
}

#: What a home says that a client has missed.
MISSED: list[Any] = [
    [0, [], [], [], b"", 0],
    [1, [["t", b"1", "o", 1, 7]], ["t"], [0, SLOTS - 1], pack_slots([0, SLOTS - 1]), 7],
    [-1, [["t", b"1", "o", 1, 7], ["u", b"2", "o", 2, 8]], [], [], b"", 8],
]

ANSWERS: dict[Kind, list[Any]] = {
    Kind.PUBLISH: [True, False],
    Kind.DELIVER: [[], ["anna"]],
    Kind.BROADCAST: [None, [], [["anna", 1.5], ["bert", 0]]],
    Kind.JOIN: [0, 7],
    Kind.PREPARE: [True, False],
    Kind.COPIED: [True, False],
    Kind.FIGURES: [{"clients": 1, "of": {"a": [1, None, "x", True, 1.5]}}],
    **{kind: [None] for kind in (Kind.CHANGE, Kind.LISTEN, Kind.LEAVE, Kind.SEEN, Kind.COPY_BEGINS, Kind.COPY)},
    Kind.REVOKED: [None],
    Kind.MARK: [None],
    Kind.MISSED: MISSED,
    Kind.FETCH: MISSED,
}

#: Anything that msgpack can say.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def packed(value: Any) -> Any:
    """As it comes over a link: tuples are lists, an enumeration's member is its number."""
    return ormsgpack.unpackb(ormsgpack.packb(value))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in it there is something."""
    inside = enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for index, one in inside for place in places(one, (*path, index)))]


def with_other(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """The same with something else in one place."""
    if not path:
        return other
    head, *rest = path
    return [with_other(one, tuple(rest), other) if index == head else one for index, one in enumerate(value)]


def test_every_kind_of_request_has_its_form() -> None:
    assert set(REQUESTS) == set(SOUND) == set(ANSWERS) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_what_there_is_is_let_in(kind: Kind) -> None:
    for arguments in SOUND[kind]:
        assert is_request(int(kind), packed(arguments))
    for value in ANSWERS[kind]:
        assert is_answer(kind, packed(value))


@pytest.mark.parametrize(
    "arguments",
    [
        ["anna", ["t", "u"], True, {"filter": "{}", "until": "disconnect", "ttl_s": 7, "replace": True}],
        ["anna", ["t"], True, {"until": "disconnect"}],
        ["anna", ["t"], True, {"replace": True}],
        ["anna", ["t"], False, {"filter": "{}"}],
        ["anna", ["t"], True, {}],
    ],
)
def test_a_change_may_have_options(arguments: list[Any]) -> None:
    assert is_request(int(Kind.CHANGE), packed(arguments))


@pytest.mark.parametrize("kind", Kind)
def test_an_argument_more_or_less_or_of_another_type_is_not(kind: Kind) -> None:
    for arguments in map(packed, SOUND[kind]):
        assert not is_request(int(kind), [*arguments, None])
        for index, argument in enumerate(arguments):
            assert not is_request(int(kind), arguments[:index])
            other = 1 if isinstance(argument, str | bytes | list | bool) or argument is None else "x"
            assert not is_request(int(kind), [*arguments[:index], other, *arguments[index + 1 :]])


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (0, []),
        (99, []),
        (True, ["t", b"1", KEY, False]),
        ("publish", ["t", b"1", KEY, False]),
        ([1], []),
        (Kind.PUBLISH, ["t", b"1", KEY[:-1], False]),
        (Kind.PUBLISH, ["t", b"1", SLOTS.to_bytes(2) + KEY[2:], False]),
        (Kind.SEEN, [[[b"", 1.0]]]),
        (Kind.SEEN, [[[SLOTS.to_bytes(2) + KEY[2:], 1.0]]]),
        (Kind.DELIVER, ["o", 1, "t", b"1", None, False]),
        (Kind.CHANGE, ["anna", ["t", 1], True]),
        (Kind.CHANGE, ["anna", ["t"], False, {"until": "disconnect"}]),
        (Kind.CHANGE, ["anna", ["t"], False, {"ttl_s": 7}]),
        (Kind.CHANGE, ["anna", ["t"], False, {"filter": "{}", "replace": True}]),
        (Kind.CHANGE, ["anna", ["t"], True, {"of later": [1]}]),
        (Kind.CHANGE, ["anna", ["t"], True, {"until": "doomsday"}]),
        (Kind.CHANGE, ["anna", ["t"], True, {"ttl_s": True}]),
        (Kind.CHANGE, ["anna", ["t"], True, {"ttl_s": -1}]),
        (Kind.CHANGE, ["anna", ["t"], True, {"filter": {"a": [1]}}]),
        (Kind.CHANGE, ["anna", ["t"], True, {"filter": "{}", "replace": 1}]),
        (Kind.DELIVER, ["o", 1, "t", b"1", ["anna"], b"t"]),
        (Kind.DELIVER, ["o", 1, "t", b"1", None, ""]),
        (Kind.CHANGE, ["anna", ["t"], True, {1: 2}]),
        (Kind.CHANGE, ["anna", ["t"], True, None]),
        (Kind.LISTEN, [[["anna", 1, "o"]]]),
        (Kind.COPY_BEGINS, [1, b"1"]),
        (Kind.COPY_BEGINS, [1, b"", {"at": "now"}]),
        (Kind.REVOKED, [[["kid", "k", 0, 1]]]),
        (Kind.REVOKED, [[["jti", "t", 0, 1.5]]]),
        (Kind.REVOKED, [[["jti", "t", 0]]]),
        (Kind.PUBLISH, ["t", b"1", KEY, False, {"keep_s": -1}]),
        (Kind.PUBLISH, ["t", b"1", KEY, False, {"keep_s": 1.5}]),
        (Kind.MARK, [8, 7, [], [], 1]),
        (Kind.MARK, [-2, 7, [], [], 1]),
        (Kind.MARK, [0, 7, [1], [], 1]),
        (Kind.MARK, [0, 7, [], [1], 1]),
        (Kind.MARK, [0, 7, [], []]),
        (Kind.MISSED, ["anna", 0, [1], {}]),
        (Kind.MISSED, ["anna", 0, None, None]),
        (Kind.MISSED, ["anna", 0, None, {"name": ["o"]}]),
        (Kind.MISSED, ["anna", 0, None, {"latest": -1}]),
        (Kind.MISSED, ["anna", 0, None, {"limit": "1"}]),
    ],
)
def test_other_things_that_are_none(kind: Any, arguments: list[Any]) -> None:
    assert not is_request(int(kind) if isinstance(kind, Kind) else kind, arguments)


@pytest.mark.parametrize("kind", [Kind.MISSED, Kind.FETCH])
def test_what_a_home_does_not_say_of_what_was_missed(kind: Kind) -> None:
    row: list[Any] = ["t", b"1", "o", 1, 7]
    answers: tuple[Any, ...] = (
        None,
        [0, [], [], [], b""],
        [0, [row[:-1]], [], [], b"", 0],
        *([0, [[*row[:index], None, *row[index + 1 :]]], [], [], b"", 0] for index in range(5)),
        [0, [], [1], [], b"", 0],
        [0, [], [], [SLOTS], b"", 0],
        [0, [], [], [-1], b"", 0],
        [0, [], [], [True], b"", 0],
        [0, [], [], [], b"1", 0],
        [0, [], [], [], b"", None],
    )
    for answer in answers:
        assert not is_answer(kind, answer)


@pytest.mark.parametrize("options", [{"at": 1.8e9}, {"at": 1.8e9, "standby": True}, {"of later": [1]}, {}])
def test_a_copy_may_say_when_it_began_and_what_it_is(options: dict[str, Any]) -> None:
    assert is_request(int(Kind.COPY_BEGINS), packed([1, b"", options]))


def test_what_a_batch_and_a_refusal_may_be() -> None:
    assert are_items([[1, 7], [-1, "", None], [2, 3, "x", "y", "z"]])
    none: list[Any] = [None, 1, {}, [[]], [[1]], [7], [["1", 7]], [[0, 7]], [[True, 7]], [[-1, ""]], [[-1, "", 1, 2]]]
    for items in none:
        assert not are_items(items)
    assert is_refusal("internal", "why")
    assert is_refusal("partial", ["why", {"failed": ["a"]}])
    for code, info in ((1, "why"), ("internal", None), ("internal", ["why"]), ("internal", ["why", {"x": b""}])):
        assert not is_refusal(code, info)


@given(st.sampled_from(["open", "batch", "done", "ping", 1, None]), st.lists(anything, max_size=4))
def test_whatever_a_frame_says_its_link_may_end_and_nothing_else(kind: Any, fields: list[Any]) -> None:
    cluster = Cluster("a", "b")
    node, peer = cluster.nodes["a"], cluster.nodes["b"].me.incarnation
    node.event(lambda now: node.router.link_frame(peer, ormsgpack.packb([kind, *fields]), now))
    cluster.world.run(8.0)
    assert cluster.client("anna", "a").say("listen #1") == ["ok 1"]


@given(st.data())
def test_whatever_a_peer_says_its_link_may_end_and_nothing_else(data: st.DataObject) -> None:
    """To a router: requests with something else in a place of theirs, answers, and anything at all."""
    cluster = Cluster("a", "b")
    node, peer = cluster.nodes["a"], cluster.nodes["b"].me.incarnation
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "a", topic)
    link = node.router.calls.links[peer]
    number = link._processed
    kind = data.draw(st.sampled_from(Kind))
    arguments = data.draw(st.sampled_from(SOUND[kind]))
    place = data.draw(st.sampled_from(places(arguments)))
    spoilt = with_other(arguments, place, data.draw(anything))
    items = [
        [9_000, int(kind), *(spoilt if isinstance(spoilt, list) else [spoilt])],
        [-data.draw(st.integers(1, node.router.calls._number + 1)), "", data.draw(anything)],
        data.draw(anything) if data.draw(st.booleans()) else [9_001, 9],
    ]
    node.event(lambda now: node.router.link_frame(peer, ormsgpack.packb(["batch", number + 1, 0, items]), now))
    cluster.world.run(8.0)
    assert anna.core is not None
    # Its own topics and connections are served as before.
    assert anna.say(f"publish {topic} 'x' #1")[-1:] == ["ok 1"]

"""Each kind of request has its record, each field its rule, and requests that break them change nothing here."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct

from ingeborg.broker.core.cluster.slots import pack_slots
from ingeborg.broker.core.links.calls import Asker, Call
from ingeborg.broker.core.links.frames import Answer, Batch, UsualAnswers, decoded, encoded, value_of
from ingeborg.broker.core.links.requests import (
    FIGURES_DEEP,
    AnyRequest,
    BroadcastRequest,
    Carried,
    ChangeRequest,
    DeliverRequest,
    DeliverToListRequest,
    FetchRequest,
    FiguresRequest,
    HistoryPage,
    HistoryRequest,
    JoinRequest,
    LeaveRequest,
    ListenRequest,
    PrepareRequest,
    PublishRequest,
    ReplicaBeginsRequest,
    ReplicaChunkRequest,
    ReplicaSentRequest,
    Request,
    RevokedRequest,
    SeenRequest,
    WatermarkRequest,
)
from ingeborg.protocol.hashes import HASH_BYTES, SLOTS

from ..talk import Cluster

HASHED = b"h" * HASH_BYTES
KEY = b"\0\7" + HASHED
BITS = pack_slots([0, SLOTS - 1])

#: A message.
CARRIED = Carried("t", b"1", "o", 1)
SENT = ["t", b"1", "o", 1]

#: Valid requests of each kind.
SOUND: dict[type[Request], list[Request]] = {
    PublishRequest: [
        PublishRequest(CARRIED, KEY),
        PublishRequest(Carried("", b"1", "o", 1), None, again=True),
        PublishRequest(CARRIED, KEY, again=True, keep_s=60),
    ],
    ChangeRequest: [
        ChangeRequest("anna", ["t", "u"], True),
        ChangeRequest("anna", [], False),
        ChangeRequest("anna", ["t"], True, "{}", until_disconnect=True, ttl_s=7, replace=True),
        ChangeRequest("anna", ["t"], False, "{}"),
    ],
    DeliverRequest: [DeliverRequest(CARRIED, ["anna"])],
    DeliverToListRequest: [
        DeliverToListRequest(CARRIED, "t", ["anna"]),
        DeliverToListRequest(CARRIED, "t\0ff", None),
    ],
    BroadcastRequest: [BroadcastRequest(Carried("", b"1", "o", 1))],
    ListenRequest: [ListenRequest([("anna", 1, "o", True), ("bert", 2, "o", False)]), ListenRequest([])],
    JoinRequest: [JoinRequest(1)],
    LeaveRequest: [LeaveRequest()],
    SeenRequest: [SeenRequest([(0, HASHED, 1.5), (SLOTS - 1, HASHED, 0), (7, HASHED, "o")]), SeenRequest([])],
    FiguresRequest: [FiguresRequest()],
    PrepareRequest: [PrepareRequest()],
    ReplicaBeginsRequest: [
        ReplicaBeginsRequest(1, BITS),
        ReplicaBeginsRequest(1, None),
        ReplicaBeginsRequest(1, BITS, 1.8e9, for_failover=True, fewer=True, lapsed=True, giver="o"),
    ],
    ReplicaChunkRequest: [ReplicaChunkRequest(1, "seen", b"1")],
    ReplicaSentRequest: [ReplicaSentRequest(1, 7, False), ReplicaSentRequest(1, 0, True)],
    RevokedRequest: [RevokedRequest([("jti", "t", 0, 1_800_000_000), ("sub", "gw-*", 1, 2)]), RevokedRequest([])],
    WatermarkRequest: [
        WatermarkRequest(3, 7, ["epoch"], ["anna"], 2),
        WatermarkRequest(-1, 0, [], None, 1),
        WatermarkRequest(7, 7, [], [], 1),
    ],
    HistoryRequest: [
        HistoryRequest("anna", -2, None),
        HistoryRequest("anna", 7, ["t", "u"], 1),
        HistoryRequest("anna", 0, [], name=("o", 1), limit=100),
    ],
    FetchRequest: [FetchRequest(1)],
}

PAGES = [
    HistoryPage(0, [], [], [], None, 0),
    HistoryPage(1, [("t", b"1", "o", 1, 7)], ["t"], [0, SLOTS - 1], BITS, 7),
    HistoryPage(-1, [("t", b"1", "o", 1, 7), ("u", b"2", "o", 2, 8)], [], [], None, 8),
]


def deep(levels: int) -> Any:
    """Return ``levels`` nested objects."""
    return {"x": deep(levels - 1)} if levels else 1


#: The answer to each kind of request that has one.
ANSWERS: dict[type[Request], list[Any]] = {
    PublishRequest: [True, False, "kept"],
    DeliverRequest: [[], ["anna"]],
    DeliverToListRequest: [[], ["anna"]],
    BroadcastRequest: [[], [("anna", 1.5), ("bert", 0)]],
    JoinRequest: [0, 7],
    FiguresRequest: [{"clients": 1, "of": {"a": [1, None, "x", True, 1.5]}}, deep(FIGURES_DEEP)],
    PrepareRequest: [True, False],
    ReplicaSentRequest: [True, False],
    HistoryRequest: PAGES,
    FetchRequest: PAGES,
}

#: Anything that msgpack can express.
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


def plain(said: object) -> Any:
    """Convert records and tuples to lists, as MessagePack does."""
    return ormsgpack.unpackb(encoded(said))


def received(*items: Any) -> list[Any] | None:
    """Return the decoded items of a batch."""
    frame = decoded(encoded(("batch", 1, 0, items)))
    assert isinstance(frame, Batch)
    return None if frame.items is None else [said for _, said in frame.items]


def fields_of(kind: type[Request]) -> int:
    """Count the required fields."""
    return len(kind.__struct_fields__) - len(kind.__struct_defaults__)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside ``value``."""
    inside = enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for index, one in inside for place in places(one, (*path, index)))]


def with_other(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return the value with another one at this path."""
    if not path:
        return other
    head, *rest = path
    return [with_other(one, tuple(rest), other) if index == head else one for index, one in enumerate(value)]


# Requests


def test_every_kind_has_a_tag_of_its_own_and_is_let_in() -> None:
    kinds = Request.__subclasses__()
    assert set(kinds) == set(SOUND) == set(get_args(AnyRequest))
    assert {kind.__struct_config__.tag for kind in kinds} == {*range(1, len(kinds) + 1)}


@pytest.mark.parametrize("kind", SOUND)
def test_a_request_comes_as_it_was_sent(kind: type[Request]) -> None:
    assert received(*enumerate(SOUND[kind], 1)) == SOUND[kind]


@pytest.mark.parametrize("kind", SOUND)
def test_fields_of_a_newer_version_are_passed_over_and_those_with_a_default_may_be_missing(
    kind: type[Request],
) -> None:
    for request in SOUND[kind]:
        tag, *fields = plain(request)
        assert received([1, [tag, *fields, "newer", {"as": "well"}]]) == [request]
    least = [tag, *fields[: fields_of(kind)]]
    assert received([1, least]) == [msgspec.convert(least, kind)]
    if len(least) > 1:
        assert received([1, least[:-1]]) == [None]


@pytest.mark.parametrize("kind", SOUND)
def test_a_field_of_another_type_is_declined(kind: type[Request]) -> None:
    for request in SOUND[kind]:
        said = plain(request)
        for index in range(1, len(said)):
            other = 1 if isinstance(said[index], str | bytes | list | bool) or said[index] is None else "x"
            assert received([1, [*said[:index], other, *said[index + 1 :]]]) == [None]


@pytest.mark.parametrize(
    "said",
    [
        [99],
        [True],
        ["publish", "t", b"1", None],
        [[1]],
        [],
        1,
        None,
        {"tag": 1},
        [1, SENT, KEY[:-1]],
        [1, SENT, KEY + b"h"],
        [1, SENT, b""],
        [1, SENT, None, False, -1],
        [1, SENT, None, False, 1.5],
        [1, SENT, None, False, 0, ["o"]],
        [1, SENT, None, False, 0, ["o", 1, 2]],
        [2, "anna", ["t", 1], True],
        [2, "anna", ["t"], False, None, True],
        [2, "anna", ["t"], False, None, False, 7],
        [2, "anna", ["t"], False, None, False, 0, True],
        [2, "anna", ["t"], True, None, False, -1],
        [2, "anna", ["t"], True, None, False, True],
        [2, "anna", ["t"], True, {"a": [1]}],
        [3, SENT, [None]],
        [6, [["anna", 1, "o"]]],
        [9, [[SLOTS, HASHED, 1.0]]],
        [9, [[-1, HASHED, 1.0]]],
        [9, [[0, b"", 1.0]]],
        [9, [[0, HASHED, None]]],
        [12, 1, b"1"],
        [12, 1, b""],
        [12, 1, None, "now"],
        [15, [["kid", "k", 0, 1]]],
        [15, [["jti\n", "k", 0, 1]]],
        [15, [["jti", "t", 0, 1.5]]],
        [15, [["jti", "t", 0]]],
        [16, 8, 7, [], [], 1],
        [16, -2, 7, [], [], 1],
        [16, -1, -1, [], [], 1],
        [16, 0, 7, [1], [], 1],
        [16, 0, 7, [], [1], 1],
        [17, "anna", 0, [1]],
        [17, "anna", 0, None, -1],
        [17, "anna", 0, None, 0, ["o"]],
        [17, "anna", 0, None, 0, None, -1],
    ],
)
def test_one_that_breaks_a_rule_is_declined_alone(said: Any) -> None:
    sound = LeaveRequest()
    assert received((1, sound), (2, said), (3, sound)) == [sound, None, sound]


def test_text_that_is_none_and_lists_without_an_end_are_declined() -> None:
    begin, sound = b"\x94\xa5batch\x01\x00\x92", encoded((1, LeaveRequest()))
    spoilt = encoded((2, PublishRequest(Carried("t!", b"", "o", 1), None))).replace(b"t!", b"\xff\xfe")
    frame = decoded(begin + sound + spoilt)
    assert isinstance(frame, Batch)
    assert frame.items == [(1, LeaveRequest()), (2, None)]
    with pytest.raises(ValueError, match="recursion"):
        decoded(begin + sound + b"\x92\x02" + b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize("items", [None, 1, {}, [[]], [[1]], [7], [["1", [8]]], [[0, [8]]], [[-1, [8]]], [[True, [8]]]])
def test_what_has_no_number_is_no_item_and_the_whole_batch_is_none(items: Any) -> None:
    frame = decoded(encoded(["batch", 1, 0, items]))
    assert isinstance(frame, Batch)
    assert frame.items is None
    if isinstance(items, list):
        assert received((1, LeaveRequest()), *items) is None


# Answers


def answered(request: Request, code: Any, value: Any) -> Any:
    """Return the decoded answer of the peer."""
    (answer,) = received((1, Answer(code, value))) or [None]
    assert isinstance(answer, Answer)
    return value_of(request, answer)


@pytest.mark.parametrize("kind", SOUND)
def test_an_answer_comes_as_it_was_given(kind: type[Request]) -> None:
    request = SOUND[kind][0]
    for value in ANSWERS.get(kind, [None]):
        assert answered(request, "", value) == ("", value)
    for value in (1, "x", b"x", [1], {"x": b"1"}, deep(FIGURES_DEEP + 1), None):
        if (value is None and kind not in ANSWERS) or (value == 1 and kind is JoinRequest):
            continue
        with pytest.raises(ValueError):  # noqa: PT011
            answered(request, "", value)


@pytest.mark.parametrize("value", [plain(PAGES[1])])
def test_what_a_home_does_not_say_of_what_was_missed(value: list[Any]) -> None:
    rows = [[[*row[:index], None, *row[index + 1 :]]] for row in value[1] for index in range(len(row))]
    spoilt = [[*value[:1], row, *value[2:]] for row in [*rows, [value[1][0][:-1]]]]
    spoilt += [[*value[:3], [slot], *value[4:]] for slot in (SLOTS, -1, True)]
    spoilt += [value[:-1], [*value[:4], b"1", value[5]], [*value[:2], [1], *value[3:]], [*value[:5], None]]
    for page in spoilt:
        with pytest.raises(ValueError):  # noqa: PT011
            answered(FetchRequest(1), "", page)


@pytest.mark.parametrize("kind", [kind for kind in SOUND if kind.usual is not UNSET])
def test_the_usual_answer_is_an_answer(kind: type[Request]) -> None:
    request = SOUND[kind][0]
    assert answered(request, "", kind.usual) == ("", kind.usual)


def test_a_malformed_record_of_usual_answers_is_a_malformed_answer() -> None:
    for said in ([100], [100, None], [100, [0]], [100, ["1"]]):
        (answer,) = received([1, said]) or [None]
        with pytest.raises(ValueError):  # noqa: PT011
            value_of(LeaveRequest(), answer)


def test_a_refusal_is_a_text_and_perhaps_more_fields_of_a_reply() -> None:
    request = LeaveRequest()
    assert answered(request, "internal", "why") == ("internal", "why")
    assert answered(request, "partial", ["why", {"failed": ["a"]}]) == ("partial", ("why", {"failed": ["a"]}))
    for code, info in ((1, "why"), ("internal", None), ("internal", ["why"]), ("internal", ["why", {"x": b""}])):
        with pytest.raises(ValueError):  # noqa: PT011
            answered(request, code, info)


@pytest.mark.parametrize("said", [[0], [0, ""], [0, None, None]])
def test_an_answer_without_the_form_of_one_is_one_that_says_nothing(said: list[Any]) -> None:
    (answer,) = received([1, said]) or [None]
    for kind, (request, *_) in SOUND.items():
        with pytest.raises(ValueError):  # noqa: PT011
            value_of(request, answer)
        assert kind in SOUND


# Anything that a peer can send


class Told(Asker):
    """Keeps the reasons for refusals of its requests."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def failed(self, call: Call, code: str, info: Any) -> None:
        self.told.append((code, info))


@given(st.binary(max_size=40) | anything.map(encoded) | st.lists(anything, max_size=4).map(encoded))
def test_whatever_comes_is_a_frame_or_is_refused(data: bytes) -> None:
    try:
        decoded(data)
    except ValueError:
        pass


@given(st.lists(st.tuples(st.integers(0, 3), anything) | anything, max_size=4), anything)
def test_whatever_items_come_each_is_a_record_or_none(items: list[Any], value: Any) -> None:
    for said in received((1, Answer("", value)), *items) or ():
        assert said is None or isinstance(said, Answer | UsualAnswers | Request)
        if isinstance(said, Answer):
            for kind in SOUND:
                try:
                    value_of(SOUND[kind][0], said)
                except ValueError:
                    pass


@given(st.sampled_from(["open", "batch", "done", "ping", 1, None]), st.lists(anything, max_size=4))
def test_whatever_a_frame_says_its_link_may_end_and_nothing_else(kind: Any, fields: list[Any]) -> None:
    cluster = Cluster("a", "b")
    node, peer = cluster.nodes["a"], cluster.nodes["b"].me.incarnation
    node.event(lambda now: node.router.link_frame(peer, encoded([kind, *fields]), now))
    cluster.world.run(8.0)
    assert cluster.client("anna", "a").say("listen #1") == ["ok 1"]


class Newer(Struct, array_like=True, tag=99):
    """A request that this version does not know."""


def test_one_that_is_none_is_declined_and_counted_and_the_link_stays() -> None:
    cluster = Cluster("a", "b")
    node, peer = cluster.nodes["a"], cluster.nodes["b"]
    link = node.router.calls.links[peer.me.incarnation]
    asker = Told()
    unknown: Any = Newer()
    peer.event(lambda now: peer.router._desk.ask(node.me.incarnation, unknown, asker))
    cluster.world.run(1.0)
    assert asker.told == [("internal", "the request is malformed")]
    assert node.router.counters.errors["link"] == 1
    assert node.router.calls.links[peer.me.incarnation] is link
    assert link.is_open


@given(st.data())
def test_whatever_a_peer_says_its_link_may_end_and_nothing_else(data: st.DataObject) -> None:
    """A router gets requests with one wrong value, answers, and arbitrary data."""
    cluster = Cluster("a", "b")
    node, peer = cluster.nodes["a"], cluster.nodes["b"].me.incarnation
    topic = cluster.topic_at("a")
    anna = cluster.listener("anna", "a", topic)
    link = node.router.calls.links[peer]
    number = link._processed
    tag, *fields = plain(data.draw(st.sampled_from([one for kind in SOUND.values() for one in kind])))
    place = data.draw(st.sampled_from(places(fields)))
    spoilt = with_other(fields, place, data.draw(anything))
    items = [
        [9_000, [tag, *(spoilt if isinstance(spoilt, list) else [spoilt])]],
        [data.draw(st.integers(1, node.router.calls._number + 1)), [0, "", data.draw(anything)]],
        data.draw(anything) if data.draw(st.booleans()) else [9_001, [10]],
    ]
    node.event(lambda now: node.router.link_frame(peer, encoded(["batch", number + 1, 0, items]), now))
    cluster.world.run(8.0)
    assert anna.core is not None
    # The router serves its own topics and connections as before.
    assert anna.say(f"publish {topic} 'x' #1")[-1:] == ["ok 1"]


def test_a_value_is_not_looked_at_before_its_request_is_known() -> None:
    (answer,) = received((1, Answer("", {"any": [1]}))) or [None]
    assert isinstance(answer.value, Raw)

"""Values and how they merge: a union or a maximum, in any order; and sizes that stay within their limits."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.model import HISTORIES
from ingeborg.broker.store.base import ENDED_MAX, Ended, Location, Settings, StoreMisconfigured
from ingeborg.broker.store.riak import layout
from ingeborg.broker.store.riak.layout import (
    RECENT_MS,
    VERSION,
    Buckets,
    Directory,
    Entry,
    Layout,
    ListObject,
    LocationObject,
    SetObject,
    partition_of,
    place_of,
    shard_of,
)
from ingeborg.broker.store.riak.objects import StoredObject
from ingeborg.broker.store.riak.partitions import TopicObject

S = TypeVar("S", bound=StoredObject)


NONE = Settings()
SETTINGS = st.builds(Settings, st.booleans(), st.sampled_from(HISTORIES))


def layout_of(*features: str, revision: int = 0, settings: Settings = NONE, parts: int = 1) -> bytes:
    """Return a layout object's value."""
    return ormsgpack.packb([VERSION, 4096, parts, features, revision, list(settings)])


NAMES = st.text(min_size=1, max_size=4)
ENTRIES = st.builds(
    lambda *fields: ormsgpack.packb([VERSION, *fields]),
    st.integers(1, 3),
    st.sampled_from("ab"),
    st.booleans(),
    st.sampled_from(["ws://a", "ws://b"]),
    st.integers(0, 3),
)
LAYOUTS = st.builds(
    lambda features, revision, settings: layout_of(*features, revision=revision, settings=settings),
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True),
    st.integers(0, 2),
    SETTINGS,
)
SETS = st.builds(
    lambda level, members: ormsgpack.packb([VERSION, "name", level, members]),
    st.integers(0, 3),
    st.lists(NAMES, max_size=4, unique=True),
)
NOW_MS = 1_800_000_000_000
TIMES = st.sampled_from([0, *range(NOW_MS - 3, NOW_MS)])
PLACES = st.builds(Location, st.integers(1, 3), st.sampled_from("ab"), st.booleans())
TIMES_ENDED = st.sampled_from([NOW_MS - RECENT_MS - 1, *range(NOW_MS - 3, NOW_MS)])
ENDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "f"]), TIMES_ENDED),
    max_size=3,
    unique_by=lambda end: end[:2],
)
LOCATION_OBJECTS = st.builds(
    lambda location, names, back, unnamed, unnamed_ms: ormsgpack.packb(
        [VERSION, location and list(location), names, back, unnamed, unnamed_ms]
    ),
    st.none() | PLACES,
    ENDS,
    ENDS,
    st.integers(0, 2),
    TIMES_ENDED,
)
LISTS = st.builds(
    lambda members, removed: ormsgpack.packb(
        [VERSION, "name", 0, members, {name: at for name, at in removed.items() if name not in members}]
    ),
    st.dictionaries(NAMES, TIMES, max_size=4),
    st.dictionaries(NAMES, TIMES, max_size=4),
)


def state(kind: Callable[[], StoredObject], values: Iterable[bytes]) -> dict[str, Any]:
    merged = kind()
    for value in values:
        merged.absorb(value)
    return {name: field for name, field in vars(merged).items() if name not in ("dirty", "_bytes")}


def list_now() -> ListObject:
    return ListObject(NOW_MS)


def location_object_now(after_ms: int = 0, kept_ms: int = RECENT_MS) -> LocationObject:
    return LocationObject(NOW_MS + after_ms, kept_ms)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Layout, LAYOUTS),
        (location_object_now, LOCATION_OBJECTS),
        (Entry, ENTRIES),
        (SetObject, SETS),
        (list_now, LISTS),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_versions_merge_to_the_same_in_any_order_and_any_number_of_times(
    kind: Callable[[], StoredObject], values: st.SearchStrategy[bytes]
) -> None:
    # An entry's url belongs to its registration: no two entries differ only in their url.
    @given(st.lists(values, max_size=3))
    def check(versions: list[bytes]) -> None:
        if kind is Entry:
            by_rank = {tuple(ormsgpack.unpackb(version)[i] for i in (1, 2, 3, 5)): version for version in versions}
            versions = list(by_rank.values())
        expected = state(kind, versions)
        for order in itertools.permutations(versions):
            assert state(kind, [*order, *order]) == expected

    check()


@given(st.text(max_size=20), st.sampled_from([1, 2, 16, 256]))
def test_a_partition_lies_within_the_slot_of_the_routing(topic: str, partitions_per_slot: int) -> None:
    slot, part = partition_of(topic, partitions_per_slot)
    assert slot == zlib.crc32(topic.encode()) & 4095
    assert 0 <= part < partitions_per_slot


@given(st.lists(st.text(max_size=8), min_size=2, max_size=20))
def test_the_objects_of_a_level_hold_their_members_in_the_order_of_the_pages(members: list[str]) -> None:
    ordered = sorted(members, key=place_of)
    for level in (1, 2, 3):
        shards = [shard_of(member, level) for member in ordered]
        assert shards == sorted(shards)
        assert all(0 <= shard < 16**level for shard in shards)


@given(st.text(max_size=20))
def test_topics_of_one_slot_share_an_object_of_each_level(topic: str) -> None:
    """A large subscribe comes in the order of slots: each part goes to few objects of the client's set."""
    slot, _ = partition_of(topic, 1)
    assert [shard_of(topic, level) for level in (3, 2, 1)] == [slot, slot >> 4, slot >> 8]


def test_the_registry_entry_of_any_name_is_not_the_directory() -> None:
    buckets = Buckets("ingeborg")
    assert buckets.endpoint("directory") != buckets.directory


def version(kind: Callable[[], S], *versions: bytes) -> S:
    merged = kind()
    for each in versions:
        merged.absorb(each)
    return merged


@given(st.lists(st.tuples(st.integers(0, 1), NAMES, st.booleans(), st.booleans()), max_size=30))
def test_of_a_client_s_list_the_latest_change_of_each_topic_is_true(steps: list[tuple[int, str, bool, bool]]) -> None:
    """Two homes write concurrently, each from what it last saw; sometimes one reads the current state, and merges."""
    empty = ListObject(NOW_MS)
    empty.belongs_to("ann")
    versions = [empty.encode(), empty.encode()]
    model: dict[str, bool] = {}
    for number, (writer, topic, adding, reading) in enumerate(steps):
        seen = versions if reading else versions[writer : writer + 1]
        state = version(partial(ListObject, NOW_MS + number), *seen)
        present = topic in state.members
        if adding:
            assert state.add(topic, 10_000)
        else:
            state.discard(topic)
        if adding or present:  # removing an absent topic records nothing
            model[topic] = adding
        versions[writer] = state.encode()
    merged = version(lambda: ListObject(NOW_MS + len(steps)), *versions)
    assert merged.members == {topic for topic, there in model.items() if there}


@pytest.mark.parametrize("kind", [SetObject, TopicObject, partial(ListObject, NOW_MS)], ids=["set", "topic", "list"])
def test_an_object_of_a_set_that_was_written_while_empty_is_no_other_set(kind: Callable[[], SetObject]) -> None:
    """A write with an unknown outcome is repeated with the state read then, perhaps empty, and can arrive later."""
    ann, bob = kind(), kind()
    ann.belongs_to("ann")
    bob.belongs_to("bob")
    for versions in itertools.permutations([ann.encode(), kind().encode()]):
        assert version(kind, *versions).name == "ann"
    with pytest.raises(ValueError, match="two sets"):
        version(kind, ann.encode(), bob.encode())


def test_changes_of_a_list_are_forgotten_after_a_while() -> None:
    state = ListObject(NOW_MS)
    for topic in ("rock", "jazz"):
        state.add(topic, 10_000)
    state.discard("rock")
    old = state.encode()
    later = version(lambda: ListObject(NOW_MS + RECENT_MS + 1), old)
    assert ormsgpack.unpackb(later.encode()) == [VERSION, "", 0, {"jazz": 0}, {}]
    # A version with the removal that turns up only now merges as in other sets: nothing gets lost.
    again = version(lambda: ListObject(NOW_MS + RECENT_MS + 1), old, ormsgpack.packb([VERSION, "", 0, {"rock": 0}, {}]))
    assert again.members == {"rock", "jazz"}


def test_what_has_left_a_list_takes_no_room_in_it() -> None:
    state = list_now()
    for number in range(20_000):
        topic = f"a topic of some length {number}"
        assert state.add(topic, layout.OBJECT_BYTES_MAX)
        state.discard(topic)
    assert len(ormsgpack.unpackb(state.encode())[4]) == layout.REMOVED_MAX
    again = version(list_now, state.encode())
    assert again.add("x" * 1_000, layout.OBJECT_BYTES_MAX)


def test_a_full_list_is_no_longer_than_an_object_may_be() -> None:
    state = list_now()
    number = 0
    while state.add(f"t{number}", layout.OBJECT_BYTES_MAX):
        number += 1
    assert 0.6 * layout.OBJECT_BYTES_MAX < len(state.encode()) <= layout.OBJECT_BYTES_MAX


def test_what_is_added_is_written_even_where_it_is_there_already() -> None:
    members = SetObject()
    assert members.add("ann", 10_000)
    members.dirty = False
    assert members.add("ann", 10_000)
    assert members.dirty


def test_a_new_layout_has_no_features_and_no_settings() -> None:
    state = Layout()
    state.partitions_per_slot.add(4)
    assert ormsgpack.unpackb(state.encode()) == [VERSION, 4096, 4, [], 0, [False, "off"]]
    again = version(Layout, state.encode())
    assert (again.partitions_per_slot, again.features, again.settings) == ({4}, frozenset(), None)


@given(st.lists(LAYOUTS, min_size=1, max_size=4))
def test_no_merge_loses_a_feature(values: list[bytes]) -> None:
    assert version(Layout, *values).features == {name for value in values for name in ormsgpack.unpackb(value)[3]}


@given(st.lists(st.tuples(st.integers(1, 3), SETTINGS), min_size=1, max_size=4))
def test_of_settings_the_greatest_revision_is_true_and_of_several_what_all_of_them_promise(
    records: list[tuple[int, Settings]],
) -> None:
    merged = version(Layout, *(layout_of(revision=revision, settings=settings) for revision, settings in records))
    latest = [settings for revision, settings in records if revision == max(records)[0]]
    replication = all(settings.replication for settings in latest)
    assert merged.settings == Settings(replication, HISTORIES[min(HISTORIES.index(one.history) for one in latest)])


def test_settings_are_changed_with_a_greater_revision_and_first_ones_once() -> None:
    one, other = Settings(replication=True, history="memory"), Settings(replication=False, history="store")
    state = version(Layout, layout_of("a", parts=4))
    state.record(one, is_first=True)
    assert state.dirty
    assert state.encode() == layout_of("a", revision=1, settings=one, parts=4)
    again = version(Layout, state.encode())
    again.record(other, is_first=True)
    assert (again.settings, again.dirty) == (one, False)
    again.record(other, is_first=False)
    assert (again.settings, again.revision, again.dirty) == (other, 2, True)
    # The greater revision replaces a version from a side of a network partition that has not seen it.
    assert version(Layout, again.encode(), state.encode()).settings == other


def test_a_layout_that_contradicts_itself_is_not_changed() -> None:
    state = version(Layout, layout_of(), layout_of(parts=2))
    with pytest.raises(StoreMisconfigured, match=r"contradictory versions .*\[1, 2\]"):
        state.record(Settings(), is_first=False)
    with pytest.raises(StoreMisconfigured, match="gone"):
        Layout().record(Settings(), is_first=True)


@pytest.mark.parametrize(
    ("features", "revision", "settings"),
    [
        *((features, 1, [True, "off"]) for features in ("later", 7, [7], None, {"later": 1})),
        *(([], revision, [True, "off"]) for revision in (True, "1", None)),
        *(([], 1, settings) for settings in (None, [], [True], [1, "off"], [True, "disk"], [True, "off", 1], "off")),
    ],
)
def test_what_is_no_layout_is_refused(features: object, revision: object, settings: object) -> None:
    with pytest.raises(ValueError, match=r"invalid|not a number"):
        Layout().absorb(ormsgpack.packb([VERSION, 4096, 1, features, revision, settings]))


def test_another_version_is_refused_with_what_to_do() -> None:
    for value in ([2, 4096, 1], [3, 4096, 1, ["a"]], [VERSION + 1, "whatever"]):
        with pytest.raises(ValueError, match=rf"layout version {value[0]}, .* reads {VERSION} only; export the store"):
            Layout().absorb(ormsgpack.packb(value))


def test_an_offline_location_beats_an_online_one_of_the_same_listen_only() -> None:
    merged = location_object_now()
    for location in (Location(2, "a", True), Location(1, "z", False), Location(2, "a", False)):
        merged.absorb(ormsgpack.packb([VERSION, list(location), [], [], 0, 0]))
    assert merged.location == Location(2, "a", False)


def test_a_location_and_an_end_that_missed_each_other_are_both_there() -> None:
    moved, ended = location_object_now(), location_object_now()
    moved.move(Location(2, "a", True))
    ended.end([("rock", "")])
    merged = version(location_object_now, moved.encode(), ended.encode())
    assert (merged.location, merged.ended()) == (Location(2, "a", True), Ended([("rock", None)], 1))


def test_of_an_end_and_a_subscription_that_missed_each_other_the_later_is_true() -> None:
    ended = location_object_now()
    ended.end([("rock", ""), ("rock", "f"), ("jazz", "f")])
    first = ended.encode()
    back = version(location_object_now, first)  # in the same millisecond, and after it
    back.back([("rock", None), ("never", "")])
    exactly = version(location_object_now, first)
    exactly.back([("rock", "f"), ("jazz", "")])
    again = version(location_object_now, back.encode())
    again.end([("rock", "")])
    cases: list[tuple[list[bytes], list[tuple[str, str | None]]]] = [
        ([first, back.encode()], [("jazz", "f")]),
        ([first, exactly.encode()], [("rock", None), ("jazz", "f")]),
        ([back.encode(), again.encode(), first], [("jazz", "f"), ("rock", None)]),
    ]
    for versions, expected in cases:
        assert version(lambda: location_object_now(2), *versions).ended() == Ended(expected, len(expected))


def test_what_has_ended_is_named_as_far_as_there_is_room_and_for_a_while() -> None:
    many = location_object_now()
    assert many.end([(f"song {number:04}", "") for number in range(1_500)]) == 500
    later = version(lambda: location_object_now(1), many.encode())
    assert later.end([("the last", "f")]) == 1
    names, total = later.ended() or Ended([], 0)
    assert (names[0], names[-1]) == (("song 0501", None), ("the last", "f"))
    assert (len(names), total) == (ENDED_MAX, 1_501)
    later.back([(topic, None) for topic, _ in names])
    assert later.ended() == Ended([], 501)
    assert version(lambda: location_object_now(RECENT_MS + 2), later.encode()).ended() is None
    assert version(lambda: location_object_now(2, kept_ms=1), many.encode()).ended() is None
    long = location_object_now()
    assert long.end([(f"{number:04}" * 256, "f" * 4_096) for number in range(500)]) == 500 - (1 << 20) // 5_120
    assert version(location_object_now, long.encode()).ended() == long.ended()


@pytest.mark.parametrize("kind", [Layout, SetObject, location_object_now, Directory, Entry])
@pytest.mark.parametrize(
    "value",
    [b"", b"\xc1", b"text", ormsgpack.packb(7), ormsgpack.packb([]), ormsgpack.packb([1, {}, [], False])]
    + [ormsgpack.packb([VERSION] * length) for length in (1, 9)],
)
def test_what_is_of_another_layout_is_refused_and_not_guessed_at(
    kind: Callable[[], StoredObject], value: bytes
) -> None:
    with pytest.raises(ValueError, match=r"MessagePack|layout|instead of"):
        kind().absorb(value)

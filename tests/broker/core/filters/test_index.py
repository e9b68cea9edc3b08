"""The index against a list of pairs that answers one by one, while filters come and go. Thresholds are small, so that
few filters reach columns, blocks and unions."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ingeborg.broker.core.filters.index import FEW_PATHS, Index
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.wire import canonical
from tests.naive_filters import matches, patterns, payloads

CLIENTS = tuple(f"client-{number}" for number in range(24))

#: Few values to draw from, so that many are equal.
LITERALS = ("a", "ab", True, 1, None)
NUMBERS = (-1, 0, 0.5, 1, 2, 2**53 + 1, 1e300)
STRINGS = ("", "a", "ab", "aba", "ba", "é")
KEYS = ("a", "b", "c")


def drawn_member(random: Random) -> Any:
    """Draw a member of a list that is no literal."""
    kind = random.choice(("numeric", "numeric", "numeric", "prefix", "suffix", "anything-but", "exists", "literal"))
    if kind == "literal":
        return random.choice(LITERALS)
    if kind == "exists":
        return {kind: random.random() < 0.5}
    if kind == "numeric":
        low, high = sorted(random.sample(range(len(NUMBERS)), 2))
        one_sided = [random.choice(("<", "<=", "=", ">=", ">")), NUMBERS[low]]
        two_sided = [random.choice((">", ">=")), NUMBERS[low], random.choice(("<", "<=")), NUMBERS[high]]
        return {kind: random.choice((one_sided, two_sided))}
    if kind == "anything-but":
        some = random.sample((*LITERALS, *STRINGS[3:]), 2)
        return {kind: random.choice((some, some[0], {"prefix": random.choice(STRINGS)}, {"suffix": "a"}))}
    return {kind: random.choice(STRINGS)}


def drawn_pattern(random: Random) -> Any:
    """Draw a pattern of one of few shapes, with few equality values, so that buckets get large."""
    some = [drawn_member(random) for _ in range(random.randint(1, 2))]
    literals = random.sample(LITERALS, random.randint(1, 2))
    return random.choice(
        (
            {"a": literals, "b": some},
            {"b": some},
            {"b": some, "c": [drawn_member(random)]},
            {"a": literals, "c": random.sample(LITERALS, 2)},
            {"a": literals, "$or": [{"b": some}, {"c": {"d": [drawn_member(random)]}}]},
        )
    )


def drawn_payload(random: Random) -> Any:
    """Draw a payload with some of the patterns' paths and values."""
    scalars = (*LITERALS, *LITERALS, *NUMBERS, *STRINGS)
    payload: Any = {}
    for key in random.sample(KEYS, random.randint(1, 3)):
        one, some = random.choice(scalars), random.sample(scalars, 2)
        payload[key] = random.choice((one, one, some, {"d": one}, []))
    return payload


def _text(pattern: Any) -> str:
    try:
        return canonical_filter(pattern)
    except ProtocolError:  # beyond a limit, or an alternative twice
        return '{"a":["a"]}'


seeds = st.integers(0, 2**32).map(Random)


class BesideAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = Index(tried=3, leaf=4, group=2)
        self.empty_bytes = self.index.bytes
        self.pairs: set[tuple[str, str]] = set()
        self.changes: dict[str, int] = {}  # text -> its last change
        self.count = 0
        self.keys: dict[bytes, frozenset[tuple[str, int]]] = {}
        self.states: dict[frozenset[tuple[str, int]], bytes] = {}

    def changed(self, text: str) -> None:
        self.count += 1
        self.changes[text] = self.count

    @rule(random=seeds, times=st.integers(1, 20))
    def add_some(self, random: Random, times: int) -> None:
        for _ in range(times):
            self.add(random.choice(CLIENTS), _text(drawn_pattern(random)))

    @rule(client=st.sampled_from(CLIENTS), pattern=patterns())
    def add_any(self, client: str, pattern: Any) -> None:
        self.add(client, _text(pattern))

    @rule(random=seeds)
    def add_to_one(self, random: Random) -> None:
        text = _text(drawn_pattern(random))
        for client in random.sample(CLIENTS, 20):
            self.add(client, text)

    def add(self, client: str, text: str) -> None:
        assert self.index.add(client, text) is ((client, text) not in self.pairs)
        if (client, text) not in self.pairs:
            self.changed(text)
        self.pairs.add((client, text))

    @rule(random=seeds, times=st.integers(1, 20))
    def remove(self, random: Random, times: int) -> None:
        for client, text in random.sample(sorted(self.pairs), min(times, len(self.pairs))):
            assert self.index.remove(client, text)
            self.pairs.discard((client, text))
            self.changed(text)

    @rule(random=seeds)
    def remove_whatever(self, random: Random) -> None:
        client, text = random.choice(CLIENTS), _text(drawn_pattern(random))
        assert self.index.remove(client, text) is ((client, text) in self.pairs)
        if (client, text) in self.pairs:
            self.pairs.discard((client, text))
            self.changed(text)

    @rule(client=st.sampled_from(CLIENTS))
    def remove_all(self, client: str) -> None:
        mine = {text for holder, text in self.pairs if holder == client}
        assert self.index.remove_all(client) == len(mine)
        self.pairs = {pair for pair in self.pairs if pair[0] != client}
        for text in mine:
            self.changed(text)

    @rule(random=seeds)
    def match(self, random: Random) -> None:
        for _ in range(10):
            self.compare(drawn_payload(random))

    @rule(payload=payloads)
    def match_any(self, payload: Any) -> None:
        self.compare(payload)

    def compare(self, payload: Any) -> None:
        clients, key = self.index.match(canonical(payload))
        texts = {text for _, text in self.pairs if matches(orjson.loads(text), payload)}
        assert len(clients) == len(set(clients))
        assert set(clients) == {client for client, text in self.pairs if text in texts}
        state = frozenset((text, self.changes[text]) for text in texts)
        assert self.keys.setdefault(key, state) == state
        assert self.states.setdefault(state, key) == key

    @invariant()
    def is_as_large_as_the_list(self) -> None:
        assert len(self.index) == len(self.pairs)
        assert self.index.filters == len({text for _, text in self.pairs})

    def teardown(self) -> None:
        for client in CLIENTS:
            self.remove_all(client)
        assert len(self.index) == self.index.filters == 0
        assert self.index.match(b'{"a":1,"b":"a","c":[1,2]}')[0] == []
        freed = self.index.bytes - self.empty_bytes
        assert freed == 56 * len(self.index._holders), "what numbers take is kept; all else has been given back"


BesideAList.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestBesideAList = BesideAList.TestCase


def test_a_match_of_an_index_is_no_match_of_another() -> None:
    one, other = Index(), Index()
    for index in (one, other):
        index.add("a", '{"a":[1]}')
    assert one.match(b'{"a":1}')[0] == other.match(b'{"a":1}')[0] == ["a"]
    assert one.match(b'{"a":1}')[1] != other.match(b'{"a":1}')[1]


def test_a_filter_that_went_and_came_again_has_another_key() -> None:
    index = Index()
    index.add("a", '{"a":[1]}')
    _, before = index.match(b'{"a":1}')
    assert index.match(b'{"a":[1,2]}')[1] == before
    index.remove("a", '{"a":[1]}')
    index.add("b", '{"a":[1]}')
    assert index.match(b'{"a":1}')[1] != before


def test_a_filter_that_a_client_has_left_has_another_key() -> None:
    index = Index()
    for client in ("a", "b"):
        index.add(client, '{"a":[1]}')
    _, before = index.match(b'{"a":1}')
    index.remove("a", '{"a":[1]}')
    clients, after = index.match(b'{"a":1}')
    assert clients == ["b"]
    assert after != before


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="unexpected"):
        Index().match(b"{")


@pytest.mark.parametrize(
    ("payload", "ranges"),
    [(b'{"x":500}', 500), (b'{"x":0.5}', 1), (b'{"x":[0,999.5]}', 1_000), (b'{"x":true}', 0), (b'{"y":1}', 0)],
)
def test_a_thousand_ranges_in_one_bucket(payload: bytes, ranges: int) -> None:
    """This uses the real thresholds. Each range is from 0, or a number, to the next 500."""
    index = Index()
    for number in range(1_000):
        index.add(f"client-{number}", f'{{"x":[{{"numeric":[">=",{number},"<",{number + 500}]}}]}}')
    found = index.match(payload)[0]
    wanted = {
        f"client-{number}"
        for number in range(1_000)
        for value in (orjson.loads(payload).get("x"),)
        for each in (value if type(value) is list else [value])
        if type(each) in (int, float) and number <= each < number + 500
    }
    assert set(found) == wanted
    assert min(len(found), 1) == min(ranges, 1)


FILTERS: dict[str, Callable[[int], str]] = {
    "equal values": lambda number: f'{{"dish":["dish {number % 97}"],"place":["place {number // 97}"]}}',
    "one value each": lambda number: f'{{"user":["user {number}"]}}',
    "a range each in small buckets": lambda number: (
        f'{{"price":[{{"numeric":["<",{number}.5]}}],"place":["place {number % 300}"]}}'
    ),
    "a prefix each": lambda number: f'{{"name":[{{"prefix":"name {number}"}}]}}',
    "the same for all": lambda number: '{"a":[1]}',
    "two values each": lambda number: f'{{"user":["user {number}","other {number}"]}}',
}


@pytest.mark.parametrize("kind", FILTERS)
def test_the_estimate_of_memory_is_near(kind: str) -> None:
    """The filters need no large bitmaps, because ``tracemalloc`` does not see their memory."""
    filters = FILTERS[kind]
    index = Index()
    tracemalloc.start()
    try:
        for number in range(3_000):
            index.add(f"client{number}", filters(number))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.7 < index.bytes / taken < 1.3, (index.bytes, taken)


def test_of_a_long_array_the_first_elements_count() -> None:
    index = Index()
    index.add("anna", canonical_filter({"tags": ["x63"]}))
    index.add("bert", canonical_filter({"tags": ["x64"]}))
    assert index.match(canonical({"tags": [f"x{number}" for number in range(70)]}))[0] == ["anna"]


@pytest.mark.parametrize("further", [0, FEW_PATHS])
def test_what_no_filter_asks_for_may_be_there(further: int) -> None:
    """A match looks up a few paths in the payload, or gathers all of the payload's paths. Both give the same result,
    also when many paths become few again."""
    index = Index()
    wanted, other = canonical_filter({"a": {"b": [1]}, "c": [{"exists": False}]}), canonical_filter({"a": {"b": [2]}})
    index.add("anna", wanted)
    index.add("bert", other)
    texts = [canonical_filter({f"p{number}": [number]}) for number in range(further)]
    for text in texts:
        index.add("carl", text)
    for _ in range(2):
        assert index.match(canonical({"a": {"b": [2, 1], "x": 0}, "d": 1}))[0] in (["anna", "bert"], ["bert", "anna"])
        assert index.match(canonical({"a": {"b": 1}, "c": None}))[0] == []
        index.remove_all("carl")
    assert len(index._paths) == 2
    index.remove("anna", wanted)
    assert len(index._paths) == 1
    index.remove("bert", other)
    assert not index._paths

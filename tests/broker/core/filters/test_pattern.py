"""The conjunctions of a filter, the attributes of a payload, and matches as in a naive reading."""

from __future__ import annotations

from math import inf
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.filters import pattern as p
from ingeborg.broker.core.filters.pattern import Condition, Range, attributes, conjunctions, holds, scalar_key, scalars
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.filters import COMBINATIONS_MAX, canonical_filter
from ingeborg.protocol.wire import canonical
from tests.naive_filters import SCALARS, matches, patterns, payloads, same


def met(pattern: Any, payload: Any) -> bool:
    """Does the payload meet the pattern, according to the code?"""
    found = attributes(canonical(payload))
    return any(holds(each, found) for each in conjunctions(canonical_filter(pattern)))


def test_scalars_are_alike_as_in_json() -> None:
    for one in SCALARS:
        for other in SCALARS:
            assert (scalar_key(one) == scalar_key(other)) is same(one, other), (one, other)
            if same(one, other):
                assert hash(scalar_key(one)) == hash(scalar_key(other))


def test_a_payload_has_the_scalars_at_the_ends_of_its_paths() -> None:
    payload = {
        "a": 1,
        "b": {"c": "x", "d": {"e": None}, "f": {}},
        "g": [1, "x", [2], {"h": 3}, True],
        "i": [],
        "j": [{"k": 1}, [1]],
        "": {"": False},
    }
    assert attributes(canonical(payload)) == {
        ("a",): [1],
        ("b", "c"): ["x"],
        ("b", "d", "e"): [None],
        ("g",): [1, "x", True],
        ("", ""): [False],
    }


@pytest.mark.parametrize("payload", [None, True, 1, "a", [], [{"a": 1}], ["a"]])
def test_only_an_object_has_attributes(payload: Any) -> None:
    assert attributes(canonical(payload)) == {}
    assert scalars(payload, ("a",)) == []
    assert met({"a": [{"exists": False}]}, payload)
    assert not met({"a": [{"exists": True}]}, payload)


def test_no_path_is_longer_than_a_filter_s() -> None:
    payload: dict[str, Any] = {"a": {"a": {"a": {"a": {"a": {"a": 1}, "b": [1]}, "b": {}}}}}
    assert attributes(canonical(payload)) == {("a", "a", "a", "a", "b"): [1]}
    assert met({"a": {"a": {"a": {"a": {"a": [{"exists": False}]}}}}}, payload)  # it is no leaf


@pytest.mark.parametrize(
    ("member", "condition"),
    [
        ("x", Condition(p.EQUALS, "x")),
        (1.0, Condition(p.EQUALS, 1)),
        (True, Condition(p.EQUALS, scalar_key(True))),
        (None, Condition(p.EQUALS, None)),
        ({"prefix": "x"}, Condition(p.PREFIX, "x")),
        ({"suffix": "x"}, Condition(p.SUFFIX, "x")),
        ({"exists": True}, Condition(p.EXISTS, None)),
        ({"exists": False}, Condition(p.ABSENT, None)),
        ({"anything-but": "x"}, Condition(p.NOT_IN, frozenset({"x"}))),
        ({"anything-but": ["x", True]}, Condition(p.NOT_IN, frozenset({"x", scalar_key(True)}))),
        ({"anything-but": {"prefix": "x"}}, Condition(p.NOT_PREFIX, "x")),
        ({"anything-but": {"suffix": "x"}}, Condition(p.NOT_SUFFIX, "x")),
        ({"numeric": ["<", 5]}, Condition(p.NUMBER, Range(-inf, False, 5.0, True))),
        ({"numeric": ["<=", 5]}, Condition(p.NUMBER, Range(-inf, False, 5.0, False))),
        ({"numeric": ["=", 5]}, Condition(p.NUMBER, Range(5.0, False, 5.0, False))),
        ({"numeric": [">=", 5]}, Condition(p.NUMBER, Range(5.0, False, inf, False))),
        ({"numeric": [">", 5]}, Condition(p.NUMBER, Range(5.0, True, inf, False))),
        ({"numeric": [">", 1, "<=", 5]}, Condition(p.NUMBER, Range(1.0, True, 5.0, False))),
        ({"numeric": [">=", 1, "<", 5]}, Condition(p.NUMBER, Range(1.0, False, 5.0, True))),
    ],
)
def test_a_member_is_this_condition(member: Any, condition: Condition) -> None:
    [found] = conjunctions(canonical_filter({"a": {"b": [member]}}))
    assert found == ((("a", "b"), (condition,)),)


def test_a_conjunction_has_its_paths_sorted_and_an_or_is_multiplied_out() -> None:
    one, two = Condition(p.EQUALS, 1), Condition(p.EQUALS, 2)
    text = canonical_filter(
        {"d": [2, 1], "b": {"$or": [{"x": [1]}, {"y": [2]}]}, "$or": [{"c": [1], "a": [2]}, {"e": [1]}]}
    )
    d = (("d",), (one, two))
    assert set(conjunctions(text)) == {
        ((("a",), (two,)), (("b", "x"), (one,)), (("c",), (one,)), d),
        ((("a",), (two,)), (("b", "y"), (two,)), (("c",), (one,)), d),
        ((("b", "x"), (one,)), d, (("e",), (one,))),
        ((("b", "y"), (two,)), d, (("e",), (one,))),
    }
    nested = canonical_filter({"$or": [{"$or": [{"a": [1]}, {"b": [1]}]}, {"a": [1]}]})
    assert conjunctions(nested) == [((("a",), (one,)),), ((("b",), (one,)),)]  # each once


@pytest.mark.parametrize(
    ("member", "values", "others"),
    [
        ("x", ["x", ["y", "x"], [1, ["y"], "x"]], ["X", "xx", None, ["y"], [["x"]], [{"a": "x"}], {"a": "x"}, []]),
        (1, [1, 1.0, [0, 1]], [True, "1", 2, 1.5, [True]]),
        (0, [0, 0.0, -0.0], [False, None, "", []]),
        (True, [True, [True]], [1, 1.0, "true"]),
        (False, [False], [0, 0.0, None, ""]),
        (None, [None, [None]], ["null", 0, False, [], {}]),
        (2**53 + 1, [2**53 + 1], [2**53, 2.0**53]),
        ({"prefix": "ab"}, ["ab", "abc", ["x", "abx"]], ["a", "xab", 1, None, [], ["x"]]),
        ({"prefix": ""}, ["", "x"], [1, None, True]),
        ({"prefix": "1"}, ["1", "12"], [1, 12]),
        ({"suffix": "ab"}, ["ab", "xab", ["x", "xab"]], ["b", "abx", 1, None]),
        ({"exists": True}, [None, False, 0, "", ["x"]], [{}, {"a": 1}, [], [[]], [{}]]),
        ({"exists": False}, [{}, {"a": 1}, [], [[]], [{}]], [None, False, 0, "", ["x"]]),
        ({"anything-but": "x"}, ["y", 1, None, True, ["x", "y"]], ["x", ["x"], ["x", "x"], [], {}]),
        ({"anything-but": ["x", 1]}, ["y", True, None, 2, ["x", 2]], ["x", 1, 1.0, ["x", 1], []]),
        ({"anything-but": True}, [1, False, "true"], [True, [True]]),
        ({"anything-but": {"prefix": "a"}}, ["b", "", 1, None, ["a", "b"]], ["a", "ab", ["a", "ab"], [], {}]),
        ({"anything-but": {"suffix": "a"}}, ["b", "", 1, None, ["a", "b"]], ["a", "ba", ["a", "ba"], [], {}]),
        ({"numeric": [">=", 30]}, [30, 30.0, 31, 1e300, [1, 30]], [29, 29.999, "30", None, True, [], ["30"]]),
        ({"numeric": [">", 30]}, [30.001, 31], [30, 30.0, -31]),
        ({"numeric": ["<=", -1.5]}, [-1.5, -2, -1e300], [-1.4, 0]),
        ({"numeric": ["<", 1]}, [0, 0.9, -5], [1, 1.0, True, False]),
        ({"numeric": ["=", 1]}, [1, 1.0, [3, 1]], [True, "1", 1.1]),
        ({"numeric": [">", 0, "<=", 5]}, [0.1, 5, 5.0], [0, 5.1, -1]),
        ({"numeric": [">=", 0, "<", 5]}, [0, -0.0, 4.9], [5, -0.1]),
        # Doubles: any other number becomes the nearest double.
        ({"numeric": ["=", 2**53]}, [2**53, 2.0**53, 2**53 + 1], [2**53 + 2]),
        ({"numeric": [">", 2**53]}, [2**53 + 2], [2**53 + 1]),
    ],
)
def test_an_operator_holds_for_these_values_and_no_others(member: Any, values: list[Any], others: list[Any]) -> None:
    for value in values:
        assert met({"a": [member]}, {"a": value, "b": 1}), value
        assert met({"x": {"a": ["no", member]}}, {"x": {"a": value}}), value
    for value in others:
        assert not met({"a": [member]}, {"a": value, "b": 1}), value
    absent = member == {"exists": False}
    assert met({"a": [member]}, {"b": 1}) is absent
    assert met({"a": {"b": [member]}}, {"a": [{"b": values[0]}]}) is absent  # paths do not lead into objects in arrays


def test_the_example_of_the_specification() -> None:
    pattern = {"restaurant": ["Dominos"], "discount": [{"numeric": [">=", 30]}]}
    assert met(pattern, {"restaurant": "Dominos", "discount": 35, "food": "pizza"})
    assert not met(pattern, {"restaurant": "Dominos", "discount": 20})
    assert not met(pattern, {"restaurant": "Hut", "discount": 35})
    assert not met(pattern, {"discount": 35})


def usable(pattern: dict[str, Any]) -> bool:
    try:
        canonical_filter(pattern)
    except ProtocolError:
        return False
    return True


@given(patterns().filter(usable), st.lists(payloads, min_size=1, max_size=8))
def test_conjunctions_hold_where_the_filter_read_directly_does(pattern: dict[str, Any], many: list[Any]) -> None:
    found = conjunctions(canonical_filter(pattern))
    assert 1 <= len(found) <= COMBINATIONS_MAX
    assert len(set(found)) == len(found)
    for each in found:
        paths = [path for path, conditions in each if conditions]
        assert paths == sorted(set(paths))
        assert len(paths) == len(each)
    for payload in many:
        has = attributes(canonical(payload))
        assert any(holds(each, has) for each in found) == matches(pattern, orjson.loads(canonical(payload)))


@given(payloads)
def test_one_path_is_looked_up_as_all_are(payload: Any) -> None:
    found = attributes(canonical(payload))
    for path in [("a",), ("b", "c"), ("a", "a", "b"), ("",), ("$or",), *found]:
        assert scalars(orjson.loads(canonical(payload)), path) == found.get(path, [])

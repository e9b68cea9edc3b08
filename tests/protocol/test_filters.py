"""Accepted and refused filters, and the equal text of equal filters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol import filters
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.wire import decode
from tests.naive_filters import matches, patterns, payloads, written_otherwise


def refused(pattern: Any) -> str:
    """Return the reason."""
    with pytest.raises(ProtocolError) as raised:
        canonical_filter(pattern)
    assert raised.value.code == "bad_filter"
    return raised.value.info


def refusal(pattern: Any) -> ProtocolError | None:
    try:
        canonical_filter(pattern)
    except ProtocolError as error:
        return error
    return None


def accepted(pattern: Any) -> bool:
    """Random patterns are good, except that some are too large or have an ``$or`` of equal patterns."""
    error = refusal(pattern)
    reasons = ("only one pattern, given several times", "one attribute too many", "combinations")
    assert error is None or any(reason in error.info for reason in reasons), error
    return error is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"a": ["x"]}, '{"a":["x"]}'),
        ({"b": [1], "a": [2]}, '{"a":[2],"b":[1]}'),
        ({"a": ["x", "x", 1, 1.0, True, False, None, "a", -0.0]}, '{"a":[null,false,true,0,1,"a","x"]}'),
        ({"a": [10, 9, "10", "9", 1e300, 0.5]}, '{"a":[0.5,9,10,1e+300,"10","9"]}'),
        ({"a": [2**64 - 1, 2.0**64, -(2**63), -(2.0**63)]}, f'{{"a":[{-(2**63)},{2**64 - 1},1.8446744073709552e+19]}}'),
        ({"a": ["\U0001f600", "\uffff"]}, '{"a":["\uffff","\U0001f600"]}'),
        (
            {"a": [{"suffix": "s"}, {"prefix": "p"}, {"exists": False}, {"exists": True}, "x"]},
            '{"a":["x",{"exists":false},{"exists":true},{"prefix":"p"},{"suffix":"s"}]}',
        ),
        ({"a": [{"prefix": ""}]}, '{"a":[{"prefix":""}]}'),
        ({"a": [{"numeric": [">=", 30.0]}]}, '{"a":[{"numeric":[">=",30]}]}'),
        ({"a": [{"numeric": [">", 0, "<=", 0.5]}]}, '{"a":[{"numeric":[">",0,"<=",0.5]}]}'),
        ({"a": [{"numeric": ["=", 2**53 + 1]}]}, f'{{"a":[{{"numeric":["=",{2**53}]}}]}}'),
        ({"a": [{"numeric": ["<", 2**64 - 1]}]}, '{"a":[{"numeric":["<",1.8446744073709552e+19]}]}'),
        ({"a": [{"anything-but": ["y", "x", "y"]}]}, '{"a":[{"anything-but":["x","y"]}]}'),
        ({"a": [{"anything-but": [1.0]}]}, '{"a":[{"anything-but":1}]}'),
        ({"a": [{"anything-but": {"prefix": "p"}}]}, '{"a":[{"anything-but":{"prefix":"p"}}]}'),
        ({"a": [{"anything-but": {"suffix": "p"}}]}, '{"a":[{"anything-but":{"suffix":"p"}}]}'),
        ({"a": {"b": {"c": ["x"]}}}, '{"a":{"b":{"c":["x"]}}}'),
        ({"": [None], "a.b": [1], "prefix": ["x"]}, '{"":[null],"a.b":[1],"prefix":["x"]}'),
        (
            {"c": [3], "$or": [{"b": [2]}, {"a": [1]}, {"b": [2.0]}]},
            '{"$or":[{"a":[1]},{"b":[2]}],"c":[3]}',
        ),
        ({"a": {"$or": [{"b": [1]}, {"b": [2]}], "c": [1]}}, '{"a":{"$or":[{"b":[1]},{"b":[2]}],"c":[1]}}'),
        # The same attribute in two alternatives, and two alternatives of two that are nested.
        (
            {"$or": [{"$or": [{"a": [1]}, {"b": [1]}], "c": [1]}, {"a": [1]}]},
            '{"$or":[{"$or":[{"a":[1]},{"b":[1]}],"c":[1]},{"a":[1]}]}',
        ),
    ],
)
def test_equal_filters_have_this_text(pattern: Any, text: str) -> None:
    assert canonical_filter(pattern) == text
    assert canonical_filter(json.loads(text)) == text


@pytest.mark.parametrize(
    ("pattern", "info"),
    [
        (None, "The filter has to be an object of attributes, each with the list of its values"),
        ([], "The filter has to be an object"),
        ("a = 1", "The filter has to be an object"),
        ({}, "The filter is empty: name an attribute, or leave it out"),
        ({"a": {}}, "a: is empty: name an attribute"),
        ({"a": []}, "a: is an empty list, which matches nothing: name the values"),
        ({"a": "x"}, 'a: has to be a list of its values, as in ["value"], or an object of attributes'),
        ({"a": {"b": 1}}, "a.b: has to be a list"),
        ({"a": {"prefix": "x"}}, 'a.prefix: has to be in an object in the list of an attribute, as in {"attribute": '),
        ({"a": [["x"]]}, "a[0]: is a list in a list: move its members into the outer list"),
        ({"a": ["x", {}]}, "a[1]: has to have one of the operators anything-but, exists, numeric, prefix, suffix, and"),
        ({"a": [{"prefix": "x", "suffix": "y"}]}, "a[0]: has to have one of the operators"),
        ({"a": [{"wildcard": "x*"}]}, "a[0].wildcard: is no operator: the operators are anything-but, exists, "),
        ({"a b": [{"$or": []}]}, '"a b"[0].$or: is no operator'),
        ({"a": [{"prefix": 1}]}, "a[0].prefix: has to be a string"),
        ({"a": [{"suffix": ["x"]}]}, "a[0].suffix: has to be a string"),
        ({"a": [{"exists": 1}]}, "a[0].exists: has to be true or false"),
        ({"a": [{"exists": None}]}, "a[0].exists: has to be true or false"),
        ({"a": [{"numeric": 1}]}, 'a[0].numeric: has to be a list of one or two comparisons, as in [">=", 30] or'),
        ({"a": [{"numeric": []}]}, "a[0].numeric: has to be a list of one or two"),
        ({"a": [{"numeric": [">", 1, "<"]}]}, "a[0].numeric: has to be a list of one or two"),
        ({"a": [{"numeric": [">", "1"]}]}, "a[0].numeric[1]: has to be a number"),
        ({"a": [{"numeric": [">", True]}]}, "a[0].numeric[1]: has to be a number"),
        ({"a": [{"numeric": [">", 0, "<", None]}]}, "a[0].numeric[3]: has to be a number"),
        ({"a": [{"numeric": ["!=", 1]}]}, "a[0].numeric[0]: has to be <, <=, =, >= or >"),
        ({"a": [{"numeric": [[], 1]}]}, "a[0].numeric[0]: has to be <, <=, =, >= or >"),
        ({"a": [{"numeric": ["<", 5, ">", 1]}]}, "a[0].numeric: has to have the lower bound first, with > or >=, and"),
        ({"a": [{"numeric": ["=", 5, "<", 9]}]}, "a[0].numeric: has to have the lower bound first"),
        ({"a": [{"numeric": [">=", 5, ">", 9]}]}, "a[0].numeric: has to have the lower bound first"),
        ({"a": [{"numeric": [">", 5, "<", 1]}]}, "a[0].numeric: has to have a lower bound that is below the upper"),
        ({"a": [{"numeric": [">=", 5, "<=", 5]}]}, "a[0].numeric: has to have a lower bound that is below the upper"),
        (
            {"a": [{"numeric": [">=", 2**53, "<=", 2**53 + 1]}]},  # the same double
            "a[0].numeric: has to have a lower bound that is below the upper",
        ),
        ({"a": [{"anything-but": []}]}, "a[0].anything-but: is an empty list, which excludes nothing: name values, or"),
        ({"a": [{"anything-but": {}}]}, "a[0].anything-but: has to have one of the operators prefix, suffix, if it"),
        (
            {"a": [{"anything-but": {"exists": True}}]},
            "a[0].anything-but: has to have one of the operators prefix, suffix",
        ),
        ({"a": [{"anything-but": {"prefix": ["x"]}}]}, "a[0].anything-but.prefix: has to be a string"),
        ({"a": [{"anything-but": ["x", ["y"]]}]}, "a[0].anything-but[1]: is a list in a list"),
        ({"a": [{"anything-but": [{"prefix": "x"}]}]}, "a[0].anything-but[0]: is an object: a filter compares only"),
        ({"$or": {"a": [1]}}, "$or: has to be a list of two or more patterns, which are objects of attributes"),
        ({"$or": [{"a": [1]}]}, "$or: has to be a list of two or more patterns"),
        ({"x": {"$or": [{"a": [1]}, 1]}}, "x.$or[1]: has to be an object of attributes"),
        ({"$or": [{"a": [1]}, {}]}, "$or[1]: is empty: name an attribute"),
        ({"$or": [{"a": [1]}, {"a": [{"numeric": []}]}]}, "$or[1].a[0].numeric: has to be a list of one or two"),
        ({"$or": [{"a": [1, 2]}, {"a": [2.0, 1]}]}, "$or: has only one pattern, given several times: write it once"),
        ({"a": [1], "$or": [{"a": [2]}, {"b": [1]}]}, "$or: names a, and so does the pattern around it: move"),
        (
            {"x": {"y": [1]}, "$or": [{"z": [2]}, {"x": {"y": [2], "z": [1]}}]},
            "$or: names x.y, and so does the pattern around it",
        ),
        ({"x": {"$or": [{"$or": [{"a": [1]}, {"b": [1]}], "a": [1]}, {"b": [1]}]}}, "x.$or[0].$or: names x.a, and"),
        ({"a": [float("nan")]}, "a[0]: has to be a finite number, and an integer has to fit in 64 bits"),
        ({"a": [float("inf")]}, "a[0]: has to be a finite number"),
        ({"a": [2**64]}, "a[0]: has to be a finite number, and an integer has to fit in 64 bits"),
        ({"a": [{"numeric": [">", -(2**63) - 1]}]}, "a[0].numeric[1]: has to be a finite number"),
        ({"a": [{"anything-but": [float("nan")]}]}, "a[0].anything-but[0]: has to be a finite number"),
        ({"a": ["\ud800"]}, "a[0]: has a lone surrogate, which is no character"),
        ({"\ud800": ["a"]}, '"\\ud800": has a lone surrogate'),
        ({"a": [{"prefix": "\ud800"}]}, "a[0].prefix: has a lone surrogate"),
        ({"a": ["x" * 4097]}, "a[0]: is too long: a filter has at most 4096 bytes"),
        ({"x" * 4097: ["x"]}, '"' + "x" * 64 + '": is too long: a filter has at most 4096 bytes'),
    ],
)
def test_what_is_no_filter_is_refused_by_its_place_with_the_reason(pattern: Any, info: str) -> None:
    assert refused(pattern).startswith(info)


@pytest.mark.parametrize(
    ("pattern", "beyond", "info"),
    [
        # {"a":["…"]} has 10 bytes without the string; é has two.
        ({"a": ["é" * 2043]}, {"a": ["é" * 2043 + "x"]}, "The filter is 4097 bytes long; the limit is 4096"),
        (
            {f"k{n}": [1] for n in range(8)},
            {f"k{n}": [1] for n in range(9)},
            "k8: is one attribute too many: a filter may name at most 8 different attributes",
        ),
        (
            {"a": {"b": {"c": {"d": {"e": [1]}}}}},
            {"a": {"b": {"c": {"d": {"e": {"f": [1]}}}}}},
            "a.b.c.d.e.f: is deeper than 5 keys: filter by an attribute that is less deep",
        ),
        (
            {"a": list(range(64))},
            {"a": list(range(65))},
            "a: makes more than 64 values in all, which is the limit: subscribe with several filters instead",
        ),
        (
            {"a": [{"anything-but": list(range(62))}, "x"], "b": [1]},
            {"a": [{"anything-but": list(range(62))}, "x"], "b": [1, 2]},
            "b: makes more than 64 values in all",
        ),
        (
            {"a": ["x"], "b": [{"anything-but": list(range(63))}]},
            {"a": ["x"], "b": [{"anything-but": list(range(64))}]},
            "b[0].anything-but: makes more than 64 values in all",
        ),
        (
            {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4], "c": [1, 2, 3, 4], "d": [1, {"prefix": "x"}]},
            {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4], "c": [1, 2, 3, 4, 5], "d": [1, {"prefix": "x"}]},
            "The filter makes 80 combinations of values; the limit is 64: subscribe with several filters instead",
        ),
        (
            {"$or": [{"a": [1, 2, 3]}, {"b": [1]}], "c": [1, 2, 3, 4], "d": [1, 2, 3, 4]},
            {"$or": [{"a": [1, 2, 3]}, {"b": [1, 2]}], "c": [1, 2, 3, 4], "d": [1, 2, 3, 4]},
            "The filter makes 80 combinations of values",
        ),
    ],
)
def test_a_limit_is_kept_and_named_where_it_is_passed(pattern: Any, beyond: Any, info: str) -> None:
    assert canonical_filter(pattern)
    assert refused(beyond).startswith(info)


def test_the_same_attribute_in_two_alternatives_counts_once() -> None:
    half = [{f"k{n}": [side] for n in range(8)} for side in (1, 2)]
    assert canonical_filter({"$or": half})


def test_what_is_huge_is_left_where_it_passes_a_limit() -> None:
    """Checking a frame of 16 MiB costs no more than reading it."""

    assert "more than 64 values" in refused({"a": [[]] * 1_000_000})  # though the first value is also wrong
    assert "more than 64 values" in refused({"a": [{"anything-but": [[]] * 1_000_000}]})
    deep: Any = {"a": [1]}
    for _ in range(5_000):
        deep = {"$or": [deep, {"b": [1]}]}
    assert "more than 64 values" in refused(deep)
    assert "more than 64 values" in refused({"$or": [{}] * 1_000_000})


def test_a_filter_comes_from_a_frame_as_it_is() -> None:
    frame = b'{"filter": {"restaurant": ["Dominos"], "discount": [{"numeric": [">=", 3e1]}]}}'
    assert canonical_filter(decode(frame)["filter"]) == (
        '{"discount":[{"numeric":[">=",30]}],"restaurant":["Dominos"]}'
    )


@given(patterns().filter(accepted))
def test_the_canonical_text_is_its_own(pattern: dict[str, Any]) -> None:
    text = canonical_filter(pattern)
    assert canonical_filter(decode(text.encode())) == text
    assert len(text.encode()) <= filters.FILTER_BYTES_MAX


@given(st.data())
def test_what_is_written_otherwise_has_the_same_text(data: st.DataObject) -> None:
    pattern = data.draw(patterns().filter(accepted))
    other = data.draw(written_otherwise(pattern))
    assert canonical_filter(other) == canonical_filter(pattern)


@given(patterns().filter(accepted), payloads)
def test_the_canonical_text_means_the_same(pattern: dict[str, Any], payload: Any) -> None:
    assert matches(json.loads(canonical_filter(pattern)), payload) == matches(pattern, payload)


_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(("a", "b", "$or", *filters.OPERATORS)), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(_ANY)
def test_anything_is_a_filter_or_refused(value: Any) -> None:
    error = refusal(value)
    if error is None:
        text = canonical_filter(value)
        assert canonical_filter(json.loads(text)) == text
    else:
        assert error.code == "bad_filter"

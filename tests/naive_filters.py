"""The direct meaning of a filter, and random filters and payloads with much in common.

Owns: the model for tests of the canonical text, the conjunctions and the index of filters. Must never: import the code
that it models, or be quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

SCALARS = (
    *(None, True, False, 0, 1, 1.0, -0.0, 0.5, 2, -3, 2**53, 2**53 + 1, 2.0**53, 2**64 - 1, 2.0**64, 1e300),
    *("", "a", "ab", "aba", "b", "ba", "1", "true", "null", "é", "\U0001f600", "\uffff"),
)
NUMBERS = tuple(value for value in SCALARS if type(value) in (int, float))
STRINGS = tuple(value for value in SCALARS if type(value) is str)
KEYS = ("a", "b", "c")

_COMPARISONS = ("<", "<=", "=", ">=", ">")


def matches(pattern: dict[str, Any], payload: Any) -> bool:
    """Return whether a decoded payload has all that the pattern asks for."""
    inside = payload if type(payload) is dict else {}
    for key, wanted in pattern.items():
        if key == "$or":
            good = any(matches(each, inside) for each in wanted)
        elif type(wanted) is dict:
            good = matches(wanted, inside.get(key))
        else:
            good = any(holds(member, scalars(inside[key]) if key in inside else []) for member in wanted)
        if not good:
            return False
    return True


def scalars(value: Any) -> list[Any]:
    """Return the scalars of an attribute: its value, or an array's elements, without objects and arrays."""
    return [each for each in (value[:64] if type(value) is list else [value]) if type(each) not in (list, dict)]


def holds(member: Any, values: list[Any]) -> bool:
    """Return whether one member of a list matches an attribute with these values."""
    if type(member) is not dict:
        return any(same(value, member) for value in values)
    [(operator, wanted)] = member.items()
    if operator == "exists":
        return bool(values) is wanted
    if operator == "prefix":
        return any(type(value) is str and value.startswith(wanted) for value in values)
    if operator == "suffix":
        return any(type(value) is str and value.endswith(wanted) for value in values)
    if operator == "numeric":
        numbers = [value for value in values if type(value) in (int, float)]
        return any(compares(float(number), wanted) for number in numbers)
    assert operator == "anything-but"
    if type(wanted) is dict:
        return any(not holds(wanted, [value]) for value in values)
    excluded = wanted if type(wanted) is list else [wanted]
    return any(not any(same(value, each) for each in excluded) for value in values)


def same(one: Any, other: Any) -> bool:
    """Return whether they are the same scalar of JSON. Python takes true for 1."""
    if type(one) is bool or type(other) is bool:
        return one is other
    return bool(one == other)


def compares(number: float, comparisons: list[Any]) -> bool:
    """Return whether the number compares so with each bound."""
    compared = {
        "<": number < float(comparisons[1]),
        "<=": number <= float(comparisons[1]),
        "=": number == float(comparisons[1]),
        ">=": number >= float(comparisons[1]),
        ">": number > float(comparisons[1]),
    }
    return compared[comparisons[0]] and (len(comparisons) == 2 or compares(number, comparisons[2:]))


@st.composite
def members(draw: Draw) -> Any:
    """Draw a member of a list."""
    kind = draw(st.sampled_from(("literal", "literal", "prefix", "suffix", "anything-but", "numeric", "exists")))
    if kind == "literal":
        return draw(st.sampled_from(SCALARS))
    if kind == "exists":
        return {kind: draw(st.booleans())}
    if kind == "numeric":
        one, other = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(NUMBERS))
        if float(one) >= float(other):
            return {kind: [draw(st.sampled_from(_COMPARISONS)), one]}
        return {kind: [draw(st.sampled_from((">", ">="))), one, draw(st.sampled_from(("<", "<="))), other]}
    if kind == "anything-but":
        some = st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3)
        other = st.fixed_dictionaries({"prefix": st.sampled_from(STRINGS)})
        last = st.fixed_dictionaries({"suffix": st.sampled_from(STRINGS)})
        return {kind: draw(st.one_of(st.sampled_from(SCALARS), some, other, last))}
    return {kind: draw(st.sampled_from(STRINGS))}


@st.composite
def patterns(draw: Draw, keys: tuple[str, ...] = KEYS, depth: int = 2, ors: int = 2) -> dict[str, Any]:
    """Draw a good pattern, except that all alternatives of an ``$or`` may be the same."""
    several = bool(ors) and len(keys) > 1 and draw(st.integers(0, 2)) == 0
    some = st.lists(st.sampled_from(keys), unique=True, min_size=0 if several else 1, max_size=len(keys) - several)
    mine = draw(some)
    pattern: dict[str, Any] = {}
    for key in mine:
        if depth and draw(st.integers(0, 3)) == 0:
            pattern[key] = draw(patterns(keys=KEYS, depth=depth - 1, ors=ors - 1 if ors else 0))
        else:
            pattern[key] = draw(st.lists(members(), min_size=1, max_size=3))
    if several:
        left = tuple(key for key in keys if key not in mine)
        alternatives = st.lists(patterns(keys=left, depth=depth, ors=ors - 1), min_size=2, max_size=3)
        pattern["$or"] = draw(alternatives)
    return pattern


_LEAVES = st.sampled_from(SCALARS)
_ELEMENTS: st.SearchStrategy[Any] = st.one_of(
    _LEAVES, st.just([1, "a"]), st.just({"a": 1, "b": "ab"}), st.just([]), st.just({})
)
_ATTRIBUTES = st.recursive(
    st.one_of(_LEAVES, _LEAVES, st.lists(_ELEMENTS, max_size=3)),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)

#: Payloads, mostly objects.
payloads = st.one_of(
    st.dictionaries(st.sampled_from((*KEYS, "$or", "")), _ATTRIBUTES, max_size=4),
    st.dictionaries(st.sampled_from(KEYS), _ATTRIBUTES, max_size=3),
    _ATTRIBUTES,
)


@st.composite
def written_otherwise(draw: Draw, pattern: Any) -> Any:
    """Draw the same pattern with another order of keys and members, some members twice, and other spellings of
    numbers."""
    if type(pattern) is dict:
        terms = pattern.get("numeric")
        if type(terms) is list and terms[0] in _COMPARISONS:
            return {"numeric": [draw(_respelled(term)) for term in terms]}
        keys = draw(st.permutations(list(pattern)))
        return {key: draw(written_otherwise(pattern[key])) for key in keys}
    if type(pattern) is list:
        members = [draw(written_otherwise(member)) for member in pattern]
        again = draw(st.lists(st.sampled_from(members), max_size=2))
        return draw(st.permutations([*members, *again]))
    return draw(_respelled(pattern))


@st.composite
def _respelled(draw: Draw, scalar: Any) -> Any:
    if type(scalar) is int and float(scalar) == scalar and draw(st.booleans()):
        return float(scalar)
    if type(scalar) is float and scalar.is_integer() and abs(scalar) < 2**63 and draw(st.booleans()):
        return int(scalar)
    return scalar

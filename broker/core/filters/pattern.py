"""Splits a filter into conjunctions, and a payload into the attributes that filters examine. SPEC section 2.6.

Owns: the conjunctions of a filter, the meaning of each condition, and a payload's attributes. Must never: check a
filter (``protocol.filters`` has done that before), or know its subscribers.

``holds`` defines the meaning of conditions in readable code. ``index`` gives the same answers for a great many filters
in one call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from ingeborg.protocol.filters import DEPTH_MAX, ELEMENTS_MAX

#: Kinds of conditions. The value of a condition is a scalar key (``EQUALS``), a str (prefixes and suffixes), a
#: ``Range`` (``NUMBER``), a frozenset of scalar keys (``NOT_IN``) or None (``EXISTS`` and ``ABSENT``).
EQUALS: Final = 0
PREFIX: Final = 1
SUFFIX: Final = 2
NUMBER: Final = 3
NOT_IN: Final = 4
NOT_PREFIX: Final = 5
NOT_SUFFIX: Final = 6
EXISTS: Final = 7
ABSENT: Final = 8


class Range(NamedTuple):
    """The numbers between two bounds, either of which can be infinite. ``…_open``: whether the range excludes the bound
    itself."""

    low: float
    low_open: bool
    high: float
    high_open: bool


class Condition(NamedTuple):
    """The condition that one member of a filter's list places on an attribute."""

    kind: int
    value: Any


Path = tuple[str, ...]
Attributes = dict[Path, list[Any]]

Conjunction = tuple[tuple[Path, tuple[Condition, ...]], ...]
"""Paths in order, with the conditions on each path. Each path occurs once, because the protocol refuses a filter that
names a path twice. A conjunction holds if all its paths hold. A path has at least one condition, and holds if any of
its conditions holds."""

_TRUE: Final = ("true",)
_FALSE: Final = ("false",)
_INFINITE: Final = float("inf")


def scalar_key(value: Any) -> Hashable:
    """Return a key that is the same for equal scalars. 1 and 1.0 have the same key. 1 and true have different keys,
    although Python considers them equal. The same applies to 0 and false. A string or a number is its own key."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    return value  # type: ignore[no-any-return]


def conjunctions(text: str) -> list[Conjunction]:
    """Return the conjunctions of a filter's canonical text. The filter holds if one of its conjunctions holds. Each
    ``$or`` is multiplied out, which gives up to ``COMBINATIONS_MAX`` different conjunctions."""
    pattern = orjson.loads(text)
    if '"$or"' not in text:  # most filters have none, and this shortcut lets a million filters load in seconds
        asked: list[tuple[Path, tuple[Condition, ...]]] = []
        _collect_conditions(pattern, (), asked)
        return [tuple(sorted(asked)) if len(asked) > 1 else tuple(asked)]
    found = [tuple(sorted(each.items())) for each in _alternatives(pattern, ())]
    return list(dict.fromkeys(found))


def attributes(payload: bytes) -> Attributes:
    """Return a payload's attributes: the scalars at each path of up to ``DEPTH_MAX`` keys, at least one for each path.

    ``payload`` is canonical JSON. An array contributes the scalars among its first ``ELEMENTS_MAX`` elements, and
    nothing from deeper levels. Only an object has attributes.
    """
    value = orjson.loads(payload)
    found: Attributes = {}
    if type(value) is dict:
        _collect(value, (), found)
    return found


def attributes_at(payload: bytes, paths: Iterable[Path]) -> Attributes:
    """Return a payload's attributes at these paths only, because a payload can have a hundred thousand attributes."""
    value = orjson.loads(payload)
    found: Attributes = {}
    if type(value) is dict:
        for path in paths:
            values = scalars(value, path)
            if values:
                found[path] = values
    return found


def scalars(payload: Any, path: Path) -> list[Any]:
    """Return the scalars of a decoded payload at one path, as ``attributes`` does; empty if it has none."""
    value = payload
    for key in path:
        if type(value) is not dict or key not in value:
            return []
        value = value[key]
    if type(value) is list:
        return _scalars_of(value)
    return [] if type(value) is dict else [value]


def holds(conjunction: Conjunction, found: Mapping[Path, Sequence[Any]]) -> bool:
    """Return whether every path of the conjunction holds. ``found``: a payload's attributes."""
    for path, conditions in conjunction:
        values = found.get(path)
        for condition in conditions:
            if condition.kind == ABSENT:
                if values is None:
                    break
            elif values is not None and any(meets(value, condition) for value in values):
                break
        else:
            return False
    return True


def matches(alternatives: Iterable[Conjunction], payload: bytes) -> bool:
    """Return whether any of these conjunctions holds for the payload. They can belong to one filter or to several.
    ``payload`` is canonical JSON."""
    found = attributes(payload)
    return any(holds(conjunction, found) for conjunction in alternatives)


def meets(value: Any, condition: Condition) -> bool:
    """Return whether this one scalar meets the condition. The condition must not be ``ABSENT``, which no scalar
    meets."""
    kind, wanted = condition.kind, condition.value
    if kind == EQUALS:
        return bool(scalar_key(value) == wanted)
    if kind == NOT_IN:
        return scalar_key(value) not in wanted
    if kind == NUMBER:
        return (type(value) is int or type(value) is float) and inside(float(value), wanted)
    if kind == PREFIX:
        return type(value) is str and value.startswith(wanted)
    if kind == SUFFIX:
        return type(value) is str and value.endswith(wanted)
    if kind == NOT_PREFIX:
        return type(value) is not str or not value.startswith(wanted)
    if kind == NOT_SUFFIX:
        return type(value) is not str or not value.endswith(wanted)
    assert kind == EXISTS, kind
    return True


def inside(number: float, wanted: Range) -> bool:
    """Return whether the number is between the bounds. The caller rounds integers beyond 2^53 to the nearest double
    (SPEC section 2.6)."""
    if number < wanted.low or (number == wanted.low and wanted.low_open):
        return False
    return number < wanted.high or (number == wanted.high and not wanted.high_open)


def _scalars_of(array: list[Any]) -> list[Any]:
    return [element for element in array[:ELEMENTS_MAX] if type(element) is not list and type(element) is not dict]


def _collect(value: dict[str, Any], above: Path, found: Attributes) -> None:
    for key, inner in value.items():
        if type(inner) is dict:
            if len(above) + 1 < DEPTH_MAX:
                _collect(inner, (*above, key), found)
        elif type(inner) is list:
            elements = _scalars_of(inner)
            if elements:
                found[(*above, key)] = elements
        else:
            found[(*above, key)] = [inner]


def _collect_conditions(pattern: dict[str, Any], above: Path, asked: list[tuple[Path, tuple[Condition, ...]]]) -> None:
    """Collect the conditions of a pattern without ``$or``."""
    for key, value in pattern.items():
        if type(value) is dict:
            _collect_conditions(value, (*above, key), asked)
        else:
            asked.append(((*above, key), tuple([_condition(member) for member in value])))


def _alternatives(pattern: dict[str, Any], above: Path) -> list[dict[Path, tuple[Condition, ...]]]:
    """Multiply out the pattern's ``$or``, in the pattern's order."""
    found: list[dict[Path, tuple[Condition, ...]]] = [{}]
    for key, value in pattern.items():
        if key == "$or":
            factors = [each for alternative in value for each in _alternatives(alternative, above)]
        elif type(value) is dict:
            factors = _alternatives(value, (*above, key))
        else:
            factors = [{(*above, key): tuple([_condition(member) for member in value])}]
        found = [{**each, **factor} for each in found for factor in factors]
    return found


def _condition(member: Any) -> Condition:
    if type(member) is not dict:
        return Condition(EQUALS, scalar_key(member))
    [(operator, value)] = member.items()
    if operator == "prefix":
        return Condition(PREFIX, value)
    if operator == "suffix":
        return Condition(SUFFIX, value)
    if operator == "exists":
        return Condition(EXISTS if value else ABSENT, None)
    if operator == "numeric":
        return Condition(NUMBER, _range(value))
    assert operator == "anything-but", operator
    if type(value) is dict:
        [(inner, text)] = value.items()
        return Condition(NOT_PREFIX if inner == "prefix" else NOT_SUFFIX, text)
    values = value if type(value) is list else [value]
    return Condition(NOT_IN, frozenset([scalar_key(each) for each in values]))


def _range(terms: list[Any]) -> Range:
    low, low_open, high, high_open = -_INFINITE, False, _INFINITE, False
    for at in range(0, len(terms), 2):
        operator, bound = terms[at], float(terms[at + 1])
        if operator == "=" or operator[0] == ">":
            low, low_open = bound, operator == ">"
        if operator == "=" or operator[0] == "<":
            high, high_open = bound, operator == "<"
    return Range(low, low_open, high, high_open)

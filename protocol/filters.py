"""The syntax of filters, and the canonical text that all spellings of one filter share. SPEC section 2.6.

Owns: the check of a filter, its limits, and its canonical text. Must never: read a payload, or know a subscriber.

The language is a subset of EventBridge's. A filter that both languages accept matches the same payloads, with these
exceptions:

- The members of an object or array that is itself in an array are not attributes. In EventBridge they are attributes.
- A key with a dot is one key. In EventBridge it is a path of two keys.
- Numbers compare by value: the integer 2^60 and the double 2^60 are equal. ``numeric`` compares doubles. EventBridge
  documents numbers from -5e9 to 5e9, with six decimals.
- ``anything-but`` accepts true, false and null, and values of different types in one list. A prefix or suffix in it may
  be empty.
- Within ``$or``, an attribute may have an operator's name. No attribute may be both in ``$or`` and next to it;
  EventBridge silently ignores the attribute next to it. ``$or`` is always the operator; in EventBridge it can be an
  attribute.
- EventBridge has further operators: ``equals-ignore-case``, ``wildcard``, ``cidr``, and lists of prefixes.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final, NamedTuple

from .errors import ProtocolError
from .wire import canonical

#: Maximum number of bytes of the canonical text. An endpoint keeps a filter's text in memory once, and the store keeps
#: it once for each subscription.
FILTER_BYTES_MAX: Final = 4096

#: Maximum number of different attributes in one filter. Each publish takes one comparison per attribute.
PATHS_MAX: Final = 8

#: Maximum number of keys in the path to an attribute.
DEPTH_MAX: Final = 5

#: A home compares at most this many elements of an array in a payload, beginning with the first. Each element may match
#: different filters. If filters name exact values of several attributes, a payload may have arrays for these
#: attributes. The work then grows with the product of the array sizes, but only up to the number of these filters.
ELEMENTS_MAX: Final = 64

#: Maximum number of members of all lists of a filter together. Each value of an ``anything-but`` counts as one member.
VALUES_MAX: Final = 64

#: Maximum number of rows that an index keeps for one filter. The index has a row for each combination of the filter's
#: ``$or`` alternatives and its literal values.
COMBINATIONS_MAX: Final = 64

#: The operators that a member of a list may have, in the order of the canonical text.
OPERATORS: Final = ("anything-but", "exists", "numeric", "prefix", "suffix")

_OR: Final = "$or"
_ANY_STRING: Final = ("prefix", "suffix")
_LOWER: Final = (">", ">=")
_UPPER: Final = ("<", "<=")

_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**64 - 1
_DOUBLE_MIN: Final = -(2.0**63)  # the same range for doubles
_DOUBLE_END: Final = 2.0**64

#: Keys that an error shows unchanged. It shows any other key as JSON.
_PLAIN: Final = re.compile(r"[\w$-]{1,64}\Z")

Place = tuple[str | int, ...]
"""A place in a filter: keys, operators and indices."""

Path = tuple[str, ...]

_SPLIT: Final = "subscribe with several filters instead"


class _Checked(NamedTuple):
    """A checked pattern: its canonical value, the number of its combinations, and the attributes that it names."""

    value: dict[str, Any]
    combinations: int
    paths: set[Path]


def canonical_filter(value: object) -> str:
    """Return the canonical text of a decoded filter.

    The text is compact JSON with sorted keys. Its lists are sorted and have no duplicates, and each number has one
    spelling. Equal filters therefore have equal texts, and a canonical text does not change when it is made canonical
    again.

    Args:
        value: the decoded JSON value.

    Returns:
        The text, at most ``FILTER_BYTES_MAX`` bytes of UTF-8.

    Raises:
        ProtocolError: ``bad_filter``; ``info`` names the place (``discount[0].numeric: …``) and says what to do.
    """
    if type(value) is not dict:
        raise _bad((), "has to be an object of attributes, each with the list of its values")
    checked = _Check().pattern(value, (), (), 0)
    if checked.combinations > COMBINATIONS_MAX:
        raise _bad(
            (),
            f"makes {checked.combinations} combinations of values; the limit is {COMBINATIONS_MAX}: {_SPLIT}",
        )
    text = canonical(checked.value)
    if len(text) > FILTER_BYTES_MAX:
        raise _bad((), f"is {len(text)} bytes long; the limit is {FILTER_BYTES_MAX}: {_SPLIT}")
    return text.decode()


class _Check:
    """Checks one filter and counts its parts. The check stops as soon as the filter exceeds a limit."""

    def __init__(self) -> None:
        self._values = 0
        self._paths: set[Path] = set()

    def pattern(self, value: dict[str, Any], place: Place, path: Path, level: int) -> _Checked:
        """Check an object of attributes. ``path`` is the object's own path, and ``level`` the number of ``$or`` around
        it."""
        if not value:
            raise _bad(
                place, "is empty: name an attribute" if place else "is empty: name an attribute, or leave it out"
            )
        checked: dict[str, Any] = {}
        combinations = 1
        paths: set[Path] = set()
        for key, inner in value.items():
            at = (*place, key)
            if key == _OR:
                continue
            _check_text(key, at)
            here = (*path, key)
            if len(here) > DEPTH_MAX:
                raise _bad(at, f"is deeper than {DEPTH_MAX} keys: filter by an attribute that is less deep")
            if type(inner) is dict:
                found = self.pattern(inner, at, here, level)
                checked[key] = found.value
                combinations *= found.combinations
                paths |= found.paths
            elif type(inner) is list:
                checked[key] = members = self._members(inner, at, here)
                if not any(type(member) is dict for member in members):
                    combinations *= len(members)
                paths.add(here)
            else:
                raise _bad(at, _no_list(key))
        if _OR in value:
            found = self._alternatives(value[_OR], (*place, _OR), path, level)
            both = sorted(paths & found.paths)
            if both:
                raise _bad(
                    (*place, _OR),
                    f"names {_shown(both[0])}, and so does the pattern around it: move that into each pattern here",
                )
            checked |= found.value
            combinations *= found.combinations
            paths |= found.paths
        return _Checked(checked, combinations, paths)

    def _alternatives(self, value: object, place: Place, path: Path, level: int) -> _Checked:
        """Check the value of ``$or``."""
        if type(value) is not list or len(value) < 2:
            raise _bad(place, "has to be a list of two or more patterns, which are objects of attributes")
        if len(value) > VALUES_MAX or level > VALUES_MAX:  # each alternative has a value, so there are too many values
            raise _too_many_values(place)
        by_text: dict[bytes, dict[str, Any]] = {}
        combinations = 0
        paths: set[Path] = set()
        for index, alternative in enumerate(value):
            at = (*place, index)
            if type(alternative) is not dict:
                raise _bad(at, "has to be an object of attributes, each with the list of its values")
            found = self.pattern(alternative, at, path, level + 1)
            text = canonical(found.value)
            if text not in by_text:
                by_text[text] = found.value
                combinations += found.combinations
                paths |= found.paths
        if len(by_text) < 2:
            raise _bad(place, "has only one pattern, given several times: write it once, without $or")
        return _Checked({_OR: [by_text[text] for text in sorted(by_text)]}, combinations, paths)

    def _members(self, values: list[Any], place: Place, path: Path) -> list[Any]:
        """Check an attribute's list. Returns each member once, sorted."""
        if not values:
            raise _bad(place, "is an empty list, which matches nothing: name the values that the attribute may have")
        self._paths.add(path)
        if len(self._paths) > PATHS_MAX:
            raise _bad(place, f"is one attribute too many: a filter may name at most {PATHS_MAX} different attributes")
        self._count(len(values), place)
        return _sorted([self._member(value, (*place, index)) for index, value in enumerate(values)])

    def _member(self, value: object, place: Place) -> Any:
        if type(value) is not dict:
            return _scalar(value, place)
        if len(value) != 1:
            raise _bad(place, f"has to have one of the operators {', '.join(OPERATORS)}, and only one")
        [(operator, given)] = value.items()
        at = (*place, operator)
        if operator in _ANY_STRING:
            return {operator: _string(given, at)}
        if operator == "anything-but":
            return {operator: self._anything_but(given, at)}
        if operator == "numeric":
            return {operator: _numeric(given, at)}
        if operator == "exists":
            if type(given) is not bool:
                raise _bad(at, "has to be true or false")
            return {operator: given}
        raise _bad(at, f"is no operator: the operators are {', '.join(OPERATORS)}")

    def _anything_but(self, given: object, place: Place) -> Any:
        if type(given) is dict:
            if len(given) != 1 or (operator := next(iter(given))) not in _ANY_STRING:
                raise _bad(place, f"has to have one of the operators {', '.join(_ANY_STRING)}, if it is an object")
            return {operator: _string(given[operator], (*place, operator))}
        if type(given) is not list:
            return _scalar(given, place)
        if not given:
            raise _bad(place, 'is an empty list, which excludes nothing: name values, or use {"exists": true}')
        self._count(len(given) - 1, place)  # the caller has counted the list as one value
        values = _sorted([_scalar(value, (*place, index)) for index, value in enumerate(given)])
        return values if len(values) > 1 else values[0]

    def _count(self, values: int, place: Place) -> None:
        self._values += values
        if self._values > VALUES_MAX:
            raise _too_many_values(place)


def _sorted(members: list[Any]) -> list[Any]:
    """Return the members sorted and without duplicates: null, false, true, numbers by value, strings by code points,
    then operators by text."""
    by_text = {canonical(member): member for member in members}
    ranked: list[tuple[int, Any, Any]] = []
    for text, member in by_text.items():
        if member is None or type(member) is bool:
            ranked.append((0 if member is None else 1, bool(member), member))
        elif type(member) is dict:
            ranked.append((4, text, member))
        else:
            ranked.append((3 if type(member) is str else 2, member, member))
    ranked.sort(key=_rank)
    return [member for _, _, member in ranked]


def _rank(row: tuple[int, Any, Any]) -> tuple[int, Any]:
    return row[0], row[1]


def _scalar(value: object, place: Place) -> Any:
    if type(value) is str:
        return _check_text(value, place)
    if value is None or type(value) is bool:
        return value
    if type(value) is list:
        raise _bad(place, "is a list in a list: move its members into the outer list")
    if type(value) is dict:
        raise _bad(place, "is an object: a filter compares only strings, numbers, true, false and null")
    return _number(value, place)


def _number(value: object, place: Place) -> int | float:
    """Return the number in its canonical spelling: as an integer if its value is an integer of 64 bits."""
    if type(value) is int and _INTEGER_MIN <= value <= _INTEGER_MAX:
        return value
    if type(value) is float and isfinite(value):
        if value.is_integer() and _DOUBLE_MIN <= value < _DOUBLE_END:
            return int(value)
        return value
    raise _bad(place, "has to be a finite number, and an integer has to fit in 64 bits")


def _bound(value: object, place: Place) -> int | float:
    """Return the number's value as a double, since ``numeric`` compares doubles."""
    if type(value) is not int and type(value) is not float:
        raise _bad(place, "has to be a number")
    return _number(float(_number(value, place)), place)


def _numeric(given: object, place: Place) -> list[Any]:
    """Check one comparison, or a lower and an upper bound."""
    if type(given) is not list or len(given) not in (2, 4):
        raise _bad(place, 'has to be a list of one or two comparisons, as in [">=", 30] or [">", 0, "<=", 5]')
    first, low = given[0], _bound(given[1], (*place, 1))
    if len(given) == 2:
        if first != "=" and first not in _LOWER and first not in _UPPER:
            raise _bad((*place, 0), "has to be <, <=, =, >= or >")
        return [first, low]
    if first not in _LOWER or given[2] not in _UPPER:
        raise _bad(place, "has to have the lower bound first, with > or >=, and then the upper bound, with < or <=")
    high = _bound(given[3], (*place, 3))
    if low >= high:
        raise _bad(place, "has to have a lower bound that is below the upper bound")
    return [first, low, given[2], high]


def _string(value: object, place: Place) -> str:
    if type(value) is not str:
        raise _bad(place, "has to be a string")
    return _check_text(value, place)


def _check_text(text: str, place: Place) -> str:
    """Return the text unchanged if JSON can hold it, and if it is not longer than a whole filter may be."""
    if len(text) > FILTER_BYTES_MAX:
        raise _bad(place, f"is too long: a filter has at most {FILTER_BYTES_MAX} bytes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _bad(place, "has a lone surrogate, which is no character") from None
    return text


def _no_list(key: str) -> str:
    if key in OPERATORS:
        return f'has to be in an object in the list of an attribute, as in {{"attribute": [{{"{key}": …}}]}}'
    return 'has to be a list of its values, as in ["value"], or an object of attributes'


def _too_many_values(place: Place) -> ProtocolError:
    return _bad(place, f"makes more than {VALUES_MAX} values in all, which is the limit: {_SPLIT}")


def _bad(place: Place, reason: str) -> ProtocolError:
    return ProtocolError("bad_filter", f"{_shown(place) or 'The filter'}{':' if place else ''} {reason}")


def _shown(place: Place) -> str:
    """Write the place as a person would: ``discount[0].numeric``."""
    shown = ""
    for part in place:
        if type(part) is int:
            shown += f"[{part}]"
        else:
            name = str(part)
            shown += ("." if shown else "") + (name if _PLAIN.match(name) else json.dumps(name[:64]))
    return shown

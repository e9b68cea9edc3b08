"""Finds the filters of a topic that a message matches. With a million filters, this takes microseconds. SPEC section
2.6.

Owns: the index of one topic, which finds the filters by a payload's attributes, and the clients of each filter. Must
never: check a filter, know about subscriptions without a filter, or work for more than 2 ms in one call. Work in
proportion to the call's arguments and results does not count.

The design follows "Content-based publish/subscribe with bitmaps", which has two hash tables: *forward*, from a bitmap
of attribute values to its subscribers, and *reverse*, from a subscriber to its bitmaps. Here equal filters share one
number, which has a list of clients, and the reverse table maps a client to numbers. Each *shape* (``shape``) has its
own forward table, which maps a tuple of values to numbers. Other conditions, such as ranges and prefixes, are an
addition to that design.

A filter with an ``$or``, or with several values for a path, can match in several ways. Each way is a separate
conjunction. The first conjunction has the filter's number. Each further conjunction has a number that leads to the
filter's number.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from itertools import count, product
from typing import Any, Final, NamedTuple

from pyroaring import BitMap

from .bounds import GROUP, LEAF
from .held import Gathered, Held, held_bytes, numbers_of, with_number, without_number
from .pattern import ABSENT, EQUALS, Conjunction, Path, attributes, attributes_at, conjunctions
from .shape import TRIED, Shape, joined
from .table import Table

Raw = bytes
"""The type ``bytes``. It needs another name, because the class below has a property ``bytes``."""

#: If the filters need at most this many paths, a match looks up each path in the payload. Otherwise it collects all
#: attributes of the payload.
FEW_PATHS: Final = 64

#: A filter's clients form a tuple if there are at most this many, otherwise a hash table.
FEW_CLIENTS: Final = 16

#: Bytes of a key of ``Table`` if all keys are strings.
_TEXT_KEY_BYTES: Final = 32

_INDEX_BYTES: Final = 3_000
#: Bytes of a number, in three arrays and as an object.
_NUMBER_BYTES: Final = 24 + 32

#: Gives each index of a process its own number, so that no two indexes return the same key for a match.
_BIRTHS: Final = count(1)


class _Way(NamedTuple):
    """One way in which a filter can hold: the paths of its shape, the values at ``equal``, and its other conditions.
    ``is_bound``: whether each of ``others`` needs an attribute (none of their conditions is ``ABSENT``)."""

    equal: tuple[Path, ...]
    others: tuple[Path, ...]
    is_bound: bool
    key: Any
    rest: Conjunction


class Index:
    """One topic's index. ``tried``: see ``Shape``. ``leaf``, ``group``: see ``Bounds``. Only tests pass values for
    these arguments.

    A filter's text is canonical (``protocol.filters``).
    """

    def __init__(self, tried: int = TRIED, leaf: int = LEAF, group: int = GROUP) -> None:
        self._tried = tried
        self._leaf = leaf
        self._group = group
        self._birth = next(_BIRTHS).to_bytes(8, "little")
        self._pairs = 0
        self._bytes = _INDEX_BYTES
        self._numbers = Table(_TEXT_KEY_BYTES)  # indexed by text
        self._of = Table(_TEXT_KEY_BYTES)  # client -> ``Held``
        self._further = Table()  # number -> the tuple of numbers that lead to it
        self._leading = BitMap()  # all numbers that lead to another number
        self._shapes = Table()
        self._at_path: dict[Path, dict[Shape, None]] = {}  # each shape under one of its needed paths
        self._at_none: dict[Shape, None] = {}  # shapes without a needed path
        self._paths: dict[Path, int] = {}  # needed paths -> the number of shapes that need them
        self._free: list[Any] = []
        # The next three attributes are indexed by number.
        self._texts: list[str] = []
        self._holders: list[Any] = []  # a client, or a tuple or Table of clients, or the filter's number
        self._stamps: array[int] = array("Q")  # the unique stamp of the filter's last change
        self._stamp = 0

    def __len__(self) -> int:
        """Count the pairs of client and filter."""
        return self._pairs

    @property
    def rows(self) -> int:
        """The number of ways in which the filters can hold. The index stores each way."""
        return len(self._holders) - len(self._free)

    @property
    def filters(self) -> int:
        """The number of different filters."""
        return len(self._numbers)

    @property
    def bytes(self) -> int:
        """An estimate of its memory. The error is at most 30 %, except with very few filters."""
        return (
            self._bytes
            + self._numbers.bytes
            + self._of.bytes
            + self._further.bytes
            + self._shapes.bytes
            + len(self._holders) * _NUMBER_BYTES
        )

    def add(self, client: str, text: str) -> bool:
        """Add the client's filter. Return ``False`` if the client had it before."""
        number = self._numbers.get(text)
        if number is None:
            number = self._place(text, client)
            self._numbers.put(text, number)
            self._bytes += _text_bytes(text)
            self._enter(number, text)
        else:
            holder = self._holders[number]
            if _has(holder, client):
                return False
            before = _holder_bytes(holder)
            self._holders[number] = now = _with_client(holder, client)
            self._bytes += _holder_bytes(now) - before
        self._stamp += 1
        self._stamps[number] = self._stamp
        held: Held = self._of.get(client)
        before = held_bytes(held)
        more = with_number(held, number)
        if more is not held:
            self._of.put(client, more)
        self._bytes += held_bytes(more) - before + _text_bytes(client)
        self._pairs += 1
        return True

    def remove(self, client: str, text: str) -> bool:
        """Remove the client's filter. Return ``False`` if the client did not have it."""
        number = self._numbers.get(text)
        if number is None or not _has(self._holders[number], client):
            return False
        held: Held = self._of.get(client)
        before = held_bytes(held)
        left = without_number(held, number)
        if left is None:
            self._of.pop(client)
        elif left is not held:
            self._of.put(client, left)
        self._bytes += held_bytes(left) - before
        self._leave(client, number)
        return True

    def remove_all(self, client: str) -> int:
        """Remove all of the client's filters. Return how many it had."""
        held: Held = self._of.pop(client)
        numbers = numbers_of(held)
        self._bytes -= held_bytes(held)
        for number in numbers:
            self._leave(client, number)
        return len(numbers)

    def match(self, payload: Raw) -> tuple[list[str], Raw]:
        """Find the clients with a filter that holds.

        Args:
            payload: Canonical JSON.

        Returns:
            The clients, each once, and a key of 16 bytes. The same key means that the same filters matched, each with
            the same clients.

        Raises:
            ValueError: The payload is not JSON.
        """
        numbers = self.numbers(self.find(payload))
        if not numbers:
            return [], self._key([])
        holders = self._holders
        clients: dict[str, None] = {}
        for number in numbers:
            holder = holders[number]
            if type(holder) is str:
                clients[holder] = None
            else:
                for client in _clients(holder):
                    clients[client] = None
        return list(clients), self._key(numbers)

    def find(self, payload: Raw) -> Gathered:
        """Find the conjunctions that hold, and return their numbers in the form that the method ``numbers`` needs."""
        found = Gathered()
        paths = self._paths
        of_payload = attributes_at(payload, paths) if len(paths) <= FEW_PATHS else attributes(payload)
        for shape in self._at_none:
            shape.gather(of_payload, found)
        at_path = self._at_path
        for path in of_payload:
            shapes = at_path.get(path)
            if shapes is not None:
                for shape in shapes:
                    shape.gather(of_payload, found)
        return found

    def numbers(self, found: Gathered) -> list[int]:
        """Return the numbers of the found filters, each once, in ascending order."""
        leading, holders = self._leading, self._holders
        if not found.bitmaps:
            single = found.single
            if leading:
                single = [holders[each] if type(holders[each]) is int else each for each in single]
            return single if len(single) < 2 else sorted(set(single))
        whole = found.bitmap()
        if leading and whole.intersect(leading):
            led = BitMap([holders[each] for each in whole & leading], optimize=False)
            led |= whole - leading
            whole = led
        return list(whole)

    def _key(self, numbers: list[int]) -> Raw:
        stamps = self._stamps
        return blake2b(
            array("Q", [stamps[number] for number in numbers]).tobytes(), digest_size=16, key=self._birth
        ).digest()

    def _place(self, text: str, holder: Any) -> Any:
        """Assign a free number to a filter, or (if ``text`` is empty) to a further way that leads to the number
        ``holder``."""
        if self._free:
            number = self._free.pop()
            self._texts[number] = text
            self._holders[number] = holder
            return number
        number = len(self._holders)
        self._texts.append(text)
        self._holders.append(holder)
        self._stamps.append(0)
        return number

    def _enter(self, number: Any, text: str) -> None:
        further: list[Any] = []
        place = number
        for at, way in enumerate(_ways(text)):
            if at:
                place = self._place("", number)
                self._leading.add(place)
                further.append(place)
            shape = self._shape(way)
            before = shape.bytes
            shape.add(way.key, way.rest, place)
            self._bytes += shape.bytes - before
        if further:
            self._further.put(number, tuple(further))
            self._bytes += 40 + 8 * len(further)

    def _leave(self, client: str, number: Any) -> None:
        """Remove this client from the filter; the filter is removed with its last client."""
        self._pairs -= 1
        holder = self._holders[number]
        before = _holder_bytes(holder)
        left = _without_client(holder, client)
        self._bytes += _holder_bytes(left) - before - _text_bytes(client)
        if left is not None:
            self._holders[number] = left
            self._stamp += 1
            self._stamps[number] = self._stamp
            return
        text = self._texts[number]
        self._numbers.pop(text)
        self._bytes -= _text_bytes(text)
        further = self._further.pop(number) or ()
        if further:
            self._bytes -= 40 + 8 * len(further)
        places = (number, *further)
        for at, way in enumerate(_ways(text)):
            key = (way.equal, way.others, way.is_bound)
            shape = self._shapes.get(key)
            before = shape.bytes
            shape.remove(way.key, way.rest, places[at])
            self._bytes += shape.bytes - before
            if not len(shape):
                self._forget(key, shape)
        for place in places:
            self._leading.discard(place)
            self._texts[place] = ""
            self._holders[place] = None
            self._free.append(place)

    def _shape(self, way: _Way) -> Shape:
        key = (way.equal, way.others, way.is_bound)
        shape: Shape | None = self._shapes.get(key)
        if shape is None:
            shape = Shape(way.equal, way.others, self._tried, self._leaf, self._group)
            self._shapes.put(key, shape)
            self._bytes += shape.bytes
            needed = way.equal + way.others if way.is_bound else way.equal
            if needed:
                # Use the path that has the fewest shapes, so that a payload with this path has to try few shapes.
                fewest = -1
                for path in needed:
                    shapes = len(self._at_path.get(path, ()))
                    if fewest < 0 or shapes < fewest:
                        shape.home, fewest = path, shapes
                assert shape.home is not None
                self._at_path.setdefault(shape.home, {})[shape] = None
            else:
                self._at_none[shape] = None
            for path in way.equal + way.others:
                self._paths[path] = self._paths.get(path, 0) + 1
        return shape

    def _forget(self, key: Any, shape: Shape) -> None:
        self._shapes.pop(key)
        self._bytes -= shape.bytes
        for path in key[0] + key[1]:
            if self._paths[path] == 1:
                del self._paths[path]
            else:
                self._paths[path] -= 1
        if shape.home is None:
            del self._at_none[shape]
            return
        shapes = self._at_path[shape.home]
        del shapes[shape]
        if not shapes:
            del self._at_path[shape.home]


def _ways(text: str) -> list[_Way]:
    """Return all ways in which a filter can hold: one for each combination of its equality values, always in the same
    order."""
    ways: list[_Way] = []
    for conjunction in conjunctions(text):
        equal: list[Path] = []
        literals: list[list[Any]] = []
        rest: list[tuple[Path, Any]] = []
        is_bound = True
        for path, conditions in conjunction:
            values = [condition.value for condition in conditions if condition.kind == EQUALS]
            if len(values) == len(conditions):
                equal.append(path)
                literals.append(values)
            else:
                rest.append((path, conditions))
                for condition in conditions:
                    if condition.kind == ABSENT:
                        is_bound = False
        paths = tuple(equal)
        others = tuple([path for path, _ in rest])
        asked: Conjunction = tuple(rest)
        keys = literals[0] if len(literals) == 1 else [joined(values) for values in product(*literals)]
        ways.extend([_Way(paths, others, is_bound, key, asked) for key in keys])
    return ways


def _has(holder: Any, client: str) -> bool:
    if type(holder) is str:
        return holder == client
    if type(holder) is tuple:
        return client in holder
    return holder.get(client) is not None


def _clients(holder: Any) -> list[str]:
    return list(holder) if type(holder) is tuple else holder.all_keys()


def _with_client(holder: Any, client: str) -> Any:
    if type(holder) is str:
        return (holder, client)
    if type(holder) is tuple:
        if len(holder) < FEW_CLIENTS:
            return (*holder, client)
        table = Table(_TEXT_KEY_BYTES)
        for each in holder:
            table.put(each, True)
        holder = table
    holder.put(client, True)
    return holder


def _without_client(holder: Any, client: str) -> Any:
    """Return the clients without this client, or ``None`` if no client is left."""
    if type(holder) is str:
        return None
    if type(holder) is tuple:
        left = tuple([each for each in holder if each != client])
        return left if len(left) > 1 else left[0]
    holder.pop(client)
    return holder if len(holder) > FEW_CLIENTS // 2 else tuple(holder.all_keys())


def _holder_bytes(holder: Any) -> int:
    if type(holder) is tuple:
        return 40 + 8 * len(holder)
    return holder.bytes + 200 if isinstance(holder, Table) else 0


def _text_bytes(text: str) -> int:
    return 56 + len(text) if text.isascii() else 84 + 2 * len(text)

"""The names of messages that were dispatched lately: no message is a duplicate of itself. SPEC section 7.

Owns: the name that goes with a key of the table of duplicates, for as long as an origin may ask again. Must never:
decide what is a duplicate.

The table of duplicates knows payloads, and not whose they were. An origin asks again where it has not heard the
outcome: the home has crashed or stood still, or the link has broken. The name tells its message from another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..message import Message

#: Names in each of the two generations, some 10 MB: at 10,000/s those of five seconds, and no origin asks for longer.
GENERATION: Final = 50_000

Name = tuple[str, int]
"""The origin's incarnation, and the number that the message has there."""


class Names:
    """One endpoint's, as a home and for other homes."""

    def __init__(self) -> None:
        self._young: dict[int, Name] = {}  # by key
        self._old: dict[int, Name] = {}

    def learn(self, key: int, origin: str, number: int) -> None:
        """This message was dispatched, and has the key."""
        self._young[key] = origin, number
        if len(self._young) >= GENERATION:
            self._young, self._old = {}, self._young

    def has(self, key: int, message: Message) -> bool:
        """Is this the very message that was dispatched with its key?"""
        name = self._young.get(key) or self._old.get(key)
        return name is not None and name == (message.origin, message.number)

    def of(self, keys: Sequence[int]) -> dict[int, Name]:
        """The names that go with some of these keys, by the places of the keys."""
        young, old = self._young, self._old
        names: dict[int, Name] = {}
        for place, key in enumerate(keys) if young or old else ():
            name = young.get(key) or old.get(key)
            if name is not None:
                names[place] = name
        return names

    def take(self, keys: Sequence[int], found: Any) -> None:
        """Learn what another endpoint has packed with these keys (``of``). Raises ``ValueError``, and learns nothing,
        where it has another form."""
        if type(found) is not dict:
            raise ValueError("no names")
        for place, name in found.items():
            if type(place) is not int or not 0 <= place < len(keys):
                raise ValueError("no place of a name")
            if type(name) is not list or len(name) != 2 or type(name[0]) is not str or type(name[1]) is not int:
                raise ValueError("no name")
        for place, (origin, number) in found.items():
            self.learn(keys[place], origin, number)

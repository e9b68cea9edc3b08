"""Keeps the names of recently dispatched messages, so that a message sent again does not count as a duplicate. SPEC
section 7.

Owns: the name for each key of the table of duplicates, as long as an origin can send the message again. Must never:
decide what is a duplicate.

The table of duplicates knows payloads, but not their messages. An origin sends a message again if it did not get the
outcome. This happens if the home crashed or stalled, or the link broke. The name distinguishes that message from
another message with the same payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..message import Message

#: Number of names in each of the two generations, which take about 10 MB. At 10,000 messages per second, a generation
#: has the names of five seconds. No origin sends a message again after a longer time.
GENERATION: Final = 50_000

Name = tuple[str, int]
"""The origin's incarnation, and the message's number there."""


class Names:
    """The names that one endpoint keeps: for its own slots as their home, and for the slots of other homes in
    replicas."""

    def __init__(self) -> None:
        self._young: dict[bytes, Name] = {}  # indexed by key
        self._old: dict[bytes, Name] = {}

    def learn(self, key: bytes, origin: str, number: int) -> None:
        """Record the name of a dispatched message under its key."""
        self._young[key] = origin, number
        if len(self._young) >= GENERATION:
            self._young, self._old = {}, self._young

    def has(self, key: bytes, message: Message) -> bool:
        """Return whether this is the very message that was dispatched under this key."""
        name = self._young.get(key) or self._old.get(key)
        return name is not None and name == (message.origin, message.number)

    def of(self, keys: Sequence[bytes]) -> dict[int, Name]:
        """Return the names of these keys, indexed by the positions of the keys. Omit keys without a name."""
        young, old = self._young, self._old
        names: dict[int, Name] = {}
        for place, key in enumerate(keys) if young or old else ():
            name = young.get(key) or old.get(key)
            if name is not None:
                names[place] = name
        return names

    def take(self, keys: Sequence[bytes], found: Any) -> None:
        """Learn the names that another endpoint packed with these keys (``of``). If they are malformed, raise
        ``ValueError`` and learn nothing."""
        if type(found) is not dict:
            raise ValueError("the chunk's names are not a map")
        for place, name in found.items():
            if type(place) is not int or not 0 <= place < len(keys):
                raise ValueError("the chunk names a key that it does not have")
            if type(name) is not list or len(name) != 2 or type(name[0]) is not str or type(name[1]) is not int:
                raise ValueError("the chunk has a malformed name")
        for place, (origin, number) in found.items():
            self.learn(keys[place], origin, number)

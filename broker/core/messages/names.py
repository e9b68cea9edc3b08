"""By which names messages were handed over lately, so that none is taken for a duplicate of itself. SPEC section 9.

Owns: these names, for as long as an origin may ask again for what it has not heard the outcome of. Must never: decide
what is a duplicate.

The table of duplicates knows payloads, and not whose they were. An origin that asks again for its message, since its
home has crashed or its link broke, is told by the name that the message was handed over, and no duplicate of another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from ..links.calls import KEPT
from .message import Message

#: Of each kind so many, the latest, some 10 MB: at 10,000/s those of five seconds, and no origin asks for longer.
NAMES_MAX: Final = 50_000

Name = tuple[str, int]
"""The origin's incarnation, and a number of its."""


class Names:
    """One endpoint's."""

    def __init__(self) -> None:
        self._known: OrderedDict[Name, None] = OrderedDict()
        self._of_keys: OrderedDict[int, Name] = OrderedDict()  # those that go with their keys to the next home

    def learn(self, origin: str, number: int) -> None:
        """The message was handed over, and its origin may not know: by another home, or here, and that crashed since,
        or the answer was lost."""
        known = self._known
        known[origin, number] = None
        if len(known) > NAMES_MAX:
            known.popitem(last=False)

    def handed_over(self, key: int, origin: str, number: int) -> None:
        """The message with this key was, here. Its origin may ask the next home, if it has not heard of it."""
        of_keys = self._of_keys
        of_keys[key] = origin, number
        if len(of_keys) > NAMES_MAX:
            of_keys.popitem(last=False)

    def unheard(self, peer: str, number: int, value: Any) -> None:
        """The peer may not know what it was answered. A publish of its that was handed over may come once more."""
        if value is False or value == KEPT:
            self.learn(peer, number)

    def has(self, message: Message, key: int) -> bool:
        """Is it this very message that was handed over with its key?"""
        name = message.origin, message.number
        return name in self._known or self._of_keys.get(key) == name

    def of(self, keys: Sequence[int]) -> dict[int, Name]:
        """The names that go with the keys, by their places."""
        of_keys = self._of_keys
        return {place: of_keys[key] for place, key in enumerate(keys) if key in of_keys} if of_keys else {}

    def take(self, found: Any) -> None:
        """Those that have come with keys. Raises ``ValueError``, and takes none, where they have another form."""
        if type(found) is not dict:
            raise ValueError("no names")
        names = list(found.values())
        for name in names:
            if type(name) is not list or len(name) != 2 or type(name[0]) is not str or type(name[1]) is not int:
                raise ValueError("no name")
        for origin, number in names:
            self.learn(origin, number)

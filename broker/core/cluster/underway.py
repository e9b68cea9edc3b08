"""What has to end before somebody else may go on: writes for slots that move, keys that are on their way.

Owns: which things are under way, and who waits for the end of which. Must never: know what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class UnderWay:
    """Things that begin and end. Not those that begin later are waited for, but those that are under way now."""

    def __init__(self) -> None:
        self._things: dict[Hashable, str] = {}  # for whom; empty: for everybody
        self._waiting: list[tuple[set[Hashable], Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._things)

    def begin(self, thing: Hashable, whom: str = "") -> None:
        """It is under way from here on. ``whom``: who alone has to wait for it."""
        self._things[thing] = whom

    def end(self, thing: Hashable) -> None:
        """It has ended."""
        self._things.pop(thing, None)
        if not self._waiting:
            return
        over = []
        for things, then in self._waiting:
            things.discard(thing)
            if not things:
                over.append(then)
        self._waiting = [waiting for waiting in self._waiting if waiting[0]]
        for then in over:  # last: they may end other things
            then()

    def after(self, then: Callable[[], None], whom: str | None = "") -> None:
        """Call ``then`` when all that is under way now, for everybody or for them, has ended; at once, if nothing
        is. ``None``: all that is under way for anybody."""
        things = self._for(whom)
        if things:
            self._waiting.append((things, then))
        else:
            then()

    def waits(self, whom: str) -> bool:
        """Have they to wait for something?"""
        return bool(self._things) and bool(self._for(whom))

    def _for(self, whom: str | None) -> set[Hashable]:
        return {thing for thing, whose in self._things.items() if whom is None or whose in ("", whom)}

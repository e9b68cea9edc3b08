"""Work that must end before another endpoint can continue: writes for slots that move, keys on their way.

Owns: the work under way, and the waiters for its end. Must never: know the content of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class UnderWay:
    """Work that begins and ends. A waiter waits only for the work under way when it asks, not for later work."""

    def __init__(self) -> None:
        self._things: dict[Hashable, str] = {}  # thing -> the peer that it holds up; empty: all peers
        self._waiting: list[tuple[set[Hashable], Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._things)

    def begin(self, thing: Hashable, whom: str = "") -> None:
        """Note that the thing is under way. ``whom``: the only peer that must wait for it."""
        self._things[thing] = whom

    def end(self, thing: Hashable) -> None:
        """Note that the thing has ended, and call those that waited for it."""
        self._things.pop(thing, None)
        if not self._waiting:
            return
        over = []
        for things, then in self._waiting:
            things.discard(thing)
            if not things:
                over.append(then)
        self._waiting = [waiting for waiting in self._waiting if waiting[0]]
        for then in over:  # last, since the calls may end other things
            then()

    def after(self, then: Callable[[], None], whom: str | None = "") -> None:
        """Call ``then`` once all work has ended that now holds up ``whom`` or all peers; at once if there is none.
        ``None``: wait for all work."""
        things = self._for(whom)
        if things:
            self._waiting.append((things, then))
        else:
            then()

    def waits(self, whom: str) -> bool:
        """Return whether this peer must wait for something."""
        return bool(self._things) and bool(self._for(whom))

    def _for(self, whom: str | None) -> set[Hashable]:
        return {thing for thing, whose in self._things.items() if whom is None or whose in ("", whom)}

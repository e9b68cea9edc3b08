"""Work that must end before another endpoint can continue, for example writes in slots that move.

Owns: the work in progress, and the callbacks that wait for its end. Must never: know the content of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class UnderWay:
    """Tracks work that begins and ends. A callback waits only for work that had begun when the callback was added, not
    for later work."""

    def __init__(self) -> None:
        self._things: dict[Hashable, str] = {}  # work -> the peer that must wait for it; empty if all peers must
        self._waiting: list[tuple[set[Hashable], Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._things)

    def begin(self, thing: Hashable, whom: str = "") -> None:
        """Record that a piece of work has begun. ``whom``: the only peer that must wait for it. Empty if all peers must
        wait."""
        self._things[thing] = whom

    def end(self, thing: Hashable) -> None:
        """Record that a piece of work has ended, and call the callbacks that waited only for it."""
        self._things.pop(thing, None)
        if not self._waiting:
            return
        over = []
        for things, then in self._waiting:
            things.discard(thing)
            if not things:
                over.append(then)
        self._waiting = [waiting for waiting in self._waiting if waiting[0]]
        for then in over:  # last, because the calls may end other work
            then()

    def after(self, then: Callable[[], None], whom: str | None = "") -> None:
        """When all present work that ``whom`` must wait for has ended, call ``then``. If there is no such work, call
        ``then`` immediately. If ``whom`` is ``None``, wait for all present work."""
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

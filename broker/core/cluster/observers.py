"""Reports each change in the cluster to every part that reacts to it.

Owns: which parts learn of which event, and in which order. Must never: decide what has happened (``joining`` does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..part import Part


class ClusterObservers:
    """One endpoint's observers. Until ``bind`` it has none."""

    def __init__(self) -> None:
        self._view_changed: list[Callable[[], None]] = []
        self._joined: list[Callable[[], None]] = []
        self._lapsed: list[Callable[[], None]] = []
        self._informed: list[Callable[[], None]] = []
        self._linked: list[Callable[[], None]] = []
        self._greet: list[Callable[[str], None]] = []
        self._peer_missed: list[Callable[[str, int | None], None]] = []
        self._peer_reset: list[Callable[[str], None]] = []
        self._peer_leaving: list[Callable[[str], None]] = []

    def bind(self, parts: Sequence[Part]) -> None:
        """Register these parts, in their order, for the events whose methods they override."""
        for part in parts:
            kind = type(part)
            if kind.view_changed is not Part.view_changed:
                self._view_changed.append(part.view_changed)
            if kind.joined is not Part.joined:
                self._joined.append(part.joined)
            if kind.lapsed is not Part.lapsed:
                self._lapsed.append(part.lapsed)
            if kind.informed is not Part.informed:
                self._informed.append(part.informed)
            if kind.linked is not Part.linked:
                self._linked.append(part.linked)
            if kind.greet is not Part.greet:
                self._greet.append(part.greet)
            if kind.peer_missed is not Part.peer_missed:
                self._peer_missed.append(part.peer_missed)
            if kind.peer_reset is not Part.peer_reset:
                self._peer_reset.append(part.peer_reset)
            if kind.peer_leaving is not Part.peer_leaving:
                self._peer_leaving.append(part.peer_leaving)

    def view_changed(self) -> None:
        """See ``Part``."""
        for tell in self._view_changed:
            tell()

    def joined(self) -> None:
        """See ``Part``."""
        for tell in self._joined:
            tell()

    def lapsed(self) -> None:
        """See ``Part``."""
        for tell in self._lapsed:
            tell()

    def informed(self) -> None:
        """See ``Part``."""
        for tell in self._informed:
            tell()

    def linked(self) -> None:
        """See ``Part``."""
        for tell in self._linked:
            tell()

    def greet(self, peer: str) -> None:
        """See ``Part``."""
        for tell in self._greet:
            tell(peer)

    def peer_missed(self, peer: str, void_before: int | None) -> None:
        """See ``Part``."""
        for tell in self._peer_missed:
            tell(peer, void_before)

    def peer_reset(self, peer: str) -> None:
        """See ``Part``."""
        for tell in self._peer_reset:
            tell(peer)

    def peer_leaving(self, peer: str) -> None:
        """See ``Part``."""
        for tell in self._peer_leaving:
            tell(peer)

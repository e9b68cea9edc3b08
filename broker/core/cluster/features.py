"""Features: what all endpoints of a cluster do, or none, as the store records it. ADR 22.

Owns: which features are on as far as this endpoint knows, and when this endpoint switches one on. Must never: switch
one off that people have switched on, or carry one out; the part that does is told.

A feature is on when the store says so, at every endpoint, whether that one wanted it or not. An endpoint that was told
to want it switches it on when all others that live are able to do it, too: once. If people switch it off after that,
it stays off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..desk import Desk
from ..effects import Switched
from ..part import Part
from .membership import Membership

#: The store is asked so often which features are on, in seconds.
LOOK_S: Final = 2.0

#: An endpoint that opened the store before a feature was on is in the registry after so many seconds.
SURE_S: Final = 10.0


class Features(Part):
    """One endpoint's part. ``switches``: by feature, told whether it is on. ``wanted``: to be switched on; the
    capability that an endpoint needs for a feature has its name."""

    def __init__(
        self, desk: Desk, members: Membership, switches: Mapping[str, Callable[[bool], None]], wanted: frozenset[str]
    ) -> None:
        self._desk = desk
        self._members = members
        self._switches = dict(switches)
        self.on: frozenset[str] = frozenset()
        #: What is wanted and not on: the names of those that are not able to do it, or not known to be.
        self.awaited: dict[str, list[str]] = {feature: [] for feature in sorted(wanted)}
        self._ours: dict[str, float] = {}  # switched on by this endpoint, which looks until then whether that was right
        self._look_at = desk.now
        self._asking = False

    def follow(self, feature: str, switch: Callable[[bool], None]) -> None:
        """This is told, too, whether that feature is on."""
        self._switches[feature] = switch

    def want(self, feature: str) -> None:
        """Have it switched on as soon as all others are able to, also where people have switched it off before."""
        if feature not in self.on and feature not in self.awaited:
            self.awaited[feature] = []
            self._look_at = self._desk.now

    def tick(self) -> None:
        """Ask the store when it is time to; not while this endpoint leaves, which would wait for the answer."""
        if self._desk.now < self._look_at or self._asking or self._members.leaving:
            return
        if self._switches:
            self._look_at = self._desk.now + LOOK_S
            self._asking = True
            self._desk.store("features", (), self._read)

    def _read(self, context: Any, result: Any, error: Exception | None) -> None:
        self._asking = False
        if error is not None:
            return
        found = frozenset(result).intersection(self._switches)  # and no `&`, which makes a set of it
        for feature in sorted(found ^ self.on):
            self._switches[feature](feature in found)
            self._desk.emit(Switched(feature, feature in found, []))
        self.on = found
        for feature in found:
            self.awaited.pop(feature, None)
        if self._members.joined and not self._members.leaving:
            self._go_on()

    def _go_on(self) -> None:
        for feature in sorted(self.on.intersection(self._ours)):
            # One that is not able may have opened the store before it was on, and have come to the registry since.
            if self._desk.now >= self._ours[feature]:
                del self._ours[feature]
            elif lacking := self._members.lacking(feature):
                del self._ours[feature]
                self.awaited[feature] = []
                self._switch(feature, False)
                self._await(feature, lacking)
        for feature in [feature for feature in self.awaited if feature not in self.on]:
            if lacking := self._members.lacking(feature):
                self._await(feature, lacking)
            else:
                self._ours[feature] = self._desk.now + SURE_S
                self._switch(feature, True)

    def _await(self, feature: str, lacking: list[str]) -> None:
        if self.awaited[feature] != lacking:
            self.awaited[feature] = lacking
            self._desk.emit(Switched(feature, False, lacking))

    def _switch(self, feature: str, on: bool) -> None:
        self._asking = True
        self._desk.store("switch", (feature, on), self._written, feature if on else "")

    def _written(self, feature: str, result: Any, error: Exception | None) -> None:
        self._asking = False
        if error is None:
            self._look_at = self._desk.now
            self.awaited.pop(feature, None)  # once, even if people switch it off before it is looked for

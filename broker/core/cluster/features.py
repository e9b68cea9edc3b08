"""Features: what all endpoints of a cluster do, or none, as the store records it. ADR 22.

Owns: which features are on as far as this endpoint knows, when this endpoint switches one on, and which peers know.
Must never: switch one off that people have switched on, or carry one out; the part that does is told.

A feature is on when the store says so, at every endpoint, whether that one wanted it or not. An endpoint that was told
to want it switches it on when all others that live are able to do it, too: once. If people switch it off after that,
it stays off.

Some features may be used only when every endpoint that may act knows that they are on: of these an endpoint asks the
store before it joins, its peers tell it before they let it in, and whoever uses one has told all in its view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ..desk import Desk
from ..effects import Switched
from ..links.calls import Call, Kind
from ..links.capabilities import ENDING, FILTERS, HISTORY, JOURNAL
from ..part import Part, RequestHandler
from .membership import Membership

#: The store is asked so often which features are on, in seconds.
LOOK_S: Final = 2.0

#: An endpoint that opened the store before a feature was on is in the registry after so many seconds.
SURE_S: Final = 10.0

#: What has to be known before an endpoint acts is looked for again so soon, in seconds.
READY_S: Final = 0.1

#: Those that may be used only when all know it.
TOLD: Final = frozenset((ENDING, FILTERS, HISTORY, JOURNAL))


class Switch:
    """Whether a feature is on, as far as this endpoint knows: for the parts that do otherwise then."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False

    def turn(self, on: bool) -> None:
        """It has been switched."""
        self.on = on


def flags(ending: Switch, filters: Switch) -> tuple[bool, ...]:
    """The last arguments of an operation of the store that goes by both features: as few as say it."""
    if filters.on:
        return ending.on, True
    return (True,) if ending.on else ()


class Features(Part):
    """One endpoint's part. ``switches``: by feature, told whether it is on. ``wanted``: to be switched on; the
    capability that an endpoint needs for a feature has its name."""

    def __init__(
        self, desk: Desk, members: Membership, switches: Mapping[str, Callable[[bool], None]], wanted: Collection[str]
    ) -> None:
        self._desk = desk
        self._members = members
        self._switches = dict(switches)
        self.on: frozenset[str] = frozenset()
        #: What is wanted and not on: the names of those that are not able to do it, or not known to be.
        self.awaited: dict[str, list[str]] = {feature: [] for feature in sorted(wanted)}
        self._ours: dict[str, float] = {}  # switched on by this endpoint, which looks until then whether that was right
        self._off: set[str] = set()  # were on, and people have switched them off
        self._failed: dict[str, str] = {}  # could not be switched on, and why
        self._told = frozenset(TOLD.intersection(switches))
        self._know: dict[str, set[str]] = {feature: set() for feature in self._told}  # peers that know that it is on
        self._look_at = desk.now
        self._asking = False
        self._outdated = False  # what is being asked: a peer has said more meanwhile
        #: What has to be known before this endpoint acts, beside the features: where it is not, it is asked again.
        self.ready: Callable[[], bool] = lambda: True
        #: Is told when it is known: this endpoint may act from here on, and then what follows is not to wait.
        self.informed: Callable[[], None] = lambda: None
        members.informed = not self._told

    def requests(self) -> dict[Kind, RequestHandler]:
        """What a peer knows to be on."""
        return {Kind.SWITCHED: self.switched_on}

    # Using one

    def is_meant(self, feature: str) -> bool:
        """Is it on, or wanted by this endpoint, or switched on by it and not found to be on yet?"""
        return feature in self.on or feature in self.awaited or feature in self._ours

    def want(self, feature: str) -> str | None:
        """Somebody wants to use the feature. ``None``: it is on, and all in the view know it, if they have to; else why
        not: it may be a matter of moments (``""``), or takes people to do something."""
        know = self._know.get(feature)
        if feature in self.on:
            return None if know is None or know.issuperset(self._members.view()) else ""
        if know is not None and feature in self._off:
            return f"it was switched off (ingeborg features --off {feature}); one that starts anew switches it on"
        if feature not in self.awaited:
            self.awaited[feature] = []
            self._look_at = self._desk.now
        if feature in self._failed:
            return self._failed[feature]
        lacking = self.awaited[feature]
        return f"{', '.join(lacking)} cannot do it, being of an older version, or not linked yet" if lacking else ""

    # Telling

    def tell(self, peer: str) -> None:
        """Have the peer know what is on, before whatever else goes to it from here on."""
        features = sorted(feature for feature in self._told & self.on if peer not in self._know[feature])
        if features and self._members.has(peer, ENDING):
            self._desk.ask(Kind.SWITCHED, peer, (features,), self, features)

    def switched_on(self, peer: str, number: int, arguments: list[Any]) -> None:
        """The peer has it from the store, or from another that has."""
        for feature in sorted(self._told.intersection(arguments[0])):
            self._know[feature].add(peer)
            if feature not in self.on:
                self._turn(feature, True)
                self._outdated = self._asking
        self._desk.answer(peer, number)

    def answered(self, call: Call, value: Any) -> None:
        """It knows."""
        for feature in call.context:
            if feature in self.on:
                self._know[feature].add(call.target)

    def failed(self, call: Call, code: str, info: Any) -> None:
        """Perhaps not: it is told anew while it is in the view, and before it is let in."""
        if self._members.in_view(call.target):
            self.tell(call.target)

    def view_changed(self) -> None:
        """Who is gone may come back without what it knew."""
        view = self._members.view()
        for know in self._know.values():
            know.intersection_update(view)
        if not self._told.isdisjoint(self.on):
            for peer in view:
                self.tell(peer)

    def joined(self) -> None:
        """This endpoint may switch on what it wants."""
        if self.awaited:
            self._look_at = self._desk.now

    def lapsed(self) -> None:
        """Others may switch one on, and use it, meanwhile."""
        if self._told:
            self._members.informed = False
            self._look_at = self._desk.now

    # The store

    def follow(self, feature: str, switch: Callable[[bool], None]) -> None:
        """This is told, too, whether that feature is on."""
        self._switches[feature] = switch

    def tick(self) -> None:
        """Ask the store when it is time to; not while this endpoint leaves, which would wait for the answer."""
        if self._desk.now < self._look_at or self._asking or self._members.leaving:
            return
        if self._switches:
            self._look_at = self._desk.now + LOOK_S
            self._asking = True
            self._desk.store("features", (), self._read, self._members.round)

    def _read(self, round: int, result: Any, error: Exception | None) -> None:
        self._asking = False
        outdated, self._outdated = self._outdated, False
        if error is not None:
            return
        if outdated:
            self._look_at = self._desk.now
            return
        found = frozenset(result).intersection(self._switches)  # and no `&`, which makes a set of it
        for feature in sorted(found ^ self.on):
            self._turn(feature, feature in found)
        for feature in found:
            self.awaited.pop(feature, None)
        if not self._members.informed:
            if round != self._members.round:
                self._look_at = self._desk.now
                return
            if not self.ready():
                self._look_at = self._desk.now + READY_S
                return
            self._members.inform()
            self.informed()
        if self._members.joined and not self._members.leaving:
            self._go_on()

    def _turn(self, feature: str, on: bool) -> None:
        if on:
            self.on |= {feature}
            self._off.discard(feature)
        else:
            self.on -= {feature}
            self._off.add(feature)
            self._know.get(feature, set()).clear()
        self._switches[feature](on)
        self._desk.emit(Switched(feature, on, []))
        if on and feature in self._told:
            for peer in self._members.view():
                self.tell(peer)

    def _go_on(self) -> None:
        for feature in sorted(self.on.intersection(self._ours)):
            # One that is not able may have opened the store before it was on, and have come to the registry since.
            # Of one that has not been linked yet nobody knows that: the feature is in use, and stays on meanwhile.
            if unable := self._members.unable(feature):
                del self._ours[feature]
                self.awaited[feature] = []
                self._switch(feature, False)
                self._await(feature, unable)
            elif self._desk.now >= self._ours[feature] and not self._members.lacking(feature):
                del self._ours[feature]
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
        self._asking = self._outdated = False
        if error is not None:
            self._failed[feature] = "the store has not recorded it, and an endpoint's log says why"
        else:
            self._failed.pop(feature, None)
            self._look_at = self._desk.now
            self.awaited.pop(feature, None)  # once, even if people switch it off before it is looked for

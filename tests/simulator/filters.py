"""A random history of subscriptions with filters, and the promises of SPEC sections 2.6 and 8 about them.

Owns: the filters and the payloads, a naive reading of a filter's meaning, and the clients' commands about filters. The
faults and the cluster are those of ``history``; the oracle decides which clients must get which messages. Must never:
ask the core about the meaning of a filter.

A client subscribes with or without a filter, and with or without a term that outlasts the history, in addition to its
other subscriptions or in their place. It takes one back, or all. Several of these commands are under way at a time;
those of one connection take effect in their order.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from ingeborg.bench.oracle.facts import Name
from ingeborg.protocol.filters import canonical_filter

from .history import TOPICS, History, Publication, Subscriber
from .world import Client

#: Two attributes and a few values: each filter matches some payloads, and most payloads match some filters.
PATTERNS: tuple[dict[str, Any], ...] = (
    {"a": ["x"]},
    {"a": ["y", "xy"]},
    {"a": [{"prefix": "x"}]},
    {"a": [{"anything-but": "x"}]},
    {"a": [{"exists": False}]},
    {"b": [1]},
    {"b": [True, 2.0]},
    {"b": [{"numeric": [">=", 2]}]},
    {"b": [{"numeric": [">", 0, "<", 3]}]},
    {"a": ["x"], "b": [{"numeric": ["<", 2]}]},
    {"a": ["y"], "b": [0, 1]},
    {"$or": [{"a": ["y"]}, {"b": [3]}]},
)

#: By the text that the store keeps.
BY_TEXT: dict[str, dict[str, Any]] = {canonical_filter(pattern): pattern for pattern in PATTERNS}

#: ``None``: the payload has no such attribute.
A: tuple[Any, ...] = ("x", "y", "xy", ["x", "y"], None)
B: tuple[Any, ...] = (0, 1, 2, 3, True, None)

#: Longer than a history.
LONG_S = 3_600.0
TERMS: tuple[dict[str, Any], ...] = ({}, {}, {"until": "disconnect"}, {"ttl_s": LONG_S})


def met_by(pattern: dict[str, Any], payload: dict[str, Any]) -> bool:
    """Does the filter match? The rules are those of SPEC section 2.6, for payloads without objects in them."""
    for key, members in pattern.items():
        if key == "$or":
            if not any(met_by(alternative, payload) for alternative in members):
                return False
            continue
        value = payload.get(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not any(_member_met(member, values) for member in members):
            return False
    return True


def _member_met(member: Any, values: list[Any]) -> bool:
    if not isinstance(member, dict):
        return any(_same(value, member) for value in values)
    [(operator, wanted)] = member.items()
    if operator == "exists":
        return bool(values) is bool(wanted)
    if operator == "prefix":
        return any(isinstance(value, str) and value.startswith(wanted) for value in values)
    if operator == "anything-but":
        return any(not _same(value, wanted) for value in values)
    assert operator == "numeric"
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    terms = list(zip(wanted[::2], wanted[1::2], strict=True))
    return any(all(_compares(number, sign, bound) for sign, bound in terms) for number in numbers)


def _same(one: Any, other: Any) -> bool:
    return bool(isinstance(one, bool) == isinstance(other, bool) and one == other)


def _compares(number: int, sign: str, bound: int) -> bool:
    return {"<": number < bound, "<=": number <= bound, ">": number > bound, ">=": number >= bound}[sign]


class FilterHistory(History):
    """Runs one seed. ``replaced``: the subscriptions that have replaced all others at their topic."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.seed = seed
        self.world.options["grace_s"] = LONG_S
        self.topics = TOPICS[:3]  # few, so that clients have several filters at each
        self.replaced = 0
        self._bodies: dict[Any, dict[str, Any]] = {}
        self.world.payload_name = lambda payload: f"m{payload['n']}"

    def body(self, publication: Publication) -> Any:
        """Derive the attributes from the publication's number: a repeated publish has the same payload."""
        found = self._bodies.get(publication.payload)
        if found is None:
            draws = Random(f"{self.seed} {publication.number}")
            values = {"a": draws.choice(A), "b": draws.choice(B)}
            found = {"n": publication.number, **{key: value for key, value in values.items() if value is not None}}
            self._bodies[publication.payload] = found
            self.say(f"{publication.payload} is {json.dumps(found)}")
        return found

    def met(self, publication: Publication) -> frozenset[Name]:
        """Return the filters that match it, by the naive reading."""
        body = self.body(publication)
        return frozenset(text for text, pattern in BY_TEXT.items() if met_by(pattern, body))

    def change_wish(self, subscriber: Subscriber, connection: Client, topic: str) -> None:
        """Subscribe in a random way, or take one subscription back, or all."""
        draw = self.random.random()
        text = self.random.choice(list(BY_TEXT))
        if draw < 0.16:
            self.send_change(subscriber, connection, topic, True, None, self._options(draw < 0.06))
        elif draw < 0.3:
            self.send_change(subscriber, connection, topic, False)
        elif draw < 0.75:
            options = {"filter": BY_TEXT[text], **self._options(draw > 0.6)}
            self.send_change(subscriber, connection, topic, True, text, options)
        else:
            former = [str(change.filter) for change in subscriber.changes.get(topic, ())[-6:] if change.filter]
            text = self.random.choice(former) if former else text
            self.send_change(subscriber, connection, topic, False, text, {"filter": BY_TEXT[text]})

    def _options(self, replace: bool) -> dict[str, Any]:
        """Return options with a term that outlasts the history, or with none."""
        return {**({"replace": True} if replace else {}), **self.random.choice(TERMS)}

    def run(self, seconds: float = 12.0) -> list[str]:
        """Run the whole history; return the violations."""
        super().run(seconds)
        changes = [change for one in self.subscribers for of in one.changes.values() for change in of]
        self.replaced = sum(change.succeeded and change.replace for change in changes)
        return self.violations

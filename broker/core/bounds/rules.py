"""The bounds of clients as the core uses them: one object for all clients with the same rules.

Owns: which bound is a topic's, and the pace of each bound at the present level. Must never: hold a message.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.bounds import STALENESS_MS_MAX, Rule, parse_rules

#: Different sets of rules that are shared. A client with one more gets an object of its own.
SHARED_MAX: Final = 100_000

#: The least pace that a level sets, in seconds: a slot of the agenda.
PACE_S: Final = 0.01

#: The longest staleness, in seconds: that of a bound which has none.
STALENESS_S_MAX: Final = STALENESS_MS_MAX / 1000

#: Levels by which the most urgent bound is later than the least urgent one.
LEVELS_BY_PRIORITY: Final = 3.0

#: The bands that figures are told by.
BANDS: Final = ("low", "medium", "high")


class Bound:
    """A rule, in seconds."""

    __slots__ = ("_level", "_pace", "band", "interval_s", "latest", "numerical", "priority", "staleness_s")

    def __init__(self, rule: Rule) -> None:
        staleness_ms = rule.staleness_ms
        self.staleness_s = STALENESS_S_MAX if staleness_ms is None else staleness_ms / 1000
        self.numerical = rule.numerical
        self.interval_s = rule.interval_ms / 1000
        self.latest = rule.latest
        self.priority = rule.priority
        self.band = 0 if rule.priority < 0 else 1 if rule.priority == 0 else 2  # an index of ``BANDS``
        self._level = 0
        self._pace = 0.0

    def steered(self, level: int) -> float:
        """Return the pace that the level sets, in seconds: 0 if messages pass at once."""
        if level != self._level:
            self._level = level
            step = level - LEVELS_BY_PRIORITY * (1.0 + self.priority)
            self._pace = 0.0 if step < 1 else min(self.staleness_s, PACE_S * 2.0 ** (step - 1.0))
        return self._pace


class Rules:
    """A client's rules. ``text``: as ``protocol.bounds`` writes them. ``users``: the clients that have them."""

    __slots__ = ("_any", "_rules", "text", "users")

    def __init__(self, text: str) -> None:
        self.text = text
        self.users = 0
        self._rules = [(rule, Bound(rule)) for rule in parse_rules(text)]
        first = self._rules[0] if self._rules else None
        #: The bound of every topic, if the first rule matches every topic.
        self._any = first[1] if first is not None and first[0].topic is None and not first[0].prefix else None

    def __len__(self) -> int:
        return len(self._rules)

    def bound(self, topic: str) -> Bound | None:
        """Return the topic's bound: of the first rule that matches; ``None`` if no rule does."""
        if self._any is not None:
            return self._any
        for rule, bound in self._rules:
            if rule.matches(topic):
                return bound
        return None


class SharedRules:
    """The rules in force at an endpoint."""

    def __init__(self) -> None:
        self._rules: dict[str, Rules] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def take(self, text: str) -> Rules:
        """Return the rules with this text, for one more client."""
        rules = self._rules.get(text)
        if rules is None:
            rules = Rules(text)
            if len(self._rules) < SHARED_MAX:
                self._rules[text] = rules
        rules.users += 1
        return rules

    def give_back(self, rules: Rules) -> None:
        """A client no longer has these rules."""
        rules.users -= 1
        if not rules.users and self._rules.get(rules.text) is rules:
            del self._rules[rules.text]

"""The clients' bounds, in the form that the core uses. All clients with the same rules share one object.

Owns: the choice of a topic's bound, and the pace of each bound at the current level. Must never: hold a message.
"""

from __future__ import annotations

from typing import Final

from ingeborg.protocol.bounds import STALENESS_MS_MAX, Rule, parse_rules

#: Maximum number of sets of rules that clients share. Beyond it, a client with a new set gets a separate object.
SHARED_MAX: Final = 100_000

#: The shortest pace that a level sets, in seconds. It is also the length of a slot in the agenda of ``holding``.
PACE_S: Final = 0.01

#: The longest staleness, in seconds. It applies to rules that set no staleness.
STALENESS_S_MAX: Final = STALENESS_MS_MAX / 1000

#: A bound with a higher priority begins to slow down at a higher level. Each unit of priority raises that level by this
#: number.
LEVELS_BY_PRIORITY: Final = 3.0

#: The bands of priority by which metrics are reported.
BANDS: Final = ("low", "medium", "high")


class Bound:
    """A rule with its times in seconds."""

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
        """Return the pace that the level sets, in seconds. 0 means that messages pass immediately."""
        if level != self._level:
            self._level = level
            step = level - LEVELS_BY_PRIORITY * (1.0 + self.priority)
            self._pace = 0.0 if step < 1 else min(self.staleness_s, PACE_S * 2.0 ** (step - 1.0))
        return self._pace


class Rules:
    """A client's rules. ``text``: the rules in the form that ``protocol.bounds`` writes. ``users``: the number of
    clients that have these rules."""

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
        """Return the bound of the first rule that matches the topic. Return ``None`` if no rule matches."""
        if self._any is not None:
            return self._any
        for rule, bound in self._rules:
            if rule.matches(topic):
                return bound
        return None


class SharedRules:
    """The sets of rules that the clients of an endpoint have."""

    def __init__(self) -> None:
        self._rules: dict[str, Rules] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def take(self, text: str) -> Rules:
        """Return the rules with this text, and count one more client that has these rules."""
        rules = self._rules.get(text)
        if rules is None:
            rules = Rules(text)
            if len(self._rules) < SHARED_MAX:
                self._rules[text] = rules
        rules.users += 1
        return rules

    def give_back(self, rules: Rules) -> None:
        """Record that a client no longer has these rules."""
        rules.users -= 1
        if not rules.users and self._rules.get(rules.text) is rules:
            del self._rules[rules.text]

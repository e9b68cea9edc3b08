"""The rules with which a client limits how stale and how incomplete its view of topics may be. SPEC section 2.8.

Owns: the check of rules, the presets, the limits, and the text form of a list of rules. Must never: hold a message, or
read a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from .errors import ProtocolError
from .topics import TOPIC_BYTES_MAX, check_topic
from .wire import decode, encode

#: Maximum number of rules of one client.
RULES_MAX: Final = 32

#: The largest staleness and interval, and the smallest staleness, in milliseconds.
STALENESS_MS_MAX: Final = 40_960
STALENESS_MS_MIN: Final = 10

#: The largest window: the number of notifications that a client may leave unconfirmed.
WINDOW_MAX: Final = 100_000

#: The longest `item` of a publish, in bytes of UTF-8.
ITEM_BYTES_MAX: Final = 128

#: The largest `weight` of a publish.
WEIGHT_MAX: Final = 1_000_000

#: The largest `count` of a `credit`. A JavaScript number is exact only for integers up to 2^53.
COUNT_MAX: Final = 2**53

_FIELDS: Final = frozenset(("topic", "prefix", "staleness_ms", "numerical", "interval_ms", "deliver", "priority"))

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "live": {"prefix": "", "staleness_ms": 50, "deliver": "all", "priority": 1},
    "screen": {"prefix": "", "staleness_ms": 1_000, "deliver": "latest", "priority": 0},
    "wall": {"prefix": "", "staleness_ms": 5_000, "interval_ms": 1_000, "deliver": "latest", "priority": -1},
}


class Rule(NamedTuple):
    """One rule: the bounds of the topics that it matches.

    Attributes:
        topic: The only topic that the rule matches, or ``None`` if ``prefix`` decides.
        prefix: The beginning of the topics that the rule matches. ``""`` matches every topic.
        staleness_ms: The maximum age of a held message, in milliseconds, or ``None`` for no limit.
        numerical: The maximum total weight of a topic's held messages, or ``None`` for no limit.
        interval_ms: The minimum time between two deliveries of a topic, in milliseconds.
        latest: Whether only the newest message of each item is delivered.
        priority: The urgency, from -1 to 1. A larger number is more urgent.
    """

    topic: str | None
    prefix: str
    staleness_ms: int | None
    numerical: float | None
    interval_ms: int
    latest: bool
    priority: float

    def matches(self, topic: str) -> bool:
        """Return whether this rule is for the topic."""
        return topic == self.topic if self.topic is not None else topic.startswith(self.prefix)


def check_bounds(value: object) -> str:
    """Check the value of ``bounds``.

    Args:
        value: A preset's name, or a list of rules as SPEC section 2.8 defines them.

    Returns:
        The rules as text: a JSON list in which each rule has every field.

    Raises:
        ProtocolError: ``bad_state``. The text names the wrong rule and field.
    """
    if type(value) is str:
        if value not in PRESETS:
            raise _bad(f"there is no preset {value[:32]!r}; there are {', '.join(PRESETS)}, or give a list of rules")
        value = [PRESETS[value]]
    if type(value) is not list:
        raise _bad(f"it has to be one of {', '.join(PRESETS)}, or a list of rules")
    if len(value) > RULES_MAX:
        raise _bad(f"it has {len(value)} rules; {RULES_MAX} are the most")
    return encode([_checked(number, rule) for number, rule in enumerate(value, 1)]).decode()


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules in a text that ``check_bounds`` has returned."""
    rules = decode(b'{"rules":%b}' % text.encode())["rules"]
    return tuple(
        Rule(
            rule.get("topic"),
            rule.get("prefix", ""),
            rule["staleness_ms"],
            rule["numerical"],
            rule["interval_ms"],
            rule["deliver"] == "latest",
            float(rule["priority"]),
        )
        for rule in rules
    )


def check_window(value: object) -> int:
    """Check the value of ``window``: the number of notifications that may be unconfirmed. Raises ``ProtocolError``."""
    if type(value) is not int or not 1 <= value <= WINDOW_MAX:
        raise ProtocolError("bad_state", f"Key 'window' has to be an integer from 1 to {WINDOW_MAX} (notifications)")
    return value


def check_item(value: object) -> str:
    """Check the value of ``item``: which part of the topic's state a message is about. Raises ``ProtocolError``."""
    try:
        if type(value) is str and 1 <= len(value.encode()) <= ITEM_BYTES_MAX:
            return value
    except UnicodeEncodeError:
        pass
    raise ProtocolError("bad_state", f"Key 'item' has to be a string of 1 to {ITEM_BYTES_MAX} bytes of UTF-8")


def check_weight(value: object) -> float:
    """Check the value of ``weight``: how much a reader loses without the message. Raises ``ProtocolError``."""
    if type(value) not in (int, float) or not 0 <= value <= WEIGHT_MAX:  # type: ignore[operator]
        raise ProtocolError("bad_state", f"Key 'weight' has to be a number from 0 to {WEIGHT_MAX}")
    return float(value)  # type: ignore[arg-type]


def about_fields(item: str | None, weight: float | None) -> dict[str, Any]:
    """Return the fields ``item`` and ``weight`` of a publish, without those that are ``None``.

    Args:
        item: the part of the topic's state that the message is about, 1 to 128 bytes, or ``None``.
        weight: how much a reader loses without the message, 0 to 1,000,000, or ``None``.

    Raises:
        ProtocolError: ``bad_state``; a value is wrong.
    """
    fields: dict[str, Any] = {}
    if item is not None:
        fields["item"] = check_item(item)
    if weight is not None:
        fields["weight"] = check_weight(weight)
    return fields


def _bad(text: str) -> ProtocolError:
    return ProtocolError("bad_state", f"Key 'bounds': {text}")


def _checked(number: int, rule: object) -> dict[str, Any]:
    """Check a rule, and return it with every field."""
    if type(rule) is not dict:
        raise _bad(f"rule {number} has to be an object")
    unknown = sorted(set(rule) - _FIELDS)
    if unknown:
        raise _bad(f"rule {number} has no field {unknown[0][:32]!r}; the fields are {', '.join(sorted(_FIELDS))}")
    found = _topics_of(number, rule)
    found["staleness_ms"] = staleness = _whole(number, rule, "staleness_ms", STALENESS_MS_MIN, None)
    numerical = rule.get("numerical")
    if numerical is not None and not (type(numerical) in (int, float) and isfinite(numerical) and numerical > 0):
        raise _bad(f"rule {number}: 'numerical' has to be a number above 0, or null")
    found["numerical"] = numerical
    found["interval_ms"] = interval = _whole(number, rule, "interval_ms", 0, 0)
    if staleness is not None and interval is not None and interval > staleness:
        text = f"rule {number}: 'interval_ms' ({interval}) is above 'staleness_ms' ({staleness}), which cannot be kept"
        raise _bad(text)
    deliver = rule.get("deliver", "all")
    if deliver not in ("all", "latest"):
        raise _bad(f'rule {number}: \'deliver\' has to be "all" or "latest"')
    found["deliver"] = deliver
    priority = rule.get("priority", 0)
    if type(priority) not in (int, float) or not -1 <= priority <= 1:
        raise _bad(f"rule {number}: 'priority' has to be a number from -1 to 1")
    found["priority"] = priority
    return found


def _topics_of(number: int, rule: Mapping[str, Any]) -> dict[str, Any]:
    if ("topic" in rule) is ("prefix" in rule):
        raise _bad(f"rule {number} has to have either 'topic' or 'prefix' (\"\": every topic)")
    if "topic" in rule:
        if type(rule["topic"]) is not str:
            raise _bad(f"rule {number}: 'topic' has to be a string")
        try:
            return {"topic": check_topic(rule["topic"])}
        except ProtocolError as error:
            raise ProtocolError(error.code, f"Key 'bounds': rule {number}: {error.info}") from None
    prefix = rule["prefix"]
    try:
        if type(prefix) is str and len(prefix.encode()) <= TOPIC_BYTES_MAX:
            return {"prefix": prefix}
    except UnicodeEncodeError:
        pass
    raise _bad(f"rule {number}: 'prefix' has to be a string of at most {TOPIC_BYTES_MAX} bytes of UTF-8")


def _whole(number: int, rule: Mapping[str, Any], field: str, least: int, default: int | None) -> int | None:
    value = rule.get(field, default)
    if value is None and default is None:
        return None
    if type(value) is not int or not least <= value <= STALENESS_MS_MAX:
        kind = "an integer" if default is not None else "null, or an integer"
        raise _bad(f"rule {number}: '{field}' has to be {kind} from {least} to {STALENESS_MS_MAX} (in milliseconds)")
    return value

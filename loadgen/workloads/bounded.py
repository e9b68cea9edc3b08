"""The bounds that a workload gives to its clients (SPEC section 2.8): groups, each a share of the clients.

Owns: the text of this setting, its check, and the clients of each group. Must never: send them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from ingeborg.protocol.bounds import PRESETS, STALENESS_MS_MAX, check_bounds, parse_rules
from ingeborg.protocol.errors import ProtocolError

_FIELDS = ("share", "bounds")
#: How far a sum of shares may be above 1: decimal fractions are not exact.
_SUM_SPARE = 1e-9
#: Characters of a wrong group that an error shows.
_SHOWN_CHARS_MAX = 100


class Group(NamedTuple):
    """``share`` of the clients, above 0 and at most 1; ``bounds``: as ``listen`` takes them."""

    share: float
    bounds: str | list[dict[str, Any]]

    @property
    def held_s(self) -> float:
        """The longest time for which an endpoint may hold a message, in seconds."""
        rules = parse_rules(check_bounds(self.bounds))
        longest = (STALENESS_MS_MAX if rule.staleness_ms is None else rule.staleness_ms for rule in rules)
        return max(longest, default=0) / 1000


def parse(text: str) -> tuple[Group, ...]:
    """Read the setting.

    Args:
        text: a preset's name, for all clients; or a JSON list of groups, each with ``bounds`` and perhaps ``share``.
            Empty: no client has bounds.

    Raises:
        ValueError: it is neither, rules are wrong, or the shares exceed 1.
    """
    if not text:
        return ()
    if text in PRESETS:
        return (Group(1.0, text),)
    try:
        rows = json.loads(text)
    except ValueError:
        rows = None
    if type(rows) is not list or not rows:
        raise ValueError(
            f"has to be {', '.join(PRESETS)}, or a JSON list of groups such as "
            '[{"share": 0.5, "bounds": "screen"}, {"share": 0.2, "bounds": [{"prefix": "", "staleness_ms": 500}]}]'
        )
    groups = tuple(_group(number, row) for number, row in enumerate(rows, 1))
    if (total := sum(group.share for group in groups)) > 1 + _SUM_SPARE:
        raise ValueError(f"the shares of the groups add up to {total:g}, above 1")
    return groups


def assigned(groups: Sequence[Group], clients: int, seed: int) -> list[Group | None]:
    """Draw the group of each client, by its number; ``None``: it has no bounds. The same in every process."""
    if not groups:
        return [None] * clients
    found: list[Group | None] = [None] * clients
    order = Random(f"bounds {seed}").sample(range(clients), clients)
    share = 0.0
    begin = 0
    for group in groups:
        share += group.share
        end = min(round(share * clients), clients)
        for client in order[begin:end]:
            found[client] = group
        begin = end
    return found


def _group(number: int, row: object) -> Group:
    if type(row) is not dict or "bounds" not in row or not set(row) <= set(_FIELDS):
        raise ValueError(f"group {number} has to have bounds, and may have share, not {str(row)[:_SHOWN_CHARS_MAX]}")
    share = row.get("share", 1)
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise ValueError(f"group {number}: share has to be above 0 and at most 1, not {str(share)[:_SHOWN_CHARS_MAX]}")
    try:
        check_bounds(row["bounds"])
    except ProtocolError as error:
        raise ValueError(f"group {number}: {error.info}") from None
    return Group(float(share), row["bounds"])

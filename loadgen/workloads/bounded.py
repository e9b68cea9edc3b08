"""The bounds that a workload gives to its clients (SPEC section 2.8). Each group of clients has its own bounds.

Owns: parsing and checking the text of the setting ``bounds``, and drawing the clients of each group. Must never: send
bounds to a server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from ingeborg.protocol.bounds import PRESETS, STALENESS_MS_MAX, check_bounds, parse_rules
from ingeborg.protocol.errors import ProtocolError

_FIELDS = ("share", "bounds")
#: The sum of the shares may exceed 1 by this much, because decimal fractions are not exact.
_SUM_SPARE = 1e-9
#: An error message shows at most this many characters of an invalid group.
_SHOWN_CHARS_MAX = 100


class Group(NamedTuple):
    """Clients with the same bounds. ``share``: the fraction of all clients that are in this group, above 0 and at most
    1. ``bounds``: the bounds in the form in which ``listen`` takes them."""

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
        text: the name of a preset, which all clients get, or a JSON list of groups, each with ``bounds`` and optionally
            ``share``. No client has bounds if the text is empty.

    Raises:
        ValueError: the text has neither form, a rule is invalid, or the shares add up to more than 1.
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
        raise ValueError(f"the shares of the groups add up to {total:g}, more than 1")
    return groups


def assigned(groups: Sequence[Group], clients: int, seed: int) -> list[Group | None]:
    """Draw a group for each client. The index in the list is the client's number. ``None`` means that the client has no
    bounds. Every process draws the same list."""
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
        raise ValueError(
            f"group {number} has to be an object with bounds and optionally share, not {str(row)[:_SHOWN_CHARS_MAX]}"
        )
    share = row.get("share", 1)
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise ValueError(f"group {number}: share has to be above 0 and at most 1, not {str(share)[:_SHOWN_CHARS_MAX]}")
    try:
        check_bounds(row["bounds"])
    except ProtocolError as error:
        raise ValueError(f"group {number}: {error.info}") from None
    return Group(float(share), row["bounds"])

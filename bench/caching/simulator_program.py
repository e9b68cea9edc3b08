"""Asks libcachesim how many requests are hits: a program of its own, in an environment of its own.

Owns: the question as libcachesim is asked it. Must never: import anything else of the project; libcachesim brings boto3
and much besides, which an endpoint and its tests do without.

A line of standard input is ``{"policy": NAME, "entries_max": n, "items": [...]}``, all items of size 1; a line of the
answer is the number of hits.
"""

from __future__ import annotations

import json
import sys

import libcachesim  # type: ignore[import-not-found]

#: Not asked for again.
NEVER = 1 << 62


def hits(policy: str, entries_max: int, items: list[int]) -> int:
    """Of requests for these items, one after the other."""
    cache = getattr(libcachesim, policy)(entries_max)
    following = [NEVER] * len(items)
    next_at: dict[int, int] = {}
    for at in range(len(items) - 1, -1, -1):
        following[at] = next_at.get(items[at], NEVER)
        next_at[items[at]] = at
    return sum(
        cache.get(libcachesim.Request(obj_size=1, obj_id=item, next_access_vtime=after))
        for item, after in zip(items, following, strict=True)
    )


def main() -> None:
    """Answer until there are no questions any more."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(int(hits(question["policy"], question["entries_max"], question["items"]))), flush=True)


if __name__ == "__main__":
    main()

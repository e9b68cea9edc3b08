"""Asks libcachesim how many requests are hits. This is a separate program with a separate environment.

Owns: the form of the question to libcachesim. Must never: import any other part of the project. The environment is
separate because libcachesim brings boto3 and many other packages that an endpoint and its tests do not need.

Each line of standard input is ``{"policy": NAME, "entries_max": n, "items": [...]}``, where all items have size 1. The
answer is a line with the number of hits.
"""

from __future__ import annotations

import json
import sys

import libcachesim  # type: ignore[import-not-found]

#: The "position" of the next request for an item that is not requested again.
NEVER = 1 << 62


def hits(policy: str, entries_max: int, items: list[int]) -> int:
    """Count the hits of requests for these items, in this order."""
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
    """Answer until there are no more questions."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(int(hits(question["policy"], question["entries_max"], question["items"]))), flush=True)


if __name__ == "__main__":
    main()

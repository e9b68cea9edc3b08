"""An upper bound on the number of hits of any policy, for records of different sizes.

Owns: the bound. Must never: be presented as the result of a policy.

Berger, Beckmann, Harchol-Balter: "Practical Bounds on Optimal Caching with Variable Object Sizes" (SIGMETRICS 2018),
PFOO-L. A read is a hit if its record stays in memory from the record's previous event until the read. Such a hit
occupies the record's bytes for that time. All hits together can occupy at most the whole room for the whole time. So
the bound counts the cheapest reads until they have used up this amount. The result is a bound for any unit of time.
This module counts time once in publications and once in events, and returns the lower result.
"""

from __future__ import annotations

from ingeborg.bench.caching.reads import Stream


def hits(stream: Stream, bytes_max: int) -> int:
    """Return a number of hits that no policy exceeds with this room."""
    return min(_hits(stream, bytes_max, by_event=False), _hits(stream, bytes_max, by_event=True))


def _hits(stream: Stream, bytes_max: int, by_event: bool) -> int:
    sizes = stream.sizes
    before = [0] * len(sizes)
    costs = []
    now = 0
    for event in stream.events:
        if event >= 0:
            now += 1
            before[event] = now
            continue
        record = ~event
        if by_event:
            now += 1
        if sizes[record] <= bytes_max:
            costs.append((now - before[record]) * sizes[record])
        before[record] = now
    costs.sort()
    left = now * bytes_max
    for count, cost in enumerate(costs):
        left -= cost
        if left < 0:
            return count + 1  # only a part of this read fits
    return len(costs)

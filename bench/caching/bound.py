"""How many reads can be hits at all, of records of different sizes: a bound from above that no policy passes.

Owns: the bound. Must never: be taken for what a policy can reach.

Berger, Beckmann, Harchol-Balter: "Practical Bounds on Optimal Caching with Variable Object Sizes" (SIGMETRICS 2018),
PFOO-L. A read is a hit if its record stays from the event before it until then, which takes its bytes for so long. All
of that together is at most the room for the whole time. So the reads that take least are taken, until that is used up.
It stays a bound whatever a step of time is: here it is one for each publication, and another for each event, and the
lesser counts.
"""

from __future__ import annotations

from ingeborg.bench.caching.reads import Stream


def hits(stream: Stream, bytes_max: int) -> int:
    """No policy has more, with so much room."""
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
            return count + 1  # a part of this one
    return len(costs)

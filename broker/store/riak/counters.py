"""What the driver counts: the names, and what each one means.

Owns: the list. Must never: decide anything by a count.
"""

from __future__ import annotations

from typing import Final

MEANING: Final[dict[str, str]] = {
    "gets": "objects asked for, the second look at a not-found included",
    "puts": "objects written",
    "bytes_read": "bytes of the values of all siblings read",
    "bytes_written": "bytes of the values written",
    "changes": "changes to objects asked for",
    "changes_grouped": "changes that shared the write of another change to the same object",
    "retries": "requests sent once more, to another node where there is one",
    "refusals": "error answers of nodes",
    "overloads": "error answers of nodes that had too much to do (also refusals)",
    "timeouts": "attempts no answer came to in time",
    "connection_failures": "attempts that ended with a connection refused, closed or garbled",
    "connections_opened": "connections made",
    "connections_refused": "connections that ended in TLS or at the user, by the set-up; for each node one every 10 s",
    "nodes_set_aside": "times a node was set aside for failing",
    "unavailable": "requests given up: no node did it in time",
    "siblings_found": "reads that found an object in more than one version",
    "siblings_written": "writes that made, or left, an object in more than one version",
    "siblings_resolved": "objects written back as one version",
    "repairs_failed": "siblings that could not be written back at once; the next read tries again",
    "repairs_dropped": "siblings not written back because enough repairs were under way; the next read tries again",
    "reads_of_few": "reads of a single primary copy, since no node reached two on two machines: they may be behind",
    "notfounds_confirmed": "not-founds that a second look confirmed",
    "notfounds_false": "not-founds that a second look disproved: a subscriber set that would have been lost",
    "topics_spilled": "topics that got objects of their own",
    "partitions_filled": "partition objects that take no new subscriptions any more",
    "sets_grown": "times a set of its own was spread over more objects",
    "ends_called_off": "ends of a client's subscriptions that were left since it listened meanwhile",
    "ended_unnamed": "subscriptions that have ended and of which only the number is told: later ones took the room",
}


def zeroed() -> dict[str, int]:
    """All counters, at zero: a reader never meets a missing one."""
    return dict.fromkeys(MEANING, 0)

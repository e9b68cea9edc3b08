"""The driver's counters: their names and meanings.

Owns: the list. Must never: decide anything by a count.
"""

from __future__ import annotations

from typing import Final

MEANING: Final[dict[str, str]] = {
    "gets": "reads of objects, including second reads after a not-found",
    "puts": "objects written",
    "bytes_read": "bytes of the values of all siblings read",
    "bytes_written": "bytes of the values written",
    "changes": "requested changes to objects",
    "changes_grouped": "changes that shared the write of another change to the same object",
    "retries": "retried requests, on another node if there is one",
    "refusals": "error responses of nodes",
    "overloads": "error responses of overloaded nodes (also counted in refusals)",
    "timeouts": "attempts without an answer in time",
    "connection_failures": "attempts that ended with a connection refused, closed or garbled",
    "connections_opened": "connections made",
    "connections_refused": "connections that failed at TLS or the user, by configuration; one per node every 10 s",
    "nodes_set_aside": "times that a node was set aside for failing",
    "unavailable": "failed requests: no node completed them in time",
    "siblings_found": "reads that found an object in more than one version",
    "siblings_written": "writes that made, or left, an object in more than one version",
    "siblings_resolved": "objects written back as one version",
    "repairs_failed": "siblings that could not be written back at once; the next read tries again",
    "repairs_dropped": "siblings not written back because enough repairs were under way; the next read tries again",
    "reads_of_few": "reads of a single primary copy, because no node reached two on two machines: they can be stale",
    "notfounds_confirmed": "not-founds that a second read confirmed",
    "notfounds_false": "not-founds that a second read disproved: a subscriber set that would have been lost",
    "topics_spilled": "topics that got objects of their own",
    "partitions_filled": "partition objects that became full and take no new subscriptions",
    "sets_grown": "times that a separate set spread over more objects",
    "ends_called_off": "ends of subscriptions called off because their client listened meanwhile",
    "ended_unnamed": "ended subscriptions that are only counted, because later ones took the space for their names",
}


def zeroed() -> dict[str, int]:
    """Return all counters at zero, so that a reader finds every one."""
    return dict.fromkeys(MEANING, 0)

"""The driver's counters: their names and meanings.

Owns: the list of counters. Must never: make a decision that depends on a count.
"""

from __future__ import annotations

from typing import Final

MEANING: Final[dict[str, str]] = {
    "gets": "reads of objects, including the second read after Riak did not find an object",
    "puts": "objects written",
    "bytes_read": "bytes of the values that were read, of all siblings",
    "bytes_written": "bytes of the values written",
    "changes": "changes to objects that the store requested",
    "changes_grouped": "changes that shared the write of another change to the same object",
    "retries": "requests that were retried, on another node if there is one",
    "refusals": "error responses of nodes",
    "overloads": "error responses of overloaded nodes (refusals counts these as well)",
    "timeouts": "attempts that got no answer in time",
    "connection_failures": "attempts that ended because the connection was refused, closed or garbled",
    "connections_opened": "connections made",
    "connections_refused": "connections that TLS or authentication refused (misconfiguration); one per node every 10 s",
    "nodes_set_aside": "how often a node was set aside because it failed",
    "unavailable": "requests that failed because no node completed them in time",
    "siblings_found": "reads that found an object in more than one version",
    "siblings_written": "writes that made, or left, an object in more than one version",
    "siblings_resolved": "objects written back as one version",
    "repairs_failed": "objects with siblings whose repair failed; the next read tries again",
    "repairs_dropped": "repairs of siblings skipped because too many others were running; the next read tries again",
    "reads_of_few": "reads of one primary copy (perhaps stale), because no node reached two copies on two machines",
    "notfounds_confirmed": "second reads that confirmed that there is no object",
    "notfounds_false": "second reads that found an object, which the first read had missed",
    "topics_spilled": "topics that grew large and got objects of their own",
    "partitions_filled": "partition objects that became full and accept no new subscriptions",
    "sets_grown": "how often a large set spread over more objects",
    "ends_called_off": "ends of subscriptions that the store took back because the client listened meanwhile",
    "ended_unnamed": "ended subscriptions that are only counted, because later ones took the space for their names",
}


def zeroed() -> dict[str, int]:
    """Return all counters, set to zero, so that a reader finds every name."""
    return dict.fromkeys(MEANING, 0)

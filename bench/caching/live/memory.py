"""The broker's memory of its records: the cache and its payloads.

Owns: the payloads, and the counts of records and reads. Must never: read the database, or know the subscribers.

The cache is the project's cache (``broker.core.caches``). The policy comes from ``bench.caching``. The methods of the
cache are called in the same order as in the replay (``bench.caching.replay``): for a record when it is published, and
for a read when it is requested.
"""

from __future__ import annotations

from array import array

from ingeborg.broker.core.caches.cache import Cache
from ingeborg.broker.core.caches.policy import Entry, Policy


class _Noting(Policy):
    """A policy that also drops a victim's payload."""

    def __init__(self, policy: Policy, payloads: dict[int, bytes]) -> None:
        self._policy = policy
        self._payloads = payloads

    def admit(self, entry: Entry) -> bool:
        """Ask the policy."""
        return self._policy.admit(entry)

    def used(self, entry: Entry) -> None:
        """Inform the policy."""
        self._policy.used(entry)

    def victim(self) -> Entry:
        """Return the policy's victim."""
        entry = self._policy.victim()
        self._payloads.pop(entry.key, None)  # a newly admitted record has no payload yet
        return entry

    def forget(self, entry: Entry) -> None:
        """Inform the policy."""
        self._policy.forget(entry)


class Memory:
    """The memory. ``bytes_max`` is the limit of all payloads together, or ``None`` for no limit. With ``told``, a
    record that all subscribers have received is dropped."""

    def __init__(self, policy: Policy, bytes_max: int | None, *, told: bool = False) -> None:
        self._payloads: dict[int, bytes] = {}
        self._cache = Cache(_Noting(policy, self._payloads), bytes_max)
        self._told = told
        self._owed = array("l")  # for each record, the number of subscribers that have not received it
        self.records = 0
        self.utility = 0
        self.admitted = 0
        self.admitted_utility = 0

    def publish(self, number: int, payload: bytes, utility: int) -> bool:
        """Offer the next record, by its number and its number of subscribers. Return whether it is in memory now."""
        self._owed.append(utility)
        self.records += 1
        self.utility += utility
        inside = self._cache.put(Entry(number, len(payload), utility))
        if inside:
            self._payloads[number] = payload
            self.admitted += 1
            self.admitted_utility += utility
        return inside

    def read(self, number: int) -> bytes | None:
        """Read a record for one subscriber. Return ``None`` if it is not in memory."""
        self._owed[number] -= 1
        if self._cache.get(number) is None:
            return None
        payload = self._payloads[number]
        if self._told and not self._owed[number]:
            self._cache.drop(number)
            del self._payloads[number]
        return payload

    def counters(self) -> dict[str, int]:
        """Return the counts since the beginning, by their names in ``counters.csv``. The values
        ``caching_memory_…`` are not counts but show the present state. ``…_utility`` is the sum of the records' numbers
        of subscribers. ``admitted`` counts the records that stayed in memory after other records had been evicted for
        them."""
        counts = self._cache.counts
        return {
            "caching_records_total": self.records,
            "caching_records_utility_total": self.utility,
            "caching_admitted_total": self.admitted,
            "caching_admitted_utility_total": self.admitted_utility,
            "caching_evicted_total": counts.evicted,
            "caching_dropped_total": counts.dropped,
            "caching_reads_total": counts.hits + counts.misses,
            "caching_hits_total": counts.hits,
            "caching_memory_bytes": self._cache.bytes,
            "caching_memory_records": len(self._cache),
        }

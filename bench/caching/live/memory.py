"""What the broker has in memory of its records: the cache and the payloads that are in it.

Owns: the payloads, and the counts of records and reads. Must never: read the database, or know who subscribes.

The cache is the project's (``broker.core.caches``), and the policy one of ``bench.caching``; in which order it is asked
is that of the pure replay (``bench.caching.replay``): a record as it is published, a read as it is asked for.
"""

from __future__ import annotations

from array import array

from ingeborg.broker.core.caches.cache import Cache
from ingeborg.broker.core.caches.policy import Entry, Policy


class _Noting(Policy):
    """A policy that lets go of a victim's payload."""

    def __init__(self, policy: Policy, payloads: dict[int, bytes]) -> None:
        self._policy = policy
        self._payloads = payloads

    def admit(self, entry: Entry) -> bool:
        """As the policy."""
        return self._policy.admit(entry)

    def used(self, entry: Entry) -> None:
        """As the policy."""
        self._policy.used(entry)

    def victim(self) -> Entry:
        """As the policy says."""
        entry = self._policy.victim()
        self._payloads.pop(entry.key, None)  # it may have come in just now, without its payload
        return entry

    def forget(self, entry: Entry) -> None:
        """As the policy."""
        self._policy.forget(entry)


class Memory:
    """``bytes_max``: of all payloads in it together; ``None``: there is no limit. ``told``: a record that all have had
    goes. ``noted``: keep the order of events.

    ``order`` is then what ``bench.caching.reads.Stream.events`` is: a record's number when it is published, and its
    complement (``~``) when it is read.
    """

    def __init__(self, policy: Policy, bytes_max: int | None, *, told: bool = False, noted: bool = False) -> None:
        self._payloads: dict[int, bytes] = {}
        self._cache = Cache(_Noting(policy, self._payloads), bytes_max)
        self._told = told
        self._owed = array("l")  # of each record, how many have not had it
        self.order: array[int] | None = array("l") if noted else None
        self.records = 0
        self.utility = 0
        self.admitted = 0
        self.admitted_utility = 0

    def publish(self, number: int, payload: bytes, utility: int) -> None:
        """The next record, by its number; so many subscribers are owed it."""
        if self.order is not None:
            self.order.append(number)
        self._owed.append(utility)
        self.records += 1
        self.utility += utility
        if self._cache.put(Entry(number, len(payload), utility)):
            self._payloads[number] = payload
            self.admitted += 1
            self.admitted_utility += utility

    def read(self, number: int) -> bytes | None:
        """One subscriber fetches a record. ``None``: it is not in memory."""
        if self.order is not None:
            self.order.append(~number)
        self._owed[number] -= 1
        if self._cache.get(number) is None:
            return None
        payload = self._payloads[number]
        if self._told and not self._owed[number]:
            self._cache.drop(number)
            del self._payloads[number]
        return payload

    def counters(self) -> dict[str, int]:
        """By the names of ``counters.csv``: since the beginning, but for ``caching_memory_…``, which is as it is now.
        ``…_utility``: the subscribers of these records together; ``admitted`` are those that stayed when others had
        made room for them."""
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

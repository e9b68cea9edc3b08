"""Caches for any kind of entry, with policies that decide which entries to keep and which to drop.

Owns: policies (SIEVE, pending readers, LRU) and a cache that follows one of these policies. Must never: know an entry's
content, or read a clock.
"""

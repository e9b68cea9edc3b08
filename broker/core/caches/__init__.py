"""Decides which entries a cache keeps and which it drops, for any kind of entry.

Owns: policies (SIEVE, pending readers, LRU) and a cache that obeys one. Must never: know an entry's content, or read a
clock.
"""

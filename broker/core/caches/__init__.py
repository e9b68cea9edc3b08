"""What a cache keeps and what it lets go, without a word of what an entry is.

Owns: policies (SIEVE, pending readers, LRU) and a cache that obeys one. Must never: know what an entry is, or
read a clock.
"""

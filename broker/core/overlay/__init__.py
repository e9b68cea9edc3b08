"""Protocols for broadcast over trees of endpoints. They do no I/O. The simulator in `bench/overlay` runs them.

Owns: trees, their repair, and causal order over the trees. Must never: know about topics, or open a link.
"""

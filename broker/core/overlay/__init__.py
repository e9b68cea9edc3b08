"""Broadcast over a tree of endpoints, pure: protocols that the simulator of `bench/overlay` runs.

Owns: trees, their repair, and causal order over them. Must never: know a topic, or open a link.
"""

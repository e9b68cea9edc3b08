"""Routing by lookup, the thesis's algorithm: the baseline for measurements of routing by homes.

Owns: the stages and the assembly that differ. Must never: change an endpoint that is home of slots.
"""

"""Routing by lookup, the thesis's algorithm: the baseline that routing by homes is measured against.

Owns: the stages and the assembly in which it differs. Must never: change what an endpoint does that is home of slots.
"""

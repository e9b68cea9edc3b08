"""Routing by lookup, the thesis's algorithm. It serves as the baseline for measurements of routing by homes.

Owns: the stages and the assembly that differ from routing by homes. Must never: affect an endpoint that routes by
homes.
"""

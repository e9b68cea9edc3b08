"""Bounded inconsistency: each subscriber as fresh as it needs, and no fresher when the endpoint is busy.

Owns: rules in force, held messages, when they leave, and how much slack is used. Must never: hold a message of a client
without bounds, or drop one without counting it.
"""

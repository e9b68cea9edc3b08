"""Bounded inconsistency: subscribers say how late their messages may be, and a busy endpoint uses that slack to save
work.

Owns: the clients' rules, held messages and the times of their release, and how much of the slack is used. Must never:
hold a message of a client without bounds, or drop a message without counting it.
"""

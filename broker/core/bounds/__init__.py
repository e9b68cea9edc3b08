"""Bounded inconsistency: subscribers say how late their messages may be, and a busy endpoint uses that slack to save
work.

Owns: the clients' rules, the held messages with their release times, and the share of the slack that the endpoint uses.
Must never: hold a message for a client without bounds, or drop a message without counting it.
"""

"""Writes to clients.

Owns: the order of replies, outgoing frames, and the count of the bytes that all connections hold. Must never: know a
frame's content, or begin a command.
"""

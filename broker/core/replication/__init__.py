"""Sends a slot's seen payloads and messages under way to other endpoints.

Owns: the content for the next home and the replica, and the messages that wait for the replica. Must never: dispatch a
message, or decide what is a duplicate.
"""

"""Replicates state of slots to other endpoints: the seen payloads, and the messages in progress.

Owns: the data that goes to a slot's next home and replica, and the messages that wait for the replica. Must never:
dispatch a message, or decide whether a message is a duplicate.
"""

"""Remembers which payloads were published lately, and measures what is in flight.

Owns: the table of duplicates, the publishers' own keys, the names of messages, and the drops of an origin. Must never:
hash for any other purpose, or know the outcome of a message.
"""

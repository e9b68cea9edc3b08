"""Remembers which payloads were published recently, and measures how much is in flight.

Owns: the table of duplicates, the publishers' own keys, the names of messages, and the duplicates that an origin drops.
Must never: hash for any other purpose, or know the outcome of a message.
"""

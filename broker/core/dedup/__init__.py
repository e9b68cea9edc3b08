"""Which payloads were published lately, and what is in flight.

Owns: the table of duplicates, the publishers' own keys, the names of messages, what an origin drops. Must never: hash
for anything else, or know what becomes of a message.
"""

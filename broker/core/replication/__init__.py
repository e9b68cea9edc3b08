"""What goes with a slot to other endpoints, of payloads seen and messages under way.

Owns: what the next home and the standby get, and which messages wait for the standby. Must never: hand a message over,
or decide what is a duplicate.
"""

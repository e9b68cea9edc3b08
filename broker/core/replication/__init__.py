"""What goes with a slot to other endpoints, of payloads seen and messages under way.

Owns: what the next home and the replica get, and which messages wait for the replica. Must never: dispatch a message,
or decide what is a duplicate.
"""

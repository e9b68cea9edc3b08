"""What clients have missed.

Owns: recoveries at the client's endpoint, the homes' answers, positions, the command `history`. Must never: hand a
message over, or send a position that covers what has not been sent.
"""

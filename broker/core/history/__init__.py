"""Replaying the messages that clients have missed.

Owns: recoveries at the client's endpoint, the homes' answers, positions, the command `history`. Must never: dispatch a
message, or send a position that covers messages that were not sent yet.
"""

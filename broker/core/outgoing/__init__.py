"""Writes to clients.

Owns: replies in the order of their commands, frames on their way out, and the bytes that all connections hold. Must
never: know a frame's content, or begin a command.
"""

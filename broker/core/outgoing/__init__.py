"""What is written to clients.

Owns: replies in the order of their commands, frames on their way out, what all connections hold. Must never: know what
a frame says, or begin a command.
"""

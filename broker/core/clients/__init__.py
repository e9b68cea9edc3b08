"""The commands that clients send, and the places where clients listen.

Owns: incoming commands, listens, keepalive, revoked tokens, and the orderly shutdown. Must never: carry out a command
of another part, or use a socket.
"""

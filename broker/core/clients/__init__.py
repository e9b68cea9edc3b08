"""The commands that clients send, and the places where clients listen.

Owns: incoming commands, listens, keepalive, revoked tokens, the orderly shutdown. Must never: carry out a command of
another part, or know a socket.
"""

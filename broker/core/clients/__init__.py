"""The commands that clients send, and the places where clients listen.

Owns: commands on their way in, listens, keepalive, revoked tokens, the orderly end. Must never: carry out a command of
another part, or know a socket.
"""

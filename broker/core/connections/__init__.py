"""A client's connection, as the core sees it.

Owns: connections and bindings, grants, outboxes, and the reading of large frames. Must never: write to a socket, or
carry out a command.
"""

"""A client's connection, as the core sees it.

Owns: connections and bindings, grants, outboxes, and what a large frame says. Must never: write to a socket, or carry
out a command.
"""

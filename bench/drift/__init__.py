"""`bench drift` finds out whether the cost of a message has changed since a commit."""

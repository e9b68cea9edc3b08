"""`bench drift`: has the cost of a message changed since a commit?"""

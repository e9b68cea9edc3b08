"""What operators and clients look at.

Owns: the endpoints' figures, pages of subscriptions and subscribers. Must never: change anything.
"""

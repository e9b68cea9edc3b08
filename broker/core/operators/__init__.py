"""Answers for operators and clients that look at the cluster.

Owns: the endpoints' figures, pages of subscriptions and subscribers. Must never: change anything.
"""

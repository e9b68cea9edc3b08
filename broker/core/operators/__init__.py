"""Read-only commands that show operators and clients the state of the cluster.

Owns: the endpoints' figures, and pages of subscriptions and subscribers. Must never: change any state of the cluster.
"""

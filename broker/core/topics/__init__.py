"""Topics: subscriptions, at the client's endpoint and at the home, and the locations of clients.

Owns: changes and ends of subscriptions, the routing cache with filters, locations, presence. Must never: report success
before the store has reported it, or dispatch a message.
"""

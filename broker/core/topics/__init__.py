"""Topics: their subscriptions at the client's endpoint and at the home, and where clients are.

Owns: changes of subscriptions and their ends, the routing cache with filters, locations, presence. Must never: report
success before the store has, or dispatch a message.
"""

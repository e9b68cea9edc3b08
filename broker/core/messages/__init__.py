"""The stages of a message: origin, home, fanout, delivery.

Owns: each stage, the treatment of duplicates at the home, outcomes, and messages of crashed homes. Must never: call an
earlier stage from a later stage, or write a subscription.
"""

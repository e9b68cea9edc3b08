"""The way of a message: origin, home, fanout, delivery.

Owns: each stage, what is known of duplicates at the home, outcomes, and messages of crashed homes. Must never: call the
stage before, or write a subscription.
"""

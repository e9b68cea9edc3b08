"""Content filters of subscriptions.

Owns: the meaning of a filter, and the index that finds the clients whose filters hold, among a million. Must never:
know a topic, or read a store.
"""

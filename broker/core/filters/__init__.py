"""Content filters of subscriptions.

Owns: what a filter asks of a payload, and the index that finds whose filters hold, of a million. Must never: know a
topic, or read a store.
"""

"""Content filters of subscriptions.

Owns: the meaning of a filter, and an index of a million filters, which finds the clients whose filters match a message.
Must never: know about topics, or read a store.
"""

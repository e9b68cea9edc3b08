"""Retained messages, at the home of their topic.

Owns: the log and its bound, stamps, watermarks, the journal, and which entry belongs to which message. Must never:
dispatch a message, or know which client has missed messages.
"""

"""Retained messages, at the home of their topic.

Owns: the log and its size limit, stamps, watermarks, the journal, and the mapping between entries and messages. Must
never: dispatch a message, or know which client has missed messages.
"""

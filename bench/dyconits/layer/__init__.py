"""The layer of document 000: a manager, consumers that choose their polling delays, and producers that report.

Owns: the document's equations and algorithms, as pure functions of reports and times. Must never: wait, or know a
broker.

The document is M. Karsai, *Dynamically Managed Inconsistency in Distributed Systems: A Dyconit Middleware for
Publish-Subscribe Systems*, 2024. "Its programs" are the public repository atlarge-research/Dyconit_Kafka.
"""

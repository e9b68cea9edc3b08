"""The link to a peer, and requests over it.

Owns: numbered batches, requests under way, and the format of each request. Must never: carry out a request, or know
which peers are alive.
"""

"""The link to a peer, and requests over it.

Owns: numbered batches, requests in progress, and the format of each request. Must never: carry out a request, or know
which peers are alive.
"""

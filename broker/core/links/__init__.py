"""The link to a peer, and requests over it.

Owns: numbered batches, requests under way, and what each request has to look like. Must never: carry out what is asked,
or know who is alive.
"""

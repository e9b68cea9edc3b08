"""An endpoint's place in the cluster.

Owns: which peers are alive, which endpoint is home of which slot, the lease, links to peers, and replicas of slots.
Must never: know a slot's content, or read a clock.
"""

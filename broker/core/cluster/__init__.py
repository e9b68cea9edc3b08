"""An endpoint's place in the cluster.

Owns: who is alive, which endpoint is home of which slot, the lease, links to peers, and replicas of what belongs to
slots. Must never: know what belongs to a slot, or decide by a clock of its own.
"""

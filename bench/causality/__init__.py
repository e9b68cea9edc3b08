"""Causal order in a run, without Spark: clocks, arrivals at a connection, and the way from a message to a message that
depends on it."""

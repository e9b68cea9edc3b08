"""What happened before what in a run, without Spark: clocks, arrivals at one connection, and the way between two messages."""

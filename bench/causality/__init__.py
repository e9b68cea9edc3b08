"""What happened before what in a run, without Spark: clocks, arrivals at a connection, the way between two messages."""

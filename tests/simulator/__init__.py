"""The whole core in virtual time: simulated clocks, store, links and clients around real routers."""

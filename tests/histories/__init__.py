"""Random histories over real endpoint processes with injected faults, held to SPEC sections 7 and 8."""

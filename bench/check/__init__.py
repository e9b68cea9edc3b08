"""Checks whether the promises hold in a run's log."""

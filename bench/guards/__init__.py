"""What this broker has to reach, figure by figure, each beside its comparison in the same run.

Each is a command of its own (`python -m bench.guards.cost`, `.latency`) and needs an idle machine. None is a test.
"""

"""The performance targets of this broker, one by one: each figure next to its goal, or to its rival in the same run.

`make bench-self` runs all; each is also its own command (`python -m ingeborg.bench.budgets.cost`, `.latency`,
`.loads`, `.slots`, `.storm`, `.idle`, `.scaling`, `.replication`, `.bounds`). They need an idle machine, and none is a
test.
"""
